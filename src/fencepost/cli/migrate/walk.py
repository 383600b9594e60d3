"""The fires of old systems: a walk over days and times of day, without any cron engine.

This is a second reading, on purpose independent of `fencepost.model.triggers`: what the two disagree on is what the
import reports. A system is told apart by how it picks days and by its *clock rule*: which instants stand for the
times of a day on which the zone's clock changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

LAST_YEAR = 2150
"""No walk goes beyond: what has not fired by then is not compared."""
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)

ClockRule = Callable[[Iterable[datetime], ZoneInfo], Iterator[datetime]]
"""From the naive wall times of one day, in order, to instants in UTC, in any order."""


@dataclass(frozen=True)
class Walls:
    """Times of day on days that match, in a zone."""

    seconds: Sequence[int]
    minutes: Sequence[int]
    hours: Sequence[int]
    is_day: Callable[[date], bool]
    tz: str
    rule: ClockRule
    start: datetime | None = None
    end: datetime | None = None

    @property
    def per_day(self) -> int:
        return len(self.seconds) * len(self.minutes) * len(self.hours)

    def after(self, moment: datetime) -> Iterator[datetime]:
        zone = ZoneInfo(self.tz)
        first = moment if self.start is None else max(moment, self.start - timedelta(microseconds=1))
        day, last = (first.astimezone(zone) - DAY).date(), first
        while day.year <= LAST_YEAR:
            if self.is_day(day):
                for fire in self._on(day, zone):
                    if self.end is not None and fire > self.end:
                        return
                    if fire > last:
                        last = fire
                        yield fire
            day += DAY

    def _on(self, day: date, zone: ZoneInfo) -> Iterable[datetime]:
        walls = (
            datetime.combine(day, time(hour, minute, second))
            for hour in self.hours
            for minute in self.minutes
            for second in self.seconds
        )
        midnight = datetime.combine(day, time(), zone)
        offsets = {(midnight + DAY * part / 4).utcoffset() for part in range(5)}
        if len(offsets) == 1:
            return ((wall.replace(tzinfo=zone)).astimezone(UTC) for wall in walls)
        return sorted(set(self.rule(walls, zone)))


@dataclass(frozen=True)
class Grid:
    """Fixed distances from one moment on."""

    interval: timedelta
    anchor: datetime | None = None
    """None: the old system counts from an event that the file does not know, so the grid starts at the moment of
    asking."""
    end: datetime | None = None

    def after(self, moment: datetime) -> Iterator[datetime]:
        anchor = (self.anchor or moment.replace(microsecond=0)).astimezone(UTC)
        fire = anchor + max(0, (moment - anchor) // self.interval) * self.interval
        while fire.year <= LAST_YEAR and (self.end is None or fire <= self.end):
            if fire > moment and fire > anchor:
                yield fire
            fire += self.interval


@dataclass(frozen=True)
class WallGrid:
    """Fixed distances on the wall clock, each from the last fire: how Celery's beat adds an interval. An hour that the
    clock repeats counts once, one that it skips counts as well."""

    interval: timedelta
    tz: str
    anchor: datetime | None = None
    end: datetime | None = None

    def after(self, moment: datetime) -> Iterator[datetime]:
        zone = ZoneInfo(self.tz)
        fire = self.anchor or moment.replace(microsecond=0)
        passed = moment.astimezone(zone).replace(tzinfo=None) - fire.astimezone(zone).replace(tzinfo=None)
        if passed > self.interval:  # not step by step from long ago
            begun = fire.astimezone(zone).replace(tzinfo=None)
            fire = _instant(begun + (passed // self.interval - 1) * self.interval, zone)
        while fire.year <= LAST_YEAR:
            wall = fire.astimezone(zone).replace(tzinfo=None) + self.interval
            fire = _instant(wall, zone)
            if self.end is not None and fire > self.end:
                return
            if fire > moment:
                yield fire


@dataclass(frozen=True)
class Moments:
    moments: Sequence[datetime]

    def after(self, moment: datetime) -> Iterator[datetime]:
        return (found for found in sorted(self.moments) if found > moment)


# Clock rules.


def every_pass(walls: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """A skipped time does not fire, a repeated one fires in both passes. Kubernetes, and cron's jobs with a star."""
    for wall in walls:
        for fold in (0, 1):
            if not _skipped(wall, zone):
                yield _instant(wall, zone, fold)


def first_pass(walls: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """A skipped time does not fire, a repeated one fires in the first pass. systemd."""
    return (_instant(wall, zone) for wall in walls if not _skipped(wall, zone))


def after_the_gap(walls: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """A skipped time fires when the gap ends, a repeated one in the first pass. cron's jobs at fixed times."""
    return (_end_of_gap(wall, zone) if _skipped(wall, zone) else _instant(wall, zone) for wall in walls)


def shifted(walls: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """A skipped time fires as much later as the clock was advanced, a repeated one in both passes. APScheduler."""
    for wall in walls:
        yield _instant(wall, zone)
        if not _skipped(wall, zone):
            yield _instant(wall, zone, fold=1)


def next_wall(walls: Iterable[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """Celery's beat asks for the next wall time after the wall time of the last run: a skipped time fires as much
    later as the clock was advanced, and covers the times until then; a repeated one fires in the first pass."""
    shown = datetime.min  # noqa: DTZ901
    for wall in walls:
        if wall > shown:
            fire = _instant(wall, zone)
            shown = fire.astimezone(zone).replace(tzinfo=None)
            yield fire


def _instant(wall: datetime, zone: ZoneInfo, fold: int = 0) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _skipped(wall: datetime, zone: ZoneInfo) -> bool:
    return _instant(wall, zone).astimezone(zone).replace(tzinfo=None) != wall


def _end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Minute by minute from before the change; clocks change at whole minutes."""
    minute = _instant(wall, zone, fold=1).replace(second=0)
    offset = minute.astimezone(zone).utcoffset()
    while minute.astimezone(zone).utcoffset() == offset:
        minute += MINUTE
    return minute
