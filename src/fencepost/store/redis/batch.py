"""What a step of the general path will have written, and what must still be true for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

WORDS = 1_000
"""In one command of a script, about: Lua cannot unpack many thousands."""


class WriteConflict(Exception):
    """Another replica has changed what this step has read."""


class Batch:
    def __init__(self) -> None:
        self._checks: dict[tuple[str, str], str] = {}
        self._commands: list[Sequence[Any]] = []
        self._grouped: dict[tuple[str, str], list[Any]] = {}

    def check(self, key: str, field: str, value: object) -> None:
        """This field of a hash must be the same as when it was read; empty: absent."""
        if self._checks.setdefault((key, field), str(value)) != str(value):
            raise WriteConflict

    def do(self, *words: Any) -> None:
        self._commands.append(words)

    def add(self, command: str, key: str, *values: Any) -> None:
        """A command that takes any number of values: those for one key go together. They are done first."""
        self._grouped.setdefault((command, key), []).extend(values)

    @property
    def is_empty(self) -> bool:
        return not self._commands and not self._grouped

    def is_true(self, call: Callable[..., Any]) -> bool:
        """Whether what has been read is still so."""
        return all((call("HGET", *where) or "") == value for where, value in self._checks.items())

    def words(self) -> Iterator[Any]:
        """As the script `commit` wants it."""
        yield len(self._checks)
        for (key, field), value in self._checks.items():
            yield key
            yield field
            yield value
        for command in (*self._whole(), *self._commands):
            yield len(command)
            yield from command

    def _whole(self) -> Iterator[Sequence[Any]]:
        for (command, key), values in self._grouped.items():
            for start in range(0, len(values), WORDS):
                yield (command, key, *values[start : start + WORDS])
