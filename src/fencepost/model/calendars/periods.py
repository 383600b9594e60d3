"""Recurrence rules of days, hours, minutes and seconds: which periods match, and what is in them.

The BY parts of days only filter here. From a period that does not match the search leaps to where the day, hour or
minute that does not fit is over.
"""

from __future__ import annotations

from calendar import isleap, monthrange
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any

MOST_LEAPS = 20_000
"""In a row, without an occurrence: half a century of days, two years of hours."""
DAYS, HOURS, MINUTES, SECONDS = range(4)


@dataclass(frozen=True)
class Periods:
    unit: int
    step: timedelta
    by: Mapping[str, Any]
    """As dateutil's keywords."""

    def walls(self, start: datetime, last: datetime) -> Iterator[datetime]:
        """The occurrences from the period that begins at `start` on, in order."""
        leaps = 0
        while start <= last and leaps < MOST_LEAPS:
            following, leaps = self._over_at(start), leaps + 1
            if following is not None:
                start += -((start - following) // self.step) * self.step  # in step, at or after it
                continue
            for found in self._chosen(start):
                if found > last:
                    return
                leaps = 0
                yield found
            start += self.step

    def _over_at(self, start: datetime) -> datetime | None:
        """When that is over which keeps the period from matching; None: it matches."""
        if not self._day_matches(start):
            return start.replace(hour=0, minute=0, second=0) + timedelta(days=1)
        if self.unit >= HOURS and not self._has("byhour", start.hour):
            return start.replace(minute=0, second=0) + timedelta(hours=1)
        if self.unit >= MINUTES and not self._has("byminute", start.minute):
            return start.replace(second=0) + timedelta(minutes=1)
        if self.unit == SECONDS and not self._has("bysecond", start.second):
            return start + timedelta(seconds=1)
        return None

    def _day_matches(self, day: datetime) -> bool:
        by = self.by
        if "bymonth" in by and day.month not in _several(by["bymonth"]):
            return False
        if "byweekday" in by and day.weekday() not in {each.weekday for each in by["byweekday"]}:
            return False
        length = monthrange(day.year, day.month)[1]
        if "bymonthday" in by and not {day.day, day.day - length - 1} & set(_several(by["bymonthday"])):
            return False
        if "byyearday" in by:
            number = day.timetuple().tm_yday
            return bool({number, number - 366 - isleap(day.year)} & set(by["byyearday"]))
        return True

    def _chosen(self, start: datetime) -> list[datetime]:
        """What the period holds; with BYSETPOS some of it, counted from its start or end."""
        hours = self._all("byhour") if self.unit == DAYS else [start.hour]
        minutes = self._all("byminute") if self.unit <= HOURS else [start.minute]
        seconds = self._all("bysecond") if self.unit <= MINUTES else [start.second]
        found = [
            start.replace(hour=hour, minute=minute, second=second)
            for hour, minute, second in product(hours, minutes, seconds)
        ]
        if "bysetpos" not in self.by:
            return found
        places = {place - 1 if place > 0 else len(found) + place for place in self.by["bysetpos"]}
        return [found[place] for place in sorted(places) if 0 <= place < len(found)]

    def _has(self, name: str, value: int) -> bool:
        return name not in self.by or value in _several(self.by[name])

    def _all(self, name: str) -> list[int]:
        return sorted(_several(self.by[name]))


def _several(given: Any) -> Collection[int]:
    return (given,) if isinstance(given, int) else given
