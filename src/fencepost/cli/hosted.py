"""The command line inside of a framework's own, as `flask fencepost why JOB`: the framework knows the scheduler, so the
TARGET need not be typed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import click

from fencepost import cli
from fencepost.cli import source
from fencepost.insight import existence


@dataclass(frozen=True)
class Hosted:
    program: str
    """What people type: `flask fencepost`."""
    target: str
    """Where `fencepost` finds the framework's scheduler."""
    start: str
    """What starts a replica, for messages."""
    owner: str
    """What the scheduler belongs to, in the help: "the project"."""

    def main(self, arguments: Sequence[str]) -> None:
        """Exits with the command's own code."""
        cli.main(self.with_target(arguments), self.program)

    def outcome(self, arguments: Sequence[str]) -> int:
        return cli.outcome(self.with_target(arguments), self.program)

    def with_target(self, arguments: Sequence[str]) -> list[str]:
        """The words, with the target behind the name of the command: `why JOB` becomes `why TARGET JOB`."""
        targeted = self._targeted
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
        return [*arguments[:names], self.target, *arguments[names:]]

    @cached_property
    def _targeted(self) -> frozenset[click.Command]:
        """The commands that take a TARGET. Their help no longer says so: this process is the framework's."""
        existence.START, source.HOST_TARGET = self.start, self.target
        cli.cli.help = f"Runs the scheduled jobs of {self.owner}: every fire once, on any number of replicas."
        targeted = set()
        for command in _commands(cli.cli):
            command.help = (command.help or "").replace("TARGET", self.owner)
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
