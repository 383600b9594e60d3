"""Schedules worked out a second time: a walk over every quarter of an hour, which shares no code with the product.

It reads the local clock at each step and remembers. Which fires there are follows from looking things up: the fields of
a cron expression, the days of a calendar, the walls of a recurrence rule. Nothing leaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

QUARTER = timedelta(minutes=15)
DAY = timedelta(days=1)


class Walk:
    """Every quarter of an hour in [begin, end), and what the clock of the zone showed. All clocks of our time change at
    one of them."""

    def __init__(self, zone: str, begin: datetime, end: datetime) -> None:
        tz = ZoneInfo(zone)
        self.instants: list[datetime] = []
        self.walls: list[datetime] = []
        moment = begin
        while moment < end:
            self.instants.append(moment)
            self.walls.append(moment.astimezone(tz).replace(tzinfo=None, fold=0))
            moment += QUARTER
        self.first_pass: dict[datetime, int] = {}
        self.skipped: dict[datetime, int] = {}
        """Walls that the clock skips, and where it goes on."""
        self.at_time: dict[tuple[int, int], list[int]] = {}
        self._remember()

    def _remember(self) -> None:
        latest = self.walls[0]
        for number, wall in enumerate(self.walls):
            self.first_pass.setdefault(wall, number)
            self.at_time.setdefault((wall.hour, wall.minute), []).append(number)
            missing = latest + QUARTER
            while missing < wall:
                self.skipped.setdefault(missing, number)
                missing += QUARTER
            latest = max(latest, wall)

    def fixed(self, walls: Iterable[datetime]) -> set[datetime]:
        """A skipped wall is where the gap ends, a repeated one in the first pass."""
        found = set()
        for wall in walls:
            number = self.first_pass.get(wall, self.skipped.get(wall))
            if number is not None:
                found.add(self.instants[number])
        return found

    def following(self, times: Iterable[tuple[int, int]]) -> dict[datetime, datetime]:
        """The instants at which the clock shows these hours and minutes, with their walls."""
        return {self.instants[number]: self.walls[number] for time in times for number in self.at_time[time]}

    def days(self) -> list[date]:
        """Also those that the zone has skipped."""
        first, last = self.walls[0].date(), self.walls[-1].date()
        return [first + timedelta(days=number) for number in range((last - first).days + 1)]

    def wall_of(self, instant: datetime) -> datetime:
        return self.walls[(instant - self.instants[0]) // QUARTER]


def moved(
    walk: Walk, fires: Iterable[datetime], closed: Callable[[date], bool], again: Callable[[datetime], bool]
) -> set[datetime]:
    """Each fire on the first day at whose same time it is open; `again`: closed at an instant, whatever the day."""
    found = set()
    for fire in fires:
        wall, instant = walk.wall_of(fire), fire
        while closed(walk.wall_of(instant).date()) or again(instant):
            wall += DAY
            number = walk.first_pass.get(wall, walk.skipped.get(wall))
            if number is None:
                break
            instant = walk.instants[number]
        else:
            found.add(instant)
    return found


def nth_weekday(day: date, nth: int, weekday: int) -> bool:
    """Whether it is the nth such weekday of its month; below zero from the end."""
    if day.weekday() != weekday:
        return False
    number = (day.day - 1) // 7 + 1
    from_end = 1
    while (day + timedelta(days=7 * from_end)).month == day.month:
        from_end += 1
    return number == nth or -from_end == nth


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
