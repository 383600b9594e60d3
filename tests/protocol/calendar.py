"""When fires are due, worked out a second time and on purpose differently from `fencepost.model.triggers`.

The checker compares the ledger with this. It walks time minute by minute (cron) or by counting (every), knows
only the plain forms of a cron field, and shares no code with the triggers.
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
