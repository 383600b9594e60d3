"""`fencepost run app:scheduler`: take part until a signal stops it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import click

from fencepost.cli.target import load
from fencepost.web import logs
from fencepost.web.logs import LogFormat

Command = TypeVar("Command", bound=Callable[..., Any])


def log_options(command: Command) -> Command:
    """`--log-format` and `--verbose`, of `run` and `serve`."""
    verbose = "Log every start and the traceback of every failure, too; as FENCEPOST_LOG_LEVEL=debug."
    command = click.option("-v", "--verbose", is_flag=True, help=verbose)(command)
    formats = click.Choice(["text", "json"])
    return click.option("--log-format", type=formats, default="text", show_default=True)(command)


@click.command()
@click.argument("target")
@click.option("--seconds", type=click.FloatRange(min=0), help="End by itself after so many seconds.")
@log_options
def run(target: str, seconds: float | None, log_format: LogFormat, verbose: bool) -> None:
    """Run the jobs of TARGET until SIGTERM or Ctrl-C."""
    formatter = logs.begin(log_format)
    scheduler = load(target)
    logs.apply(scheduler.settings, formatter, verbose=verbose)
    logging.getLogger("fencepost").info(
        "%d jobs on %s; Ctrl-C stops", len(scheduler.jobs), scheduler.store_name
    )
    scheduler.run(seconds=seconds)
