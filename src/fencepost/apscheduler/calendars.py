"""The calendars of APScheduler's triggers, as values with a JSON form (see `triggers.py`)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from heapq import heappop, heappush, merge
from typing import Any
from zoneinfo import ZoneInfo

import apscheduler.triggers.cron as cron_module

from fencepost.errors import ConfigurationError
from fencepost.model.triggers import (
    ONE_MICROSECOND,
    Trigger,
    describe_bounds,
    fires_on_the_clock,
    iso,
    moments_to_json,
    zone,
)

CRON_FIELDS: tuple[str, ...] = tuple(cron_module.CronTrigger.FIELD_NAMES)
CALENDAR_UNITS = ("years", "months", "weeks", "days")
MOST_LEAPS = 10_000

# APScheduler searches for a match until its end date: without one, until the year 9999.
HORIZON = datetime(2200, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class APSchedulerCron(Trigger):
    """The fields of an APScheduler `CronTrigger`, one expression for each of `CRON_FIELDS`."""

    fields: tuple[str, ...]
    tz: str
    start: datetime | None = None
    end: datetime | None = None

    def describe(self) -> str:
        named = zip(CRON_FIELDS, self.fields, strict=True)
        given = [f"{name}={text}" for name, text in named if text != "*"] or ["second=*"]
        return f"APScheduler cron {', '.join(given)} in {self.tz}{describe_bounds(self.start, self.end)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "apscheduler",
            "kind": "cron",
            "fields": dict(zip(CRON_FIELDS, self.fields, strict=True)),
            "tz": self.tz,
            **moments_to_json(start=self.start, end=self.end),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return fires_on_the_clock(self._walls_after, zone(self.tz), _shifted, moment, self.start, self.end)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        engine = cron_engine(self.fields)
        found = engine.get_next_fire_time(None, wall)
        while found is not None:
            yield found
            found = engine.get_next_fire_time(None, found + ONE_MICROSECOND)


@dataclass(frozen=True, slots=True)
class CalendarInterval(Trigger):
    """Every so many years, months, weeks and days from `first`, at one time of day."""

    first: date
    every: tuple[int, int, int, int]  # CALENDAR_UNITS
    time_of_day: time
    tz: str
    last: date | None = None

    def describe(self) -> str:
        length = " ".join(f"{n} {unit}" for n, unit in zip(self.every, CALENDAR_UNITS, strict=True) if n)
        until = "" if self.last is None else f", until {self.last}"
        return f"every {length} at {self.time_of_day} in {self.tz}, from {self.first}{until}"

    def to_json(self) -> dict[str, Any]:
        value = {
            "type": "apscheduler",
            "kind": "calendar",
            **dict(zip(CALENDAR_UNITS, self.every, strict=True)),
            "first": self.first.isoformat(),
            "time": self.time_of_day.isoformat(),
            "tz": self.tz,
        }
        return value if self.last is None else {**value, "last": self.last.isoformat()}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return fires_on_the_clock(self._walls_after, zone(self.tz), _regular, moment, None, None)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        days = self._dates_around(wall.date())
        if self.last is not None:
            last = self.last
            days = itertools.takewhile(lambda day: day <= last, days)
        return (datetime.combine(day, self.time_of_day, UTC) for day in days)

    def _dates_around(self, goal: date) -> Iterator[date]:
        """The dates from some time before `goal` on; always counted from `first`."""
        years, months, weeks, days = self.every
        current, step = self.first, timedelta(weeks=weeks, days=days)
        if not years and not months:  # the only ones that can be many
            current += max(0, (goal - current) // step) * step
        month = 12 * years + months
        while current < HORIZON.date():
            yield current
            current = _months_later(current, month) + step


@dataclass(frozen=True, slots=True)
class AnyOf(Trigger):
    """Fires whenever one of its members does."""

    members: tuple[Trigger, ...]

    def resolved(self, anchor: datetime) -> AnyOf:
        return replace(self, members=tuple(member.resolved(anchor) for member in self.members))

    def describe(self) -> str:
        return "; or ".join(member.describe() for member in self.members)

    def to_json(self) -> dict[str, Any]:
        return {"type": "apscheduler", "kind": "or", "members": [member.to_json() for member in self.members]}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        fires = merge(*(member.after(moment) for member in self.members))
        return (fire for fire, _ in itertools.groupby(fires))


@dataclass(frozen=True, slots=True)
class AllOf(Trigger):
    """Fires when all of its members do at the same instant."""

    members: tuple[Trigger, ...]

    def resolved(self, anchor: datetime) -> AllOf:
        return replace(self, members=tuple(member.resolved(anchor) for member in self.members))

    def describe(self) -> str:
        return "; and ".join(member.describe() for member in self.members)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "apscheduler",
            "kind": "and",
            "members": [member.to_json() for member in self.members],
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        while (agreed := self._agreed_after(moment)) is not None:
            yield (moment := agreed)

    def _agreed_after(self, moment: datetime) -> datetime | None:
        for _ in range(MOST_LEAPS):
            fires = [member.next_after(moment) for member in self.members]
            known = [fire for fire in fires if fire is not None]
            if len(known) < len(fires):
                return None
            if min(known) == max(known):
                return known[0]
            moment = max(known) - ONE_MICROSECOND  # no trigger can agree before the latest proposal
        raise ConfigurationError(
            f"{self.describe()!r}: no common fire found in {MOST_LEAPS} steps; combine only triggers that "
            "fire at times of day, or use one cron()."
        )


@dataclass(frozen=True, slots=True)
class Spread(Trigger):
    """The fires of another trigger, each moved by up to `jitter`, earlier or later."""

    calendar: Trigger
    jitter: timedelta
    name: str

    def resolved(self, anchor: datetime) -> Spread:
        return replace(self, calendar=self.calendar.resolved(anchor))

    def describe(self) -> str:
        return f"{self.calendar.describe()}, spread by up to {self.jitter.total_seconds():g} s"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "apscheduler",
            "kind": "spread",
            "jitter": self.jitter.total_seconds(),
            "name": self.name,
            "of": self.calendar.to_json(),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        # Less than the smallest distance of two fires: each can only change places with its neighbours.
        latest, waiting = moment, list[datetime]()
        for nominal in self.calendar.after(moment - self.jitter - ONE_MICROSECOND):
            heappush(waiting, nominal + self._offset(nominal))
            while waiting and waiting[0] <= nominal - self.jitter:
                if (fire := heappop(waiting)) > latest:
                    yield (latest := fire)
        for fire in sorted(waiting):
            if fire > latest:
                yield (latest := fire)

    def _offset(self, nominal: datetime) -> timedelta:
        digest = hashlib.sha256(f"{self.name}@{iso(nominal)}".encode()).digest()
        share = int.from_bytes(digest[:6]) / 2**48
        return (2 * share - 1) * self.jitter


# Clock rules; see fencepost.model.triggers.


def _shifted(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """APScheduler's: a skipped wall is read with the offset before the gap, a repeated one fires twice."""
    return (before, after) if before < after else (before,)


def _regular(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """A skipped wall does not fire, a repeated one fires in the first pass."""
    return (before,) if before < after else ()


@lru_cache(maxsize=1024)
def cron_engine(fields: tuple[str, ...]) -> Any:
    # In UTC it steps over walls, undisturbed by its own handling of zones.
    named = dict(zip(CRON_FIELDS, fields, strict=True))
    return cron_module.CronTrigger(**named, timezone=UTC, end_date=HORIZON)


def _months_later(day: date, months: int) -> date:
    """The same day of the month, `months` later; where a month lacks it, as many months on again."""
    if not months:
        return day
    for count in itertools.count(1):
        years, month = divmod(day.month - 1 + count * months, 12)
        try:
            return date(day.year + years, month + 1, day.day)
        except ValueError:
            if day.year + years > HORIZON.year:
                break
    return HORIZON.date()
