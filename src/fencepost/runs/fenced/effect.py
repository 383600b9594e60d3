"""One effect of one fire: what makes it happen once, whatever the database.

Two things do. In the store's own database the fire's row says whether this run's token is current. And in any database
the fire's effect key, which retries share, goes into `fencepost_effects` with the effect: the first transaction to
commit wins, by the table's key.

Both are checked first, so that a run that comes too late does no work, and again at the end, where the check is
binding. PostgreSQL locks nothing of ours in between: a process that is stopped inside the block would otherwise keep
the store, and the run that takes its place, waiting for it. (SQLite knows only one writer at a time.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.errors import EffectCommitted, FencedOut, PartCommitted, UsageError
from fencepost.model import checked_id
from fencepost.runs.fire import Fire
from fencepost.store.base import Home

T = TypeVar("T")

Asking = Generator[tuple[str, tuple[Any, ...]], Any, T]
"""Statements and their values; sent back is the first row of each answer, or None. It is the same flow whether the
connection blocks or is awaited."""

KEPT_DAYS = 366
"""How long the table remembers. No fire is run again after so long a time."""
FORGOTTEN_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a fire comes from."""

    namespace: str = "default"
    home: Home | None = None


class Effect(ABC):
    def __init__(self, fire: Fire, scope: Scope, name: str) -> None:
        self.fire = fire
        self.scope = scope
        self.name = name and checked_id(name, "name of an effect")
        self.at_home = False
        """Whether the connection leads to the store's own database."""
        if self.name in fire._effects:
            raise UsageError(
                f"{fire.key} has committed an effect {name!r} already; "
                'give each its own name: fire.fenced(connection, name="invoice")'
            )

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope.namespace, self.fire.effect_key, self.name

    def open(self) -> Asking[None]:
        self.fire._raise_if_ended()
        if self.at_home and (yield self.check_token()) is None:
            raise self._fenced_out()
        if (yield self.check_effect()) is not None:
            raise self._committed()

    def close(self) -> Asking[None]:
        """The last statements before the commit."""
        self.fire._raise_if_ended()
        if self.at_home and (yield self.hold_token()) is None:
            raise self._fenced_out()
        if not (yield from self.record()):
            raise self._committed()

    def committed(self) -> None:
        self.fire._effects.add(self.name)

    # In the words of a database. A row is an answer, None is none.

    @abstractmethod
    def check_token(self) -> tuple[str, tuple[Any, ...]]:
        """The fire's row, if its token is this run's."""

    @abstractmethod
    def hold_token(self) -> tuple[str, tuple[Any, ...]]:
        """The same, and so it stays until the commit."""

    @abstractmethod
    def check_effect(self) -> tuple[str, tuple[Any, ...]]:
        """Its row, if it was committed."""

    @abstractmethod
    def record(self) -> Asking[bool]:
        """Insert its row; whether there was none."""

    def _fenced_out(self) -> FencedOut:
        return FencedOut(
            f"{self.fire.key}: token {self.fire.token} is not current any more; nothing was committed"
        )

    def _committed(self) -> EffectCommitted:
        by = "was committed by an earlier attempt"
        if self.name:
            rest = "catch EffectCommitted, and go on with what is left to do"
            return PartCommitted(f"{self.fire.key}: its effect {self.name!r} {by}; {rest}", self.name)
        return EffectCommitted(f"{self.fire.key}: its effect {by}")
