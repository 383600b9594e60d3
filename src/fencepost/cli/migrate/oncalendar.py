"""systemd's calendar expressions: `Mon..Fri *-*-* 09:00/15:00 Europe/Zurich`.

A time must match the day of the week, the date and the time of day. A time that the clock skips does not fire, and a
repeated one fires in the first pass, also of an expression that fires every minute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from fencepost import Trigger, cron
from fencepost.cli.migrate.fields import DAY, HOUR, MINUTE, MONTH, WEEKDAYS, both_days, compact
from fencepost.cli.migrate.fields import CronField as NumberField
from fencepost.cli.migrate.values import CannotCarryOver
from fencepost.cli.migrate.walk import Walls, first_pass

SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
}
SECOND = NumberField("second", 0, 59, {})
YEAR = NumberField("year", 1970, 2199, {})
DATE = re.compile(r"(?:(?P<year>[^-~]+)-)?(?P<month>[^-~]+)(?P<sign>[-~])(?P<day>[^-~]+)")


@dataclass(frozen=True)
class OnCalendar:
    """The numbers of each part. `days_to_last`: days counted from the end of the month, 1 is the last."""

    weekdays: Sequence[int]
    years: Sequence[int]
    months: Sequence[int]
    days: Sequence[int]
    days_to_last: Sequence[int]
    hours: Sequence[int]
    minutes: Sequence[int]
    seconds: Sequence[int]
    tz: str

    def calendar(self) -> Walls:
        weekdays, months, days = set(self.weekdays), set(self.months), set(self.days)
        years, to_last = set(self.years), set(self.days_to_last)

        def is_day(when: date) -> bool:
            from_end = (_first_of_next_month(when) - when).days
            in_month = from_end in to_last if to_last else when.day in days
            in_year = when.year in years or when.year > YEAR.high
            return in_year and when.month in months and in_month and when.isoweekday() % 7 in weekdays

        return Walls(self.seconds, self.minutes, self.hours, is_day, self.tz, first_pass)

    def trigger(self) -> Trigger:
        day, weekday = self._day_fields()
        minute, hour, month = (
            compact(self.minutes, MINUTE),
            compact(self.hours, HOUR),
            compact(self.months, MONTH),
        )
        fields = [minute, hour, day, month, weekday]
        if list(self.seconds) != [0]:
            fields.insert(0, compact(self.seconds, SECOND))
        start, end = year_bounds(self.years, YEAR, self.tz)
        return cron(" ".join(fields), tz=self.tz, start=start, end=end)

    def _day_fields(self) -> tuple[str, str]:
        if not self.days_to_last:
            return both_days(self.days, self.weekdays)
        if list(self.days_to_last) == [1] and len(self.weekdays) == 7:
            return "L", "*"
        if list(self.days_to_last) == list(range(1, 8)):
            return "*", ",".join(f"{number}L" for number in self.weekdays)
        raise CannotCarryOver(
            "days counted from the end of the month have no such cron expression",
            "use the last day (*-*~01) or a last weekday (Mon *-*~07/1), or let the job's code look at the date",
        )


def on_calendar(text: str, tz: str) -> OnCalendar:
    parts = SHORTHANDS.get(text.strip().lower(), text).split()
    if parts and (parts[-1] in ("UTC",) or parts[-1] in available_timezones()):
        tz = parts.pop()
    if len(parts) == 1 and parts[0].lower() in SHORTHANDS:  # `daily UTC`
        parts = SHORTHANDS[parts[0].lower()].split()
    weekdays: Sequence[int] = range(7)
    years: Sequence[int] = range(YEAR.low, YEAR.high + 1)
    months, days, to_last = list(range(1, 13)), list(range(1, 32)), list[int]()
    hours, minutes, seconds = [0], [0], [0]
    if not parts or text.startswith("@"):
        raise _not_understood(text)
    for part in parts:
        if part[0].isalpha():
            weekdays = _weekdays(part)
        elif ":" in part:
            hours, minutes, seconds = _time(part, text)
        elif found := DATE.fullmatch(part):
            years = _chain(found["year"] or "*", YEAR)
            months = _chain(found["month"], MONTH)
            if found["sign"] == "~":
                to_last = _from_end(found["day"])
            else:
                days = _chain(found["day"], DAY)
        else:
            raise _not_understood(text)
    return OnCalendar(weekdays, years, months, days, to_last, hours, minutes, seconds, tz)


def year_bounds(years: Sequence[int], field: NumberField, tz: str) -> tuple[datetime | None, datetime | None]:
    """`start` and `end` for years that follow each other; no cron expression has a field for them."""
    if not years or list(years) != list(range(years[0], years[-1] + 1)):
        raise CannotCarryOver(
            "years with gaps between them have no cron expression", "write one job per stretch of years"
        )
    zone = ZoneInfo(tz)
    start = datetime(years[0], 1, 1, tzinfo=zone) if years[0] > field.low else None
    end = (
        datetime(years[-1] + 1, 1, 1, tzinfo=zone) - timedelta(seconds=1) if years[-1] < field.high else None
    )
    return start and start.astimezone(UTC), end and end.astimezone(UTC)


def _weekdays(text: str) -> list[int]:
    found: set[int] = set()
    for part in text.rstrip(",").split(","):
        first, dots, last = part.replace("-", "..").partition("..")
        low = _weekday(first)
        high = _weekday(last) if dots else low
        if high < low:
            raise CannotCarryOver(
                f"{part!r} goes over the end of the week, which systemd refuses", "write Sat,Sun,Mon"
            )
        found.update(number % 7 for number in range(low, high + 1))
    return sorted(found)


def _weekday(text: str) -> int:
    """Monday is 1 and Sunday 7."""
    number = WEEKDAYS.get(text.lower()[:3])
    if number is None or text.lower() not in DAY_NAMES:
        raise CannotCarryOver(
            f"{text!r} is no day of the week", "write Mon, Tue, …, or a zone that is known here"
        )
    return number or 7


DAY_NAMES = {
    name[:length]
    for name in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for length in (3, len(name))
}


def _time(text: str, whole: str) -> tuple[list[int], list[int], list[int]]:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise _not_understood(whole)
    seconds = parts[2] if len(parts) == 3 else "00"
    if "." in seconds.replace("..", ""):
        raise CannotCarryOver("fractions of a second have no cron expression", "round to whole seconds")
    return _chain(parts[0], HOUR), _chain(parts[1], MINUTE), _chain(seconds, SECOND)


def _chain(text: str, field: NumberField) -> list[int]:
    """`*`, `1,5..9`, `00/15`, `8..18/2`."""
    if text == "*":
        return list(range(field.low, field.high + 1))
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dots, last = span.partition("..")
        low = field.number(first)
        high = field.number(last) if dots else field.high if slash else low
        stride = SECOND.number(step) if slash else 1
        if high < low or stride < 1:
            raise CannotCarryOver(f"{part!r} is no range", "write it like 8..18/2")
        found.update(range(low, high + 1, stride))
    return sorted(found)


def _from_end(text: str) -> list[int]:
    """`~03` is the third last day; `~07/1` are the last seven."""
    span, slash, step = text.partition("/")
    first = DAY.number(span)
    return sorted(range(first, 0, -DAY.number(step))) if slash else [first]


def _first_of_next_month(when: date) -> date:
    return (when.replace(day=28) + timedelta(days=4)).replace(day=1)


def _not_understood(text: str) -> CannotCarryOver:
    return CannotCarryOver(
        f"{text[:60]!r} is no calendar expression of days and times", "write it like Mon..Fri *-*-* 09:00:00"
    )
