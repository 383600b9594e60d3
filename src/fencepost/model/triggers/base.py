"""A trigger: a fixed sequence of fires."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fencepost.model.triggers.times import as_utc

if TYPE_CHECKING:
    from fencepost.model.triggers.calendar import Calendar
    from fencepost.model.triggers.combined import Difference, Intersection, Union
    from fencepost.model.triggers.open_days import OpenDays
    from fencepost.model.triggers.spread import Staggered


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A moment at which a trigger would fire, if a calendar or an exception did not keep it from firing."""

    at: datetime
    why: str
    moved_to: datetime | None = None
    """When it fires instead; None: it does not."""

    def __str__(self) -> str:
        moved = "" if self.moved_to is None else f"moved to {self.moved_to:%Y-%m-%d %H:%M:%S}Z"
        return f"{moved or 'left out'}: {self.why}"


class Trigger(ABC):
    """A fixed sequence of fires."""

    __slots__ = ()

    @property
    def foreign(self) -> str | None:
        """Why this host cannot work out the fires; None: it can."""
        return next((part.foreign for part in self.parts if part.foreign is not None), None)

    @property
    def local_zone(self) -> str | None:
        """The zone whose clock it follows; None: it goes by elapsed time, or by several clocks."""
        tz = getattr(self, "tz", None)
        return tz if isinstance(tz, str) else None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers that it is made of; none: it is one by itself."""
        return ()

    @property
    def is_bound(self) -> bool:
        """Whether nothing depends on the job that it is for; see `bound`."""
        return all(part.is_bound for part in self.parts)

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

    def left_out(self, moment: datetime, until: datetime) -> Iterator[LeftOut]:
        """What is left out in (moment, until], in order."""
        return iter(())

    def resolved(self, anchor: datetime) -> Trigger:
        """This trigger with an open anchor filled in; itself if there is none."""
        return self

    def bound(self, job_id: str) -> Trigger:
        """This trigger with what depends on the job filled in (`H` fields); itself if nothing does."""
        return self

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        """The fires up to `moment` that the trigger names one by one. A job that is declared after them accounts for
        them; a recurring calendar names none, and simply begins when it is declared."""
        return ()

    def on(self, calendar: Calendar, closed: str = "exclude") -> OpenDays:
        """Only on the open days of a calendar. `closed`: what becomes of the other fires. They are left out
        (`exclude`), or move to the same time of the next open day (`shift`)."""
        from fencepost.model.triggers.open_days import on_open_days

        return on_open_days(self, calendar, closed)

    def spread(self, within: timedelta | str | float, job_id: str) -> Staggered:
        """Every fire later by the same span, below `within`, which is derived from the job's id."""
        from fencepost.model.triggers.spread import spread

        return spread(self, within, job_id)

    def __or__(self, other: object) -> Union:
        """Fires when one of the two does."""
        from fencepost.model.triggers.combined import union

        return union(self, other) if isinstance(other, Trigger) else NotImplemented

    def __and__(self, other: object) -> Intersection:
        """Fires when both do at the same instant."""
        from fencepost.model.triggers.combined import intersection

        return intersection(self, other) if isinstance(other, Trigger) else NotImplemented

    def __sub__(self, other: object) -> Difference:
        """Fires when the first does and the second does not."""
        from fencepost.model.triggers.combined import difference

        return difference(self, other) if isinstance(other, Trigger) else NotImplemented

    @abstractmethod
    def describe(self) -> str:
        """In words, with the expression and the zone."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The canonical form: equal triggers have equal JSON. `trigger_from_json` reads it back."""

    @abstractmethod
    def _after(self, moment: datetime) -> Iterator[datetime]:
        """`after`, with the moment already in UTC."""
