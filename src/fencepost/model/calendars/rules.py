"""Recurrence rules (RFC 5545) over walls; see `fencepost.model.triggers.walls` for what a wall is.

Rules of weeks, months and years are followed by python-dateutil. It counts every rule from its first occurrence on;
here a rule is entered at the period in question, in step with the first. Where nothing matches it searches until the
year 9999: that is a fraction of a second for these, but many seconds for rules of days and less. Those are followed
here (`periods.py`), with bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import dropwhile, islice
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.calendars.periods import Periods

LONGEST_TEXT = 500
MOST_TIMES = 10_000
"""The largest COUNT."""
FREQUENCIES = (
    "YEARLY",
    "MONTHLY",
    "WEEKLY",
    "DAILY",
    "HOURLY",
    "MINUTELY",
    "SECONDLY",
)  # numbered as dateutil does
YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY = range(7)
MOST_PERIODS = (10, 120, 520, 3_653, 87_672, 5_260_320, 315_619_200)
"""The largest INTERVAL of each: ten years."""
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
NUMBERS = {  # keyword of dateutil, lowest, highest; and whether the same below zero counts from the end
    "BYMONTH": ("bymonth", 1, 12, False),
    "BYMONTHDAY": ("bymonthday", 1, 31, True),
    "BYYEARDAY": ("byyearday", 1, 366, True),
    "BYWEEKNO": ("byweekno", 1, 53, True),
    "BYHOUR": ("byhour", 0, 23, False),
    "BYMINUTE": ("byminute", 0, 59, False),
    "BYSECOND": ("bysecond", 0, 59, False),
    "BYSETPOS": ("bysetpos", 1, 366, True),
}
KNOWN = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *NUMBERS)
END = datetime(9000, 1, 1, tzinfo=UTC)

WallOf = Callable[[datetime], datetime]
"""What the clock of the rule's zone shows at an instant."""


@dataclass(frozen=True)
class RecurrenceRule:
    text: str
    first: datetime
    """The wall from which it counts: the earliest that it can have."""
    freq: int
    interval: int
    week_starts: int
    by: Mapping[str, Any]
    """dateutil's keywords, with what the first wall implies."""
    count: int | None
    until: datetime | None

    @property
    def within_days(self) -> bool:
        """Whether it may recur several times a day by elapsed periods, not at times of day."""
        return self.freq >= HOURLY

    @cached_property
    def last(self) -> datetime:
        """The wall after which there is none."""
        end = END if self.until is None else min(self.until, END)
        if self.count is None:
            return end
        counted = list(islice(self._walls(self.first, end), self.count))
        return counted[-1] if counted else self.first - timedelta(seconds=1)

    def walls_after(self, wall: datetime) -> Iterator[datetime]:
        """In order; a few at or before the given one may be among them."""
        return self._walls(wall, self.last)

    def _walls(self, wall: datetime, last: datetime) -> Iterator[datetime]:
        period = self._period_of(max(wall, self.first))
        if self.freq >= DAILY:
            found = Periods(self.freq - DAILY, self._step, self.by).walls(period, last)
        else:
            found = iter(self._engine(period, last))
        return dropwhile(lambda each: each < self.first, found)

    def _engine(self, start: datetime, until: datetime) -> Any:
        from dateutil.rrule import rrule

        return rrule(
            self.freq,
            dtstart=start,
            until=until,
            interval=self.interval,
            wkst=self.week_starts,
            **self.by,
        )

    def _period_of(self, wall: datetime) -> datetime:
        """The start of the last period at or before the wall that is in step with the first."""
        first, interval = self.first, self.interval
        if self.freq <= MONTHLY:
            months = interval * (12 if self.freq == YEARLY else 1)
            origin = first.year * 12 + (first.month - 1 if self.freq == MONTHLY else 0)
            month = origin + (wall.year * 12 + wall.month - 1 - origin) // months * months
            return datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        if self.freq <= DAILY:
            start = first.replace(hour=0, minute=0, second=0)
            if self.freq == WEEKLY:  # BYSETPOS counts in the whole week
                start -= timedelta(days=(first.weekday() - self.week_starts) % 7)
        else:
            start = first.replace(
                minute=0 if self.freq == HOURLY else first.minute,
                second=first.second if self.freq == SECONDLY else 0,
            )
        return start + (wall - start) // self._step * self._step

    @property
    def _step(self) -> timedelta:
        """From one period to the next; of months and years there is none."""
        return self.interval * timedelta(seconds=(604_800, 86_400, 3_600, 60, 1)[self.freq - WEEKLY])


