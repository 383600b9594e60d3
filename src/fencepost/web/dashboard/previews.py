"""The fires to come of a calendar, and those on both sides of the next change of its clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from fencepost.model import JobRecord
from fencepost.model.triggers import Trigger, iso, zone
from fencepost.web.dashboard.zones import zone_of

NEXT = 10
BESIDE = 3
"""Fires shown on each side of a clock change."""
NEAR = timedelta(hours=49)
MOST = 400
A_YEAR = 366


@dataclass(frozen=True)
class Coming:
    at: datetime
    wall: str
    """What the clock of the job's zone shows."""
    skipped: str
    """Why it will not run, as things stand."""
    changed: str = ""
    """The clocks have changed since the fire before."""
    undo: bool = False
    """A person has asked for it to be skipped."""

    @property
    def due(self) -> str:
        return iso(self.at)


@dataclass(frozen=True)
class ClockChange:
    at: datetime
    words: str
    """`02:00 CET becomes 03:00 CEST`"""
    fires: tuple[Coming, ...]


def coming(record: JobRecord, trigger: Trigger, now: datetime, count: int = NEXT) -> list[Coming]:
    return _shown(record, list(islice(trigger.after(now), count)), _zone(trigger))


def around_change(record: JobRecord, trigger: Trigger, now: datetime) -> ClockChange | None:
    """None: the calendar knows no clock, or its clock does not change within a year."""
    tz = _zone(trigger)
    change = None if tz is None else _next_change(tz, now)
    if change is None or tz is None:
        return None
    near = list(takewhile(lambda fire: fire < change + NEAR, islice(trigger.after(change - NEAR), MOST)))
    before = [fire for fire in near if fire < change][-BESIDE:]
    after = [fire for fire in near if fire >= change][:BESIDE]
    if not before and not after:
        return None
    wall = (change - timedelta(microseconds=1)).astimezone(tz) + timedelta(microseconds=1)
    to = change.astimezone(tz)
    text = f"{wall:%H:%M} {(change - timedelta(seconds=1)).astimezone(tz).tzname()} becomes {to:%H:%M} {to.tzname()}"
    return ClockChange(change, text, tuple(_shown(record, [*before, *after], tz)))


def _shown(record: JobRecord, fires: list[datetime], tz: ZoneInfo | None) -> list[Coming]:
    found: list[Coming] = []
    offset = None
    for fire in fires:
        local = fire.astimezone(tz) if tz is not None else None
        pause = record.paused_at(fire)
        changed = "" if local is None or offset in (None, local.utcoffset()) else f"now {local.tzname()}"
        offset = local.utcoffset() if local is not None else None
        wall = f"{local:%a %Y-%m-%d %H:%M:%S} {local.tzname()}" if local is not None else ""
        skip = record.skip_at(fire)
        why = skip.text if skip is not None else "paused" if pause else ""
        found.append(Coming(fire, wall, why, changed, skip is not None))
    return found


def _next_change(tz: ZoneInfo, now: datetime) -> datetime | None:
    """To the second, by halving the day in which the offset changes."""
    for day in range(A_YEAR):
        low, high = now + timedelta(days=day), now + timedelta(days=day + 1)
        if low.astimezone(tz).utcoffset() != high.astimezone(tz).utcoffset():
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) / 2
                same = middle.astimezone(tz).utcoffset() == low.astimezone(tz).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            return high.replace(microsecond=0)
    return None


def _zone(trigger: Trigger) -> ZoneInfo | None:
    name = zone_of(trigger)
    return None if name is None or name == "UTC" else zone(name)
