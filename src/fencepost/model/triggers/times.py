"""Moments, zones and bounds: read, checked and written. The years that all arithmetic can bear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from fencepost.errors import ConfigurationError

# Outside of these no calendar or time zone arithmetic can overflow.
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)

ONE_MICROSECOND = timedelta(microseconds=1)
ONE_SECOND = timedelta(seconds=1)
ONE_DAY = timedelta(days=1)


def iso(moment: datetime) -> str:
    """Exactly `YYYY-MM-DDTHH:MM:SS.ffffffZ`, so that texts sort like the moments they name."""
    if moment.tzinfo is not UTC:
        moment = as_utc(moment, "moment")
    return moment.isoformat("T", "microseconds")[:-6] + "Z"


def from_iso(text: str) -> datetime:
    """The moment, in UTC, that an ISO 8601 text with an offset names."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{text!r} is not an ISO 8601 time; write it like 2026-11-15T12:00:00Z."
        ) from None
    if moment.tzinfo is None:
        raise ConfigurationError(f"{text!r} has no offset from UTC; append Z or +01:00.")
    return as_utc(moment, "time")


def as_utc(moment: datetime, name: str) -> datetime:
    """The moment in UTC; a naive datetime, which means another instant on another machine, is refused."""
    if not isinstance(moment, datetime):
        raise ConfigurationError(f"{name} {moment!r} is not a datetime; give an aware datetime.datetime.")
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"{name} {moment.isoformat()} is naive, it names no instant; add tzinfo, "
            'e.g. datetime(…, tzinfo=ZoneInfo("Europe/Zurich")).'
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise _out_of_range(moment, name) from None


def declared(moment: datetime, name: str) -> datetime:
    """A moment of a trigger, in UTC, within the years that all arithmetic can bear."""
    moment = as_utc(moment, name)
    if not EARLIEST <= moment < LATEST:
        raise _out_of_range(moment, name)
    return moment


def _out_of_range(moment: datetime, name: str) -> ConfigurationError:
    return ConfigurationError(f"{name} {moment.isoformat()} is out of range; use the years 1900 to 8999.")


def bounds(start: datetime | None, end: datetime | None) -> tuple[datetime | None, datetime | None]:
    start = None if start is None else declared(start, "start")
    end = None if end is None else declared(end, "end")
    if start is not None and end is not None and start > end:
        raise ConfigurationError(f"start {iso(start)} is after end {iso(end)}; swap them or drop one.")
    return start, end


def zone_name(tz: str | ZoneInfo) -> str:
    """The name of a zone that exists."""
    name = tz.key if isinstance(tz, ZoneInfo) else tz
    if not isinstance(name, str):
        raise ConfigurationError(f'{tz!r} is not a named time zone; give a name such as "Europe/Zurich".')
    try:
        zone(name)
    except (KeyError, ValueError, OSError):  # unknown; malformed; a directory such as "Europe"
        raise ConfigurationError(
            f"{name!r} is not a known time zone; {did_you_mean(name, available_timezones())}"
            'give an IANA name such as "Europe/Zurich".'
        ) from None
    return name


@cache  # zoneinfo itself keeps only eight zones alive; there are about 600
def zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    by_lower_case = {name.lower(): name for name in known}
    close = get_close_matches(str(given).lower(), by_lower_case, n=1)
    return f"did you mean {by_lower_case[close[0]]!r}? Otherwise " if close else ""


def check_keys(value: Mapping[str, Any], required: Iterable[str], optional: Iterable[str]) -> None:
    """Refuse a JSON object that lacks a key, or has one that this version does not understand."""
    required, known = set(required), {"type", *required, *optional}
    problems = [f"lacks {key!r}" for key in sorted(required - value.keys())]
    problems += [f"has an unknown {key!r}" for key in sorted(map(str, value.keys() - known))]
    if problems:
        raise ConfigurationError(
            f"trigger {dict(value)!r} {' and '.join(problems)}; its keys are {', '.join(sorted(known))}."
        )


def moments_to_json(**moments: datetime | None) -> dict[str, str]:
    return {name: iso(moment) for name, moment in moments.items() if moment is not None}


def moment_from_json(value: Mapping[str, Any], name: str) -> datetime | None:
    return from_iso(value[name]) if name in value else None


def describe_bounds(start: datetime | None, end: datetime | None) -> str:
    after = "" if start is None else f", from {readable(start)}"
    return after if end is None else f"{after}, until {readable(end)}"


def readable(moment: datetime) -> str:
    return moment.isoformat()[:-6] + "Z"


def in_words(length: timedelta, *, one: bool = False) -> str:
    """`5 minutes`; a single unit is `hour`, as in "every hour", or `1 hour` with `one`."""
    minutes, seconds = divmod(length, timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    whole_weeks = length % timedelta(weeks=1) == timedelta()
    weeks, days = divmod(days, 7) if whole_weeks else (0, days)
    amounts: dict[str, float] = {"week": weeks, "day": days, "hour": hours, "minute": minutes}
    amounts["second"] = seconds / ONE_SECOND
    named = [(amount, unit) for unit, amount in amounts.items() if amount]
    if len(named) == 1 and named[0][0] == 1 and not one:
        return named[0][1]
    return " ".join(f"{amount:.9g} {unit}{'' if amount == 1 else 's'}" for amount, unit in named)
