"""What the old systems do, found in other ways than the import's own: a played cron daemon, walks minute by minute,
and the old libraries themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
LAST_YEAR = 2150
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


class CronLine:
    """The five fields as bit tables, as cron keeps them."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = text.lower().split()
        self.minutes = self.bits(minute, 0, 59)
        self.hours = self.bits(hour, 0, 23)
        self.days = self.bits(day, 1, 31)
        self.months = self.bits(month, 1, 12, {name: n + 1 for n, name in enumerate(MONTHS)})
        self.weekdays = self.bits(weekday, 0, 7, {name: n for n, name in enumerate(WEEKDAYS)})
        self.weekdays[0] = self.weekdays[7] = self.weekdays[0] or self.weekdays[7]
        self.day_star, self.weekday_star = day[0] == "*", weekday[0] == "*"
        self.wild = minute[0] == "*" or hour[0] == "*"

    @staticmethod
    def bits(text: str, low: int, high: int, names: dict[str, int] | None = None) -> list[bool]:
        table = [False] * 60
        for part in text.split(","):
            span, _, step = part.partition("/")
            first, dash, last = span.partition("-")
            begin = low if span == "*" else (names or {}).get(first) or int(first if first.isdigit() else 0)
            end = high if span == "*" else begin
            if dash:
                end = (names or {}).get(last) or int(last)
            for number in range(begin, end + 1, int(step or 1)):
                table[number] = True
        return table

    def on(self, day: date) -> bool:
        if not self.months[day.month]:
            return False
        in_month, in_week = self.days[day.day], self.weekdays[day.isoweekday()]
        return (in_month and in_week) if self.day_star or self.weekday_star else (in_month or in_week)

    def at(self, hour: int, minute: int) -> bool:
        return self.hours[hour] and self.minutes[minute]


def cron_daemon(text: str, tz: str, after: datetime) -> Iterator[datetime]:
    """Debian's daemon at work: each minute it compares the clock with the minutes it has done.

    If the clock ran ahead by less than three hours, jobs at fixed times of the minutes between start at once, and
    others only for the minute that it is. If it was put back, jobs at fixed times wait until it has caught up.
    """
    line, zone = CronLine(text), ZoneInfo(tz)
    done: datetime | None = None  # on the wall
    day = (after.astimezone(zone) - DAY).date()
    while day.year < LAST_YEAR:
        if not line.on(day) and not line.on(day - DAY):
            done = None
        elif (offset := _offset_of(day, zone)) is not None:
            done = None
            if line.on(day):
                yield from _regular_day(line, day, offset, after)
        else:
            for minute, wall in _minutes_of(day, zone):
                done = done or (minute - MINUTE).astimezone(zone).replace(tzinfo=None)
                if _starts(line, wall, done) and minute > after:
                    yield minute
                done = max(done, wall)
        day += DAY


@cache
def _offset_of(day: date, zone: ZoneInfo) -> timedelta | None:
    """The offset of a day on which, and around which, it does not change; else None."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - DAY
    offsets = {(begin + n * DAY / 2).astimezone(zone).utcoffset() for n in range(7)}
    return offsets.pop() if len(offsets) == 1 else None


@lru_cache(maxsize=200)
def _minutes_of(day: date, zone: ZoneInfo) -> list[tuple[datetime, datetime]]:
    """The minutes of a local day, in UTC and on the wall; midnight may be missing in the zone."""
    found, minute = [], datetime(day.year, day.month, day.day, tzinfo=UTC) - DAY
    while (wall := minute.astimezone(zone).replace(tzinfo=None)).date() <= day:
        if wall.date() == day:
            found.append((minute, wall))
        minute += MINUTE
    return found


def _starts(line: CronLine, wall: datetime, done: datetime) -> bool:
    now = line.on(wall.date()) and line.at(wall.hour, wall.minute)
    if line.wild:
        return now
    between = done + MINUTE
    while between <= wall:
        if line.on(between.date()) and line.at(between.hour, between.minute):
            return True
        between += MINUTE
    return False


def _regular_day(line: CronLine, day: date, offset: timedelta, after: datetime) -> Iterator[datetime]:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) - offset
    for hour in range(24):
        if line.hours[hour]:
            for minute in range(60):
                if (
                    line.minutes[minute]
                    and (fire := midnight + timedelta(hours=hour, minutes=minute)) > after
                ):
                    yield fire


def wall_walk(
    on: Callable[[date], bool], at: Callable[[int, int], bool], tz: str, after: datetime
) -> Iterator[datetime]:
    """Every real minute whose wall clock matches, as the controller of Kubernetes goes by."""
    zone = ZoneInfo(tz)
    times = [
        timedelta(hours=hour, minutes=minute)
        for hour in range(24)
        for minute in range(60)
        if at(hour, minute)
    ]
    day = after.astimezone(zone).date()
    while day.year < LAST_YEAR:
        if on(day):
            offset = _offset_of(day, zone)
            if offset is None:
                fires = [minute for minute, wall in _minutes_of(day, zone) if at(wall.hour, wall.minute)]
            else:
                midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) - offset
                fires = [midnight + time for time in times]
            yield from (fire for fire in fires if fire > after)
        day += DAY


def systemd_analyze(text: str, tz: str, after: datetime, count: int) -> list[datetime]:
    """systemd's own answer, where it is installed."""
    base = after.strftime("%Y-%m-%d %H:%M:%S UTC")
    command = ["systemd-analyze", "calendar", f"--iterations={count}", f"--base-time={base}", text]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"TZ": tz, "PATH": "/usr/bin:/bin"}
    )
    found = []
    for line in told.stdout.splitlines():
        label, _, moment = line.strip().partition(": ")
        if moment.endswith(" UTC") and (label == "(in UTC)" or label.startswith(("Next elapse", "Iter"))):
            found.append(datetime.strptime(moment, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC))
    return found[:count]


def first(fires: Iterator[datetime], count: int, until: datetime | None = None) -> list[datetime]:
    found = list(islice(fires, count))
    return found if until is None else [fire for fire in found if fire <= until]
