"""A trigger: a fixed sequence of fires."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from fencepost.model.triggers.times import as_utc


class Trigger(ABC):
    """A fixed sequence of fires."""

    __slots__ = ()

    @property
    def foreign(self) -> str | None:
        """Why this host cannot work out the fires; None: it can."""
        return None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The fires strictly after `moment`, in UTC, strictly increasing."""
        return self._after(as_utc(moment, "moment"))

    def next_after(self, moment: datetime) -> datetime | None:
        """The first fire strictly after `moment`, or None when there are no more."""
        return next(self.after(moment), None)

    def count_after(self, moment: datetime, until: datetime) -> int:
        """How many fires lie in (moment, until]."""
        until = as_utc(until, "until")
        return sum(1 for _ in itertools.takewhile(lambda fire: fire <= until, self.after(moment)))

    def resolved(self, anchor: datetime) -> Trigger:
        """This trigger with an open anchor filled in; itself if there is none."""
        return self

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        """The fires up to `moment` that the trigger names one by one. A job that is declared after them accounts for
        them; a recurring calendar names none, and simply begins when it is declared."""
        return ()

    @abstractmethod
    def describe(self) -> str:
        """In words, with the expression and the zone."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The canonical form: equal triggers have equal JSON. `trigger_from_json` reads it back."""

    @abstractmethod
    def _after(self, moment: datetime) -> Iterator[datetime]:
        """`after`, with the moment already in UTC."""
