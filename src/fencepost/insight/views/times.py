"""Times as people write them: ISO 8601, `2h`, or just `03:00`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from fencepost.errors import ConfigurationError, UsageError
from fencepost.model.triggers import fixed_times, from_iso
from fencepost.settings import duration

EXACT = timedelta(microseconds=1)


def ago(text: str, now: datetime, option: str) -> datetime:
    """A moment, or a duration back from now."""
    length = _duration(text)
    return _moment(text, option) if length is None else now - length


def ahead(text: str, now: datetime, option: str) -> datetime:
    """A moment still to come, or a duration from now."""
    length = _duration(text)
    moment = _moment(text, option) if length is None else now + length
    if moment <= now:
        raise UsageError(f"{option} {text!r} has passed; give a time to come, or a duration such as 2h")
    return moment


def past(text: str, now: datetime, zone: tzinfo | None, option: str) -> datetime:
    """A moment in this zone unless it names its own offset (`2026-11-15`, `2026-11-15T03:00`), or a duration back."""
    length = _duration(text)
    return _in_zone(text, zone, option) if length is None else now - length


def coming(text: str, now: datetime, zone: tzinfo | None, option: str) -> datetime:
    """The next `18:00` of this zone, or a moment in it unless it names its own offset."""
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
        try:
            clock = time.fromisoformat(text.rjust(text.count(":") * 3 + 2, "0"))
        except ValueError:
            raise UsageError(f"{option} {text!r} is no time of day; write 18:00") from None
        today = now.astimezone(zone).date()
        days = (datetime.combine(today + timedelta(days=each), clock, zone) for each in (0, 1, 2))
        return next(moment for moment in (day.astimezone(UTC) for day in days) if moment > now)
    return _in_zone(text, zone, option)


def _in_zone(text: str, zone: tzinfo | None, option: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text!r} is no time; write 2026-11-15 or 2026-11-15T03:00") from None
    if not 1900 <= moment.year < 9000:
        raise UsageError(f"{option} {text!r} is out of range; use the years 1900 to 8999")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
    return moment.astimezone(UTC)


def _duration(text: str) -> timedelta | None:
    try:
        return duration(text)
    except ConfigurationError:
        return None


def _moment(text: str, option: str) -> datetime:
    try:
        return from_iso(text)
    except ConfigurationError as error:
        raise UsageError(f"{option}: {str(error).rstrip('.')}, or give a duration such as 2h") from None


@dataclass(frozen=True)
class AskedTime:
    """What a WHEN means: each instant it may stand for, and how much later a fire may be due and still match:
    03:00 also matches 03:00:17."""

    instants: tuple[datetime, ...]
    width: timedelta
    zone: str | None
    """The zone it was read in; None: it named its own offset."""


def asked(text: str, now: datetime, zone: ZoneInfo) -> AskedTime:
    """`03:00` is the latest that has been, today or yesterday, in this zone; so is an ISO time that names
    no offset."""
    width = _width(text)
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
        return AskedTime(_latest(text, now, zone), width, zone.key)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or ":" not in text:
        raise UsageError(f"{text!r} is no time; write 03:00, 2026-11-15T03:00 or 2026-11-15T03:00:00Z")
    if not 1900 <= moment.year < 9000:
        raise UsageError(f"{text!r} is out of range; use the years 1900 to 8999")
    if moment.tzinfo is not None:
        return AskedTime((moment.astimezone(UTC),), width, None)
    return AskedTime(_instants(moment, zone), width, zone.key)


def _width(text: str) -> timedelta:
    if "." in text or "," in text:
        return EXACT
    return timedelta(seconds=1) if re.search(r"\d:\d\d:\d\d", text) else timedelta(minutes=1)


def _latest(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    try:
        clock = time.fromisoformat(text.rjust(text.count(":") * 3 + 2, "0"))
    except ValueError:
        raise UsageError(f"{text!r} is no time of day; write 03:00") from None
    today: date = now.astimezone(zone).date()
    for days in (0, 1, 2):
        instants = _instants(datetime.combine(today - timedelta(days=days), clock), zone)
        if past := tuple(instant for instant in instants if instant <= now):
            return past
    raise AssertionError("two days ago is past")


def _instants(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The clock may have shown it twice, or have skipped it: then it stands for the end of the gap."""
    before = wall.replace(tzinfo=zone).astimezone(UTC)
    after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if before == after:
        return (before,)
    return (before, after) if before < after else fixed_times(before, after, zone)
