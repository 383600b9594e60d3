"""`every`: a fixed grid in elapsed time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import Trigger
from fencepost.model.triggers.times import (
    LATEST,
    ONE_MICROSECOND,
    as_utc,
    bounds,
    check_keys,
    declared,
    describe_bounds,
    in_words,
    moment_from_json,
    moments_to_json,
)

SHORTEST_INTERVAL = timedelta(milliseconds=10)
LONGEST_INTERVAL = timedelta(days=3653)  # ten years


def every(
    interval: timedelta | None = None,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> Every:
    """A fixed grid, start to start, in absolute time: `every(minutes=5)`.

    Fires at anchor + interval, anchor + 2 * interval, … as far as they lie in [start, end]. Daylight saving
    does not matter: an hour is 3600 seconds. Without `anchor` the store sets one when the job is first
    declared, and keeps it.
    """
    parts = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    length = _interval(interval, {unit: amount for unit, amount in parts.items() if amount != 0})
    start, end = bounds(start, end)
    return Every(length, None if anchor is None else declared(anchor, "anchor"), start, end)


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Made by `every`."""

    interval: timedelta
    anchor: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None

    def count_after(self, moment: datetime, until: datetime) -> int:
        first = self._grid_points_until(self._not_before_start(as_utc(moment, "moment")))
        last = self._grid_points_until(min(as_utc(until, "until"), self.end or LATEST))
        return max(0, last - first)

    def resolved(self, anchor: datetime) -> Every:
        if self.anchor is not None:
            return self
        return replace(self, anchor=declared(anchor, "anchor").replace(microsecond=0))

    def describe(self) -> str:
        return f"every {in_words(self.interval)}{describe_bounds(self.start, self.end)}"

    def to_json(self) -> dict[str, Any]:
        microseconds = self.interval // ONE_MICROSECOND
        whole = microseconds % 1_000_000 == 0
        length = {"seconds": microseconds // 1_000_000} if whole else {"microseconds": microseconds}
        moments = moments_to_json(anchor=self.anchor, start=self.start, end=self.end)
        return {"type": "every", **length, **moments}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        origin, end = self._origin(), self.end or LATEST
        next_point = self._grid_points_until(self._not_before_start(moment)) + 1
        fires = (origin + point * self.interval for point in itertools.count(next_point))
        return itertools.takewhile(lambda fire: fire <= end, fires) if moment < end else iter(())

    def _grid_points_until(self, moment: datetime) -> int:
        # timedelta // timedelta is exact integer arithmetic: no drift, however far from the anchor.
        return max(0, (moment - self._origin()) // self.interval)

    def _not_before_start(self, moment: datetime) -> datetime:
        return moment if self.start is None else max(moment, self.start - ONE_MICROSECOND)

    def _origin(self) -> datetime:
        if self.anchor is None:
            raise ConfigurationError(
                f"{self.describe()!r} has no anchor yet: the store sets it when the job is declared; "
                "call resolved(anchor) or give every(…, anchor=…) to use the trigger by itself."
            )
        return self.anchor


def _interval(interval: timedelta | None, parts: dict[str, float]) -> timedelta:
    if interval is not None and not isinstance(interval, timedelta):
        raise ConfigurationError(f"{interval!r} is not a timedelta; name its unit, e.g. every(seconds=30).")
    if interval is not None and parts:
        raise ConfigurationError(f"every() got {interval!r} and {parts}; give either a timedelta or units.")
    try:
        length = timedelta(**parts) if interval is None else interval
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"{parts} is not a duration; give numbers, e.g. every(minutes=5).") from None
    if not SHORTEST_INTERVAL <= length <= LONGEST_INTERVAL:
        raise ConfigurationError(
            f"an interval of {length} does not work; give one from 10 ms to ten years, e.g. every(minutes=5)."
        )
    return length


def every_from_json(value: Mapping[str, Any]) -> Every:
    unit = "microseconds" if "microseconds" in value else "seconds"
    check_keys(value, [unit], ["anchor", "start", "end"])
    amount = value[unit]
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise ConfigurationError(f"{unit} {amount!r} is not an integer; write whole {unit}.")
    try:
        interval = timedelta(**{unit: amount})
    except OverflowError:
        raise ConfigurationError(f"{unit} {amount!r} is too long; give at most ten years.") from None
    anchor, start, end = (moment_from_json(value, name) for name in ("anchor", "start", "end"))
    return every(interval, anchor=anchor, start=start, end=end)
