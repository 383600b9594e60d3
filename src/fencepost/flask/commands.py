"""`flask fencepost run|status|why|…`: every command of Fencepost, on the application's scheduler."""

from __future__ import annotations

import click
from flask.cli import with_appcontext

from fencepost.cli.hosted import Hosted

HOSTED = Hosted(
    program="flask fencepost",
    target="fencepost.flask:scheduler",
    start="flask fencepost run",
    owner="the application",
)


@click.command(
    "fencepost",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
    short_help="Runs scheduled jobs, and shows and changes them.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@with_appcontext
def command(arguments: tuple[str, ...]) -> None:
    HOSTED.main(arguments or ["--help"])
