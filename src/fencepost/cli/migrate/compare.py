"""The next fires, old and new, and what happens when the clock changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from fencepost.cli.migrate.values import Carried, OldCalendar
from fencepost.cli.migrate.walk import LAST_YEAR, Walls

NEAR = timedelta(hours=3)
"""How far from a change of the clock its effects can lie."""
AHEAD = timedelta(days=366)
"""The clock changes of this long are looked at."""
MOST_PER_DAY = 8000
"""Jobs that fire more often are not compared around changes of the clock."""
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class FireDifference:
    """Fires of one system that the other does not have."""

    only_old: tuple[datetime, ...]
    only_new: tuple[datetime, ...]

    def __bool__(self) -> bool:
        return bool(self.only_old or self.only_new)

    @classmethod
    def of(cls, old: Iterable[datetime], new: Iterable[datetime]) -> FireDifference:
        was, becomes = set(old), set(new)
        return cls(tuple(sorted(was - becomes)), tuple(sorted(becomes - was)))


@dataclass(frozen=True)
class Comparison:
    """Of one job."""

    old: tuple[datetime, ...]
    new: tuple[datetime, ...]
    difference: FireDifference
    """Among the next fires, apart from what a change of the clock explains."""
    at_changes: FireDifference
    """Around the changes of the clock within a year, and those that the next fires meet."""


def compare(job: Carried, after: datetime, count: int) -> Comparison:
    """The next `count` fires of both, as far as both are known, and those around the next changes of the clock."""
    trigger, zone = job.trigger.resolved(after), ZoneInfo(job.tz)
    old, new = _next(job.old, after, count), _next(trigger, after, count)
    ahead = FireDifference.of(*_common(old, new, count))
    near = [
        FireDifference.of(_around(job.old, change), _around(trigger, change))
        for change in (_clock_changes(zone, after) if _meets_changes(job.old) else ())
    ]

    def pick(fires: Iterable[datetime], at_change: bool) -> set[datetime]:
        return {fire for fire in fires if fire > after and _clock_changes_near(fire, zone) == at_change}

    only_old = [*ahead.only_old, *(fire for part in near for fire in part.only_old)]
    only_new = [*ahead.only_new, *(fire for part in near for fire in part.only_new)]
    return Comparison(
        old,
        new,
        FireDifference.of(pick(ahead.only_old, False), pick(ahead.only_new, False)),
        FireDifference.of(pick(only_old, True), pick(only_new, True)),
    )


def _next(calendar: OldCalendar, after: datetime, count: int) -> tuple[datetime, ...]:
    return tuple(takewhile(lambda fire: fire.year <= LAST_YEAR, islice(calendar.after(after), count)))


def _common(
    old: tuple[datetime, ...], new: tuple[datetime, ...], count: int
) -> tuple[Iterable[datetime], Iterable[datetime]]:
    """Both up to where the shorter list ends; a list shorter than `count` has no more."""
    ends = [fires[-1] for fires in (old, new) if len(fires) == count]
    if not ends:
        return old, new
    return (
        takewhile(lambda fire: fire <= min(ends), old),
        takewhile(lambda fire: fire <= min(ends), new),
    )


def _around(calendar: OldCalendar, change: datetime) -> list[datetime]:
    return list(takewhile(lambda fire: fire <= change + NEAR, calendar.after(change - NEAR)))


def _meets_changes(calendar: OldCalendar) -> bool:
    return isinstance(calendar, Walls) and calendar.per_day <= MOST_PER_DAY


@lru_cache(maxsize=100)
def _clock_changes(zone: ZoneInfo, after: datetime) -> list[datetime]:
    """Hour by hour: the windows around them are wider than that."""
    hour = after.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [hour + number * HOUR for number in range(AHEAD // HOUR)]
    offsets = [hour.astimezone(zone).utcoffset() for hour in hours]
    return [later for later, (a, b) in zip(hours[1:], pairwise(offsets), strict=True) if a != b]


def _clock_changes_near(fire: datetime, zone: ZoneInfo) -> bool:
    return (fire - NEAR).astimezone(zone).utcoffset() != (fire + NEAR).astimezone(zone).utcoffset()
