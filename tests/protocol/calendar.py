"""When fires are due, worked out a second time and on purpose differently from `fencepost.model.triggers`.

The checker compares the ledger with this. It walks time minute by minute (cron) or by counting (every), takes sets of
fires together (combinations), knows only the plain forms of a cron field, and shares no code with the triggers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


def due_between(trigger: Mapping[str, Any], after: datetime, until: datetime) -> list[datetime]:
    """The fires of this trigger (as JSON) in (after, until]."""
    kind = trigger["type"]
    if kind == "after":
        return []
    if kind in _MADE_OF_OTHERS:
        return sorted(_MADE_OF_OTHERS[kind](trigger, after, until))
    if kind == "every":
        fires = _grid(trigger, until)
    elif kind == "cron":
        fires = _scan(trigger, after, until)
    else:
        fires = iter(sorted(_parse(text) for text in trigger["moments"]))
    start = _parse(trigger["start"]) if trigger.get("start") else None
    end = _parse(trigger["end"]) if trigger.get("end") else None
    return [
        fire
        for fire in fires
        if after < fire <= until and (start is None or start <= fire) and (end is None or fire <= end)
    ]


def _grid(trigger: Mapping[str, Any], until: datetime) -> Iterator[datetime]:
    step = timedelta(seconds=trigger.get("seconds", 0), microseconds=trigger.get("microseconds", 0))
    fire = _parse(trigger["anchor"]) + step
    while fire <= until:
        yield fire
        fire += step


def _scan(trigger: Mapping[str, Any], after: datetime, until: datetime) -> Iterator[datetime]:
    """Look at every minute there was. Where the local clock jumps ahead over a time that was due, a job with
    a fixed hour fires when the jump is over; where it runs twice through an hour, such a job fires the first
    time. A job with a wildcard hour follows elapsed time."""
    zone = ZoneInfo(trigger["tz"])
    fields = trigger["expression"].split()
    minutes, hours, days, months, weekdays = (
        _values(text, *bounds) for text, bounds in zip(fields, _BOUNDS, strict=True)
    )
    both_days = fields[2] == "*" or fields[4] == "*"
    fixed = not fields[0].startswith("*") and not fields[1].startswith("*")

    def matches(local: datetime) -> bool:
        day = local.day in days
        weekday = (local.isoweekday() % 7) in weekdays
        return (
            local.minute in minutes
            and local.hour in hours
            and local.month in months
            and ((day and weekday) if both_days else (day or weekday))
        )

    moment = after.astimezone(UTC).replace(second=0, microsecond=0)
    local = moment.astimezone(zone).replace(tzinfo=None)
    while moment <= until:
        moment += MINUTE
        aware = moment.astimezone(zone)
        before, local = local, aware.replace(tzinfo=None)
        if not fixed:
            if matches(local):
                yield moment
            continue
        skipped = before + MINUTE
        jumped_over = False
        while skipped < local:
            jumped_over = jumped_over or matches(skipped)
            skipped += MINUTE
        if jumped_over or (matches(local) and not aware.fold):
            yield moment


def _any(trigger: Mapping[str, Any], after: datetime, until: datetime) -> set[datetime]:
    return {fire for member in trigger["members"] for fire in due_between(member, after, until)}


def _all(trigger: Mapping[str, Any], after: datetime, until: datetime) -> set[datetime]:
    return set.intersection(*(set(due_between(member, after, until)) for member in trigger["members"]))


def _except(trigger: Mapping[str, Any], after: datetime, until: datetime) -> set[datetime]:
    return set(due_between(trigger["of"], after, until)) - set(due_between(trigger["without"], after, until))


def _spread(trigger: Mapping[str, Any], after: datetime, until: datetime) -> set[datetime]:
    later = timedelta(seconds=trigger["offset"])
    return {fire + later for fire in due_between(trigger["of"], after - later, until - later)}


def _on_open_days(trigger: Mapping[str, Any], after: datetime, until: datetime) -> set[datetime]:
    calendar = trigger["calendar"]
    zone = ZoneInfo(calendar.get("tz") or trigger["of"].get("tz") or "UTC")
    days = {day for text in calendar.get("days", {}).values() for day in text.split()}
    windows = [(_parse(each["from"]), _parse(each["until"])) for each in calendar.get("blackouts", [])]

    def closed(moment: datetime) -> bool:
        local = moment.astimezone(zone)
        return (
            local.date().isoformat() in days
            or f"{local:%a}".lower() in calendar.get("weekend", "")
            or any(begin <= moment < end for begin, end in windows)
        )

    assert trigger["closed"] == "exclude", "where fires move to is known to tests/unit/walk.py only"
    return {fire for fire in due_between(trigger["of"], after, until) if not closed(fire)}


_MADE_OF_OTHERS = {"any": _any, "all": _all, "except": _except, "spread": _spread, "calendar": _on_open_days}


_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def _values(text: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start, end = (low, high) if span == "*" else (int(first), int(last or (high if step else first)))
        values.update(range(start, end + 1, int(step or 1)))
    return {value % 7 for value in values} if high == 6 else values


def _parse(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
