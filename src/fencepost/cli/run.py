"""`fencepost run app:scheduler`: take part until a signal stops it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from fencepost.cli.completing import targets
from fencepost.cli.target import load
from fencepost.scheduler.scheduler import Scheduler
from fencepost.web import logs
from fencepost.web.logs import LogFormat

Command = TypeVar("Command", bound=Callable[..., Any])


def log_options(command: Command) -> Command:
    """`--log-format` and `--verbose`, of `run` and `serve`."""
    verbose = "Log every start and the traceback of every failure, too; as FENCEPOST_LOG_LEVEL=debug."
    command = click.option("-v", "--verbose", is_flag=True, help=verbose)(command)
    formats = click.Choice(["text", "json"])
    return click.option("--log-format", type=formats, default="text", show_default=True)(command)


def pool_option(command: Command) -> Command:
    """`--pool`, of `run` and `serve`."""
    text = "Run the jobs of this pool; may be repeated; default: FENCEPOST_POOLS, else the pool default."
    return click.option("--pool", "pools", metavar="NAME", multiple=True, help=text)(command)


def join_pools(scheduler: Scheduler, pools: tuple[str, ...]) -> None:
    if pools:
        scheduler.settings = replace(scheduler.settings, pools=pools)


@click.command()
@click.argument("target", shell_complete=targets)
@click.option("--seconds", type=click.FloatRange(min=0), help="End by itself after so many seconds.")
@pool_option
@log_options
def run(
    target: str, seconds: float | None, pools: tuple[str, ...], log_format: LogFormat, verbose: bool
) -> None:
    """Run the jobs of TARGET until SIGTERM or Ctrl-C."""
    formatter = logs.begin(log_format)
    scheduler = load(target)
    join_pools(scheduler, pools)
    logs.apply(scheduler.settings, formatter, verbose=verbose)
    logging.getLogger("fencepost").info(
        "%d jobs on %s; Ctrl-C stops", len(scheduler.jobs), scheduler.store_name
    )
    scheduler.run(seconds=seconds)
