"""What closes a calendar, from all its sources: gathered, checked and bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError
from fencepost.model.triggers.times import declared, iso

MOST_DAYS = 4_000
MOST_BLACKOUTS = 1_000
MOST_YEARS = 50
YEARS_AHEAD = 10
LONGEST_BLACKOUT = timedelta(days=366)
LONGEST_REASON = 200
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

Dates = Mapping[Any, str] | Iterable[Any]


class Blackout(NamedTuple):
    """From `start` to before `end`."""

    start: datetime
    end: datetime
    why: str


class Closures:
    """What is gathered from the sources; later ones name a day anew."""

    def __init__(self) -> None:
        self.days: dict[date, str] = {}
        self.windows: list[Blackout] = []

    def add_holidays(self, code: str, years: range, language: str | None) -> None:
        from fencepost.model.calendars.library import public_holidays

        self.days |= public_holidays(code, years, language)

    def add_file(self, path: Path, years: range, tz: str | None) -> None:
        from fencepost.model.calendars.icalendar import closed_times

        days, windows = closed_times(path, years, tz)
        self.days |= {day: name or path.stem for day, name in days.items()}
        self.windows += [Blackout(start, end, why or path.stem) for start, end, why in windows]

    def add_dates(self, given: Dates, years: range) -> bool:
        """Whether some of them recur every year."""
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigurationError(
                f'dates={given!r} are not dates; give {{"2026-12-24": "Christmas Eve"}}.'
            )
        named = given.items() if isinstance(given, Mapping) else ((each, "") for each in given)
        yearly = False
        for key, name in named:
            recurs, days = _days(key, years)
            yearly = yearly or recurs
            self.days |= dict.fromkeys(days, name or f"{key}")
            if len(self.days) > MOST_DAYS:
                raise ConfigurationError(f"a calendar has at most {MOST_DAYS} closed days; give fewer years.")
        return yearly

    def add_blackouts(self, given: Iterable[Any]) -> None:
        for each in given:
            self.windows.append(_blackout(each))


def several(given: Any) -> Sequence[Any]:
    return [given] if isinstance(given, str | Path) else list(given)


def years_of(given: Any) -> range:
    if given is None:
        year = SystemClock().wall().year
        return range(year - year % 5, year - year % 5 + 5 + YEARS_AHEAD)
    if (
        not isinstance(given, tuple)
        or len(given) != 2
        or not all(type(year) is int and 1900 < year < 8999 for year in given)
        or not 0 <= given[1] - given[0] < MOST_YEARS
    ):
        raise ConfigurationError(
            f"years={given!r} does not fit; give the first and the last, as (2025, 2039)."
        )
    return range(given[0], given[1] + 1)


def _days(key: Any, years: range) -> tuple[bool, list[date]]:
    """A date, the first and last of several (2026-12-24/2027-01-02), or a day of every year (12-24)."""
    if isinstance(key, date) and not isinstance(key, datetime):
        return False, [key]
    try:
        if isinstance(key, str) and re.fullmatch(r"\d\d-\d\d", key):
            date.fromisoformat(f"2000-{key}")
            leap = key == "02-29"
            return True, [date.fromisoformat(f"{year}-{key}") for year in years if not leap or _is_leap(year)]
        first, _, last = key.partition("/")
        begin, end = date.fromisoformat(first), date.fromisoformat(last or first)
        if not 0 <= (end - begin).days <= LONGEST_BLACKOUT.days:
            raise ValueError("it ends before it begins, or lasts more than a year")
    except (AttributeError, TypeError, ValueError) as problem:
        raise ConfigurationError(
            f"{key!r} is not a date ({problem}); write 2026-12-24, 2026-12-24/2027-01-02 or 12-24."
        ) from None
    return False, [begin + timedelta(days=number) for number in range((end - begin).days + 1)]


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _blackout(given: Any) -> Blackout:
    if isinstance(given, Mapping):
        given = (given.get("from"), given.get("until"), given.get("why", "blackout"))
    if not isinstance(given, Sequence) or len(given) not in (2, 3):
        raise ConfigurationError(
            f"{given!r} is not a blackout; give (start, end, why), or from, until and why."
        )
    start, end = declared(given[0], "start of a blackout"), declared(given[1], "end of a blackout")
    if not timedelta(0) < end - start <= LONGEST_BLACKOUT:
        raise ConfigurationError(
            f"a blackout from {iso(start)} to {iso(end)} does not work; end it after it starts, within a year."
        )
    return Blackout(start, end, _checked_reason(given[2] if len(given) == 3 else "blackout"))


def disjoint(windows: list[Blackout]) -> tuple[Blackout, ...]:
    """In order; where two overlap, the later one begins with the end of the earlier."""
    if len(windows) > MOST_BLACKOUTS:
        raise ConfigurationError(
            f"a calendar has at most {MOST_BLACKOUTS} blackouts; give fewer years or events."
        )
    found: list[Blackout] = []
    for start, end, why in sorted(windows):
        begin = max(start, found[-1].end) if found else start
        if begin < end:
            found.append(Blackout(begin, end, _checked_reason(why)))
    return tuple(found)


def checked_days(days: Mapping[date, str]) -> tuple[tuple[date, str], ...]:
    if len(days) > MOST_DAYS:
        raise ConfigurationError(f"a calendar has at most {MOST_DAYS} closed days; give fewer years.")
    return tuple((day, _checked_reason(days[day])) for day in sorted(days))


def _checked_reason(text: Any) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(f"{text!r} does not say why a day is closed; give a text.")
    return " ".join(re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", text).split())[:LONGEST_REASON] or "closed"


def checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,100}", name):
        raise ConfigurationError(f"{name!r} is no name for a calendar; use letters, digits and _ . : - only.")
    return name


def weekend_days(given: str | Iterable[Any]) -> tuple[int, ...]:
    names = [day[:3] for day in WEEKDAYS]
    found: set[int] = set()
    for text in given.split(",") if isinstance(given, str) else given:
        if not isinstance(text, str) or text.strip().lower()[:3] not in names:
            raise ConfigurationError(
                f'weekend={given!r}: {text!r} is not a day of the week; write "sat,sun".'
            )
        found.add(names.index(text.strip().lower()[:3]))
    if len(found) == 7:
        raise ConfigurationError("all days of the week are closed; leave one open.")
    return tuple(sorted(found))
