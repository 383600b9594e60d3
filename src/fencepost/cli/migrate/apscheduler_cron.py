"""APScheduler's jobs (3.x): of a scheduler that the user names, which imports it, or of a source file, which does not.

A time must match every field. Monday is 0; fields finer than the finest one given are at their lowest value. A time
that the clock skips fires as much later as the clock was advanced, a repeated one in both passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from fencepost import Trigger, at, cron, every
from fencepost.cli.migrate.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    WEEKDAYS,
    CronField,
    both_days,
    compact,
    numbers,
)
from fencepost.cli.migrate.oncalendar import SECOND, year_bounds
from fencepost.cli.migrate.values import CannotCarryOver, Note, OldCalendar
from fencepost.cli.migrate.walk import Grid, Moments, Walls, shifted

YEAR = CronField("year", 1970, 9999, {})
WEEK = CronField("week", 1, 53, {})
WEEKDAY = CronField("day of the week", 0, 6, {name: (n - 1) % 7 for name, n in WEEKDAYS.items()})
FIELDS = {
    "year": YEAR,
    "month": MONTH,
    "day": DAY,
    "week": WEEK,
    "day_of_week": WEEKDAY,
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
}
"""In APScheduler's order, from coarse to fine."""
LOWEST = {"week": "*", "day_of_week": "*"}
ORDINALS = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5}
IN_MONTH = re.compile(r"(1st|2nd|3rd|4th|5th|last)\s+([a-z]{3})", re.IGNORECASE)
PHASE = Note(
    "when the interval begins",
    "APScheduler counts from its start; Fencepost draws a fixed grid from the moment the job is first stored",
    "give every(…, anchor=…) to choose the moment",
)


@dataclass(frozen=True)
class Schedule:
    """A trigger of APScheduler as plain values: its kind and arguments."""

    kind: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"{self.kind}({shown})" if shown else self.kind


def triggers_of(schedule: Schedule, tz: str) -> tuple[OldCalendar, Trigger, list[Note]]:
    given = dict(schedule.given)
    notes = []
    cron("0 0 * * *", tz=tz)  # refuses an unknown zone
    if jitter := given.pop("jitter", None):
        notes.append(
            Note(
                f"jitter={jitter}", "fires come at their exact time", "give jobs different minutes or anchors"
            )
        )
    start, end = (_moment(given.pop(name, None), tz) for name in ("start_date", "end_date"))
    match schedule.kind:
        case "cron":
            return _walls(given, tz, start, end), _cron(given, tz, start, end), notes
        case "interval":
            length = timedelta(**given) or timedelta(seconds=1)
            anchor = None if start is None else start - length
            if start is None:
                notes.append(PHASE)
            return Grid(length, anchor, end), every(length, anchor=anchor, end=end), notes
        case "date" if (moment := _moment(given.get("run_date"), tz)) is not None:
            return Moments([moment]), at(moment), notes
    raise CannotCarryOver(
        f"{schedule} has no counterpart here",
        "hand the trigger itself to @scheduler.job: with fencepost[apscheduler] it is accepted",
    )


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    """All fields: what is coarser than the finest given one is any, what is finer is at its lowest."""
    unknown = given.keys() - FIELDS.keys()
    if unknown:
        raise CannotCarryOver(
            f"{sorted(unknown)[0]!r} is no field of a cron trigger", f"use {', '.join(FIELDS)}"
        )
    names = list(FIELDS)
    finest = max((names.index(name) for name in given if given[name] is not None), default=len(names))
    return {
        name: str(given[name]).strip().lower()
        if given.get(name) is not None
        else "*"
        if number < finest
        else LOWEST.get(name, str(FIELDS[name].low))
        for number, name in enumerate(names)
    } | ({"year": "*"} if "year" not in given else {})


def _numbers(texts: Mapping[str, str], name: str) -> list[int]:
    return numbers(texts[name].replace(" ", ""), FIELDS[name], open_steps=True)


