"""Fencepost's command line with the project's scheduler as the TARGET, which nobody has to type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import click

from fencepost import cli
from fencepost.django.project import TARGET
from fencepost.insight import existence

PROGRAM = "manage.py fencepost"
HELP = "Runs the project's scheduled jobs: every fire once, on any number of replicas."


def main(arguments: Sequence[str]) -> None:
    """Exits with the command's own code."""
    cli.main(with_target(arguments), PROGRAM)


def exit_code(arguments: Sequence[str]) -> int:
    return cli.outcome(with_target(arguments), PROGRAM)


def with_target(arguments: Sequence[str]) -> list[str]:
    """The words, with the target behind the name of the command: `why JOB` becomes `why TARGET JOB`."""
    targeted = _targeted()
    command: click.Command = cli.cli
    names = 0
    for word in arguments:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        command = command.commands[word]
        names += 1
    if isinstance(command, click.Group) and names:
        command = command.commands.get("list", command)  # `jobs` alone is `jobs list`
    asks_for_help = bool({"--help", "-h"}.intersection(arguments))
    if command not in targeted or asks_for_help:
        return list(arguments)
    return [*arguments[:names], TARGET, *arguments[names:]]


@cache
def _targeted() -> frozenset[click.Command]:
    """The commands that take a TARGET. Their help no longer says so."""
    existence.START = f"python {PROGRAM} run"
    cli.cli.help = HELP
    targeted = set()
    for command in _commands(cli.cli):
        command.help = (command.help or "").replace("TARGET", "the project")
        for parameter in filter(_is_target, command.params):
            targeted.add(command)
            parameter.metavar = (parameter.metavar or "").removeprefix("[TARGET]").strip()
    return frozenset(targeted)


def _commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)


def _is_target(parameter: click.Parameter) -> bool:
    is_words = parameter.name == "target" or (parameter.metavar or "").startswith("[TARGET]")
    return isinstance(parameter, click.Argument) and is_words