@lru_cache(maxsize=1024)
def parsed(text: str, first: datetime, wall_of: WallOf) -> RecurrenceRule:
    """`first`: a wall in whole seconds. Everything of the text is checked."""
    try:
        import dateutil.rrule  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "recurrence rules need python-dateutil: pip install 'fencepost[calendars]'"
        ) from None
    parts = _parts(text)
    freq = _frequency(parts, text)
    interval = _number(parts.get("INTERVAL", "1"), "INTERVAL", 1, MOST_PERIODS[freq])
    count = _number(parts["COUNT"], "COUNT", 1, MOST_TIMES) if "COUNT" in parts else None
    until = _until(parts["UNTIL"], wall_of) if "UNTIL" in parts else None
    if count is not None and until is not None:
        raise ConfigurationError(f"{text!r} has COUNT and UNTIL; give one of them.")
    week_starts = parts.get("WKST", "MO")
    if week_starts not in DAYS:
        raise ConfigurationError(f"WKST={week_starts} is not a day; use one of {', '.join(DAYS)}.")
    by = {
        keyword: _numbers(parts[name], name, low, high, from_end)
        for name, (keyword, low, high, from_end) in NUMBERS.items()
        if name in parts
    }
    if "BYDAY" in parts:
        by["byweekday"] = _weekdays(parts["BYDAY"], freq, "BYWEEKNO" in parts)
    if "byweekno" in by and freq != YEARLY:
        raise ConfigurationError("BYWEEKNO goes with FREQ=YEARLY only.")
    by = {**_implied(freq, by, first), **by}
    rule = RecurrenceRule(text, first, freq, interval, DAYS.index(week_starts), by, count, until)
    return _possible(rule)


def _parts(text: object) -> dict[str, str]:
    if not isinstance(text, str) or not text or len(text) > LONGEST_TEXT:
        raise ConfigurationError(
            f'{str(text)[:50]!r} is not a recurrence rule; give a text like "FREQ=MONTHLY;BYDAY=-1FR".'
        )
    parts: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if not equals or name not in KNOWN or name in parts:
            problem = "twice" if name in parts else "not known"
            raise ConfigurationError(
                f"{part!r} in {text!r} is {problem}; use each of {', '.join(KNOWN)} once."
            )
        parts[name] = value
    return parts


def _frequency(parts: Mapping[str, str], text: str) -> int:
    if parts.get("FREQ") not in FREQUENCIES:
        raise ConfigurationError(f"{text!r} has no FREQ that is known; use one of {', '.join(FREQUENCIES)}.")
    return FREQUENCIES.index(parts["FREQ"])


def _number(text: str, name: str, low: int, high: int, from_end: bool = False) -> int:
    number = int(text) if re.fullmatch(r"[+-]?\d{1,9}", text) else None
    if number is None or not (low <= number <= high or (from_end and low <= -number <= high)):
        raise ConfigurationError(f"{name}={text} does not fit; use {'±' if from_end else ''}{low} to {high}.")
    return number


def _numbers(text: str, name: str, low: int, high: int, from_end: bool) -> tuple[int, ...]:
    return tuple(sorted({_number(each, name, low, high, from_end) for each in text.split(",")}))


def _weekdays(text: str, freq: int, by_week: bool) -> tuple[Any, ...]:
    from dateutil.rrule import weekday

    found = []
    for each in text.split(","):
        parts = re.fullmatch(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", each)
        if parts is None:
            raise ConfigurationError(f"BYDAY={each} is not a day; write MO, 2TU or -1FR.")
        number = None if parts[1] is None else _number(parts[1], "BYDAY", 1, 53, from_end=True)
        if number is not None and (freq > MONTHLY or by_week):
            raise ConfigurationError(
                f"BYDAY={each}: a number goes with FREQ=MONTHLY or YEARLY only, without BYWEEKNO."
            )
        found.append(weekday(DAYS.index(parts[2]), number))
    return tuple(found)


def _until(text: str, wall_of: WallOf) -> datetime:
    found = re.fullmatch(r"(\d{8}T\d{6})(Z)?", text)
    if found is None:
        raise ConfigurationError(f"UNTIL={text} is not a time; write it like 20271231T235959Z.")
    try:
        moment = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        return wall_of(moment) if found[2] else moment
    except (ValueError, OverflowError):
        raise ConfigurationError(f"UNTIL={text} is not a time that exists.") from None


def _implied(freq: int, by: Mapping[str, Any], first: datetime) -> dict[str, Any]:
    """What is not said is as in the first occurrence."""
    implied: dict[str, Any] = {}
    if not by.keys() & {"byweekno", "byyearday", "bymonthday", "byweekday"}:
        if freq == YEARLY:
            implied |= {"bymonth": first.month, "bymonthday": first.day}
        elif freq == MONTHLY:
            implied["bymonthday"] = first.day
        elif freq == WEEKLY:
            implied["byweekday"] = first.weekday()
    if freq < HOURLY:
        implied["byhour"] = first.hour
    if freq < MINUTELY:
        implied["byminute"] = first.minute
    if freq < SECONDLY:
        implied["bysecond"] = first.second
    return implied


def _possible(rule: RecurrenceRule) -> RecurrenceRule:
    """Refuses a rule without occurrences, and one whose occurrences are too rare to be searched for by its FREQ."""
    try:
        found = list(islice(rule.walls_after(rule.first), 3))
    except (ValueError, OverflowError) as problem:
        raise ConfigurationError(f"{rule.text!r} cannot be followed: {problem}; correct it.") from None
    if len(found) < 3 and not (found and rule.last < END):
        number = "too few occurrences to be searched for" if found else "no occurrence"
        raise ConfigurationError(
            f"{rule.text!r} has {number}; correct its BY parts, or write rare days with FREQ=YEARLY."
        )
    return rule
