"""Entries of Celery's beat, however they were found: what they send, and when.

beat's crontab fires on days that match the day of the month, the month and the day of the week, all three. It asks for
the next wall time after the wall time of the last run, which decides what happens when the clock changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

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
from fencepost.cli.migrate.values import (
    CannotCarryOver,
    Carried,
    JobIds,
    NotCarriedOver,
    Note,
    OldCalendar,
    Send,
)
from fencepost.cli.migrate.walk import Moments, WallGrid, Walls, next_wall
from fencepost.errors import ConfigurationError

WEEKDAY = CronField("day of the week", 0, 6, WEEKDAYS)
ALWAYS = (
    Note(
        "the task's own run",
        "a fire has succeeded when the broker took the message; workers, retries and results stay Celery's",
        "call the function in the job instead of send(), to have its runs in the ledger",
    ),
    Note(
        "the running beat",
        "while it is up, each entry is sent twice",
        "stop celery beat before you start the replicas",
    ),
)
PHASE = Note(
    "when the interval begins",
    "beat counts from the last run, on the wall clock, and sends nothing in an hour that the clock repeats; Fencepost "
    "draws a fixed grid in elapsed time from the moment the job is first stored",
    "give every(…, anchor=…) to choose the moment",
)


@dataclass(frozen=True)
class Crontab:
    """Each field as its text, or as numbers."""

    minute: Any = "*"
    hour: Any = "*"
    day_of_week: Any = "*"
    day_of_month: Any = "*"
    month_of_year: Any = "*"

    @classmethod
    def of_text(cls, text: str) -> Crontab:
        fields = text.split()
        if len(fields) != 5:
            raise CannotCarryOver(f"{text!r} does not have five fields", "write it like 30 2 * * *")
        minute, hour, day, month, weekday = fields
        return cls(minute, hour, weekday, day, month)

    def __str__(self) -> str:
        fields = (self.minute, self.hour, self.day_of_month, self.month_of_year, self.day_of_week)
        return " ".join(_text(field) for field in fields)


@dataclass(frozen=True)
class BeatEntry:
    """One entry of a beat schedule. `schedule` is a `Crontab`, a length, a moment, or something else to be left out."""

    name: str
    task: str
    schedule: Any
    args: Any = ()
    kwargs: Any = None
    options: Any = None
    relative: bool = False
    tz: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    problem: CannotCarryOver | None = None
    """Why it was left out already."""


def carried(
    entries: Iterable[BeatEntry], tz: str, app: str | None
) -> tuple[tuple[Carried, ...], tuple[NotCarriedOver, ...]]:
    names = JobIds()
    jobs, left_out = [], []
    for entry in entries:
        try:
            if entry.problem:
                raise entry.problem
            jobs.append(_job(entry, entry.tz or tz, app, names))
        except CannotCarryOver as problem:
            shown = str(entry.schedule)[:60]
            left_out.append(NotCarriedOver(f"entry {entry.name!r}", shown, problem.why, problem.remedy))
    return tuple(jobs), tuple(left_out)


def _job(entry: BeatEntry, tz: str, app: str | None, names: JobIds) -> Carried:
    try:
        old, trigger = _schedule(entry.schedule, tz, entry.start, entry.end)
    except ConfigurationError as error:
        why, _, remedy = str(error).partition("; ")
        raise CannotCarryOver(why, remedy or "correct it and import again") from None
    body = Send(
        entry.task,
        _plain(list(entry.args or ()), "args"),
        _plain(dict(entry.kwargs or {}), "kwargs"),
        _options(entry.options or {}),
        app,
    )
    notes = [PHASE] if isinstance(old, WallGrid) and entry.start is None else []
    if entry.relative:
        notes.append(
            Note(
                "relative",
                "beat rounds the times to the interval; Fencepost starts the grid when the job is first stored",
                "use cron(), as */15 * * * *, for times that are round on the clock",
            )
        )
    shown = str(entry.schedule)
    return Carried(
        names.id_for(entry.name), f"entry {entry.name!r}", shown, old, trigger, body, tz, {}, tuple(notes)
    )


def _schedule(
    schedule: Any, tz: str, start: datetime | None, end: datetime | None
) -> tuple[OldCalendar, Trigger]:
    if isinstance(schedule, bool) or not isinstance(schedule, int | float | timedelta | datetime | Crontab):
        raise CannotCarryOver(
            f"its schedule {str(schedule)[:60]} is no crontab, interval or moment",
            "write it as one of these, or as a job of your own",
        )
    if isinstance(schedule, Crontab):
        trigger = cron(_expression(schedule), tz=tz, start=start, end=end)
        return calendar(schedule, tz, start, end), trigger
    if isinstance(schedule, datetime):
        return Moments([schedule]), at(schedule)
    length = schedule if isinstance(schedule, timedelta) else timedelta(seconds=schedule)
    anchor = None if start is None else start - length
    return WallGrid(length, tz, anchor, end), every(length, anchor=anchor, end=end)


def calendar(crontab: Crontab, tz: str, start: datetime | None = None, end: datetime | None = None) -> Walls:
    days, months, weekdays = (
        set(_numbers(crontab.day_of_month, DAY)),
        set(_numbers(crontab.month_of_year, MONTH)),
        set(_numbers(crontab.day_of_week, WEEKDAY)),
    )

    def is_day(when: date) -> bool:
        return when.day in days and when.month in months and when.isoweekday() % 7 in weekdays

    minutes, hours = _numbers(crontab.minute, MINUTE), _numbers(crontab.hour, HOUR)
    return Walls([0], minutes, hours, is_day, tz, next_wall, start, end)


def _expression(crontab: Crontab) -> str:
    day, weekday = both_days(_numbers(crontab.day_of_month, DAY), _numbers(crontab.day_of_week, WEEKDAY))
    minute, hour = (
        compact(_numbers(crontab.minute, MINUTE), MINUTE),
        compact(_numbers(crontab.hour, HOUR), HOUR),
    )
    return " ".join([minute, hour, day, compact(_numbers(crontab.month_of_year, MONTH), MONTH), weekday])


def _numbers(given: Any, field: CronField) -> list[int]:
    if isinstance(given, str):
        return numbers(given.replace(" ", ""), field, wraps=True)
    values = [given] if isinstance(given, int) else list(given) if isinstance(given, Iterable) else [None]
    return sorted({field.number(str(value)) for value in values})


def _text(field: Any) -> str:
    if isinstance(field, Iterable) and not isinstance(field, str):
        return ",".join(map(str, field))
    return str(field)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    seconds = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in given.items()
    }
    found: dict[str, Any] = _plain(
        {name: value for name, value in seconds.items() if value is not None}, "options"
    )
    return found


def _plain(value: Any, name: str) -> Any:
    try:
        same = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        same = None
    if same != value:
        raise CannotCarryOver(
            f"its {name} hold something that is no JSON",
            f"write {name} of text, numbers, lists and dictionaries",
        )
    return value
