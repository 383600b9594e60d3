"""`fencepost run app:scheduler`: take part until told to stop."""

from __future__ import annotations

import logging

import click

from fencepost.cli.target import load


@click.command()
@click.argument("target")
@click.option("--seconds", type=click.FloatRange(min=0), help="End by itself after so many seconds.")
@click.option("-v", "--verbose", is_flag=True, help="Log every start as well.")
def run(target: str, seconds: float | None, verbose: bool) -> None:
    """Run the jobs of TARGET until SIGTERM or Ctrl-C."""
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO)
    logging.getLogger("fencepost").setLevel(logging.DEBUG if verbose else logging.INFO)
    scheduler = load(target)
    logging.getLogger("fencepost").info(
        "%d jobs on %s; Ctrl-C stops", len(scheduler.jobs), scheduler.store_name
    )
    scheduler.run(seconds=seconds)
