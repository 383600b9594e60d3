"""`fencepost token NAME`: a token for the service, and the lines that admit it."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, note
from fencepost.cli.source import json_option
from fencepost.web.access import HASH_KIND, ROLES, checked_caller, digest_of, entry_of, new_token


@click.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="read", show_default=True, help="What it may do.")
@click.option(
    "--jobs",
    metavar="PATTERN",
    multiple=True,
    help="Only jobs whose id matches, such as 'billing.*'; repeatable.",
)
@json_option
def token(name: str, role: str, jobs: tuple[str, ...], as_json: bool) -> None:
    """Make a token called NAME.

    Prints the lines for FENCEPOST_TOKENS_FILE, and the token itself once, to standard error:

      fencepost token ada --role operate >> tokens.toml
    """
    caller, made = checked_caller(name, role, jobs), new_token()
    if as_json:
        found = {"name": name, "role": role, "jobs": list(jobs), "token": made}
        emit({**found, "hash": HASH_KIND + digest_of(made).hex()})
        return
    click.echo(entry_of(caller, made))
    note(f"the token of {name}, shown only now: {made}")
    note("a running service admits it after SIGHUP")