def _walls(given: Mapping[str, Any], tz: str, start: datetime | None, end: datetime | None) -> Walls:
    texts = _texts(given)
    years, months, weeks = (set(_numbers(texts, name)) for name in ("year", "month", "week"))
    weekdays = set(_numbers(texts, "day_of_week"))

    def is_day(when: date) -> bool:
        return (
            when.year in years
            and when.month in months
            and when.isocalendar().week in weeks
            and when.weekday() in weekdays
            and when.day in _days(texts["day"], when)
        )

    seconds, minutes, hours = (_numbers(texts, name) for name in ("second", "minute", "hour"))
    return Walls(seconds, minutes, hours, is_day, tz, shifted, start, end)


def _days(text: str, when: date) -> set[int]:
    """The days of that month: numbers, `last`, `2nd fri`, `last sun`."""
    found: set[int] = set()
    last = (when.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    for part in text.split(","):
        part = part.strip()
        if part == "last":
            found.add(last.day)
        elif named := IN_MONTH.fullmatch(part):
            weekday = WEEKDAY.number(named[2])
            matching = [day for day in range(1, last.day + 1) if when.replace(day=day).weekday() == weekday]
            found.update(
                matching[-1:] if named[1] == "last" else matching[ORDINALS[named[1]] - 1 : ORDINALS[named[1]]]
            )
        else:
            found.update(numbers(part.replace(" ", ""), DAY, open_steps=True))
    return found


def _cron(given: Mapping[str, Any], tz: str, start: datetime | None, end: datetime | None) -> Trigger:
    texts = _texts(given)
    if len(_numbers(texts, "week")) < WEEK.high:
        raise CannotCarryOver(
            "weeks of the year have no cron expression",
            "hand the trigger itself to @scheduler.job: with fencepost[apscheduler] it is accepted",
        )
    day, weekday = _day_fields(texts)
    second, minute, hour, month = (
        compact(_numbers(texts, name), FIELDS[name]) for name in ("second", "minute", "hour", "month")
    )
    fields = [minute, hour, day, month, weekday]
    first, last = year_bounds(_numbers(texts, "year"), YEAR, tz)
    return cron(
        " ".join([second, *fields] if second != "0" else fields),
        tz=tz,
        start=max(filter(None, (start, first)), default=None),
        end=min(filter(None, (end, last)), default=None),
    )


def _day_fields(texts: Mapping[str, str]) -> tuple[str, str]:
    parts = [part.strip() for part in texts["day"].split(",")]
    weekdays = sorted((number + 1) % 7 for number in _numbers(texts, "day_of_week"))
    named = [IN_MONTH.fullmatch(part) for part in parts]
    if parts == ["last"] and len(weekdays) == 7:
        return "L", "*"
    if all(named) and len(weekdays) == 7:
        return "*", ",".join(_nth(found[1], found[2]) for found in named if found)
    if "last" in parts or any(named):
        raise CannotCarryOver(
            f"day={texts['day']!r} together with other days has no cron expression",
            "hand the trigger itself to @scheduler.job: with fencepost[apscheduler] it is accepted",
        )
    return both_days(_numbers(texts, "day"), weekdays)


def _nth(ordinal: str, weekday: str) -> str:
    number = (WEEKDAY.number(weekday) + 1) % 7
    return f"{number}L" if ordinal.lower() == "last" else f"{number}#{ORDINALS[ordinal.lower()]}"


def _moment(given: Any, tz: str) -> datetime | None:
    """A datetime, a date or a text; without an offset in the scheduler's zone."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise CannotCarryOver(
                f"{given!r} is no time", "write it like 2026-11-15T12:00:00+01:00"
            ) from None
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day, tzinfo=ZoneInfo(tz))
    if not isinstance(given, datetime):
        raise CannotCarryOver(f"{given!r} is no time", "write a datetime")
    return (given if given.tzinfo else given.replace(tzinfo=ZoneInfo(tz))).astimezone(UTC)
