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
            named = _member(command, word)
            if named is None:
                break
            command, names = named, names + 1
        if names:
            command = _member(command, "list") or command  # `jobs` alone is `jobs list`
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


def _commands(group: click.Command) -> Iterator[click.Command]:
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            if command := _member(group, name):
                yield command
                yield from _commands(command)


def _member(group: click.Command, name: str) -> click.Command | None:
    return group.get_command(click.Context(group), name) if isinstance(group, click.Group) else None


def _is_target(parameter: click.Parameter) -> bool:
    is_words = parameter.name == "target" or (parameter.metavar or "").startswith("[TARGET]")
    return isinstance(parameter, click.Argument) and is_words
