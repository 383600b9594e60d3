"""APScheduler's triggers as Fencepost's: `from_apscheduler(CronTrigger(hour=2))`.

Never pickled: each becomes a value with a JSON form. Its fires keep the promises of `fencepost.model.triggers`,
strictly increasing and independent of the instant of asking, which APScheduler's own do not near clock
changes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import apscheduler.triggers.combining as combining
import apscheduler.triggers.cron as cron_module
import apscheduler.triggers.date as date_module
import apscheduler.triggers.interval as interval_module

from fencepost.apscheduler.calendars import (
    CALENDAR_UNITS,
    CRON_FIELDS,
    AllOf,
    AnyOf,
    APSchedulerCron,
    CalendarInterval,
    Spread,
    cron_engine,
)
from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError
from fencepost.model.triggers import (
    EARLIEST,
    LONGEST_INTERVAL,
    ONE_MICROSECOND,
    At,
    Every,
    Trigger,
    at,
    bounds,
    check_keys,
    did_you_mean,
    every,
    moment_from_json,
    register_trigger_type,
    trigger_from_json,
    zone_name,
)

try:  # since APScheduler 3.11
    from apscheduler.triggers.calendarinterval import (  # type: ignore[import-untyped, unused-ignore]
        CalendarIntervalTrigger,
    )
except ImportError:
    CalendarIntervalTrigger = None


_clock = SystemClock()
EARLIEST_CREATION = _clock.wall() - timedelta(hours=1)
"""Triggers may have been made some time before this module was imported."""


def from_apscheduler(trigger: Any, *, spread: str | None = None, from_row: bool = False) -> Trigger:
    """The same schedule as a Fencepost trigger.

    - An interval trigger is the grid start_date, start_date + interval, … Where none is given APScheduler makes one up
      from the current time, in microseconds; as it differs from replica to replica, the anchor is left open, and the
      store sets it. A start_date in whole seconds, or in milliseconds and not of the time of this process, was given.
      `from_row`: the trigger may be older than this process, so one in milliseconds cannot be recognised.
    - A cron trigger keeps APScheduler's reading of its fields. A time that the clock skips fires as much
      later as the clock was advanced; a repeated one fires in both passes.
    - A calendar interval skips a time that the clock skips; a repeated one fires in the first pass.
    - "or" fires whenever one of its members does, "and" when all of them do.
    - With jitter, fires are moved by a pseudo-random offset derived from the name `spread` and the time: the
      same on every replica, and another for every name. Without a name jitter is refused.
    """
    convert = _CONVERSIONS.get(type(trigger))
    if convert is None:
        known = ", ".join(sorted(kind.__name__ for kind in _CONVERSIONS))
        raise ConfigurationError(
            f"{trigger!r} cannot be converted; use one of APScheduler's {known}, or every(), cron(), at()."
        )
    calendar = convert(trigger)
    if from_row and isinstance(calendar, Every) and trigger.start_date.microsecond:
        calendar = replace(calendar, anchor=None)
    if not getattr(trigger, "jitter", None):
        return calendar
    if spread is None:
        raise ConfigurationError(
            f"{trigger!r} has jitter={trigger.jitter}, so its fires are random; remove jitter=, "
            "and spread the load by giving jobs different minutes or anchors."
        )
    return _spread(calendar, timedelta(seconds=trigger.jitter), spread)


# From APScheduler's objects.


def _from_interval(trigger: Any) -> Every:
    grid = every(trigger.interval, end=trigger.end_date)  # checks the interval first
    anchor = trigger.start_date.astimezone(UTC) - trigger.interval
    made_up = anchor.microsecond % 1000 or EARLIEST_CREATION <= anchor <= _clock.wall()
    if anchor.microsecond and made_up:
        return grid
    return every(trigger.interval, anchor=anchor, end=grid.end)


def _from_date(trigger: Any) -> At:
    return at(trigger.run_date)


def _from_cron(trigger: Any) -> APSchedulerCron:
    expressions = {field.name: str(field) for field in trigger.fields}
    ours = _cron(expressions, _zone_name(trigger.timezone), trigger.start_date, trigger.end_date)
    if _meaning(cron_engine(ours.fields)) != _meaning(trigger):  # APScheduler writes "0-0/5" as "0/5"
        raise ConfigurationError(f"{trigger!r} has a range that cannot be written down; simplify its fields.")
    return ours


def _meaning(trigger: Any) -> list[Any]:
    return [vars(expression) for field in trigger.fields for expression in field.expressions]


def _from_calendar(trigger: Any) -> CalendarInterval:
    lengths = tuple(getattr(trigger, unit) for unit in CALENDAR_UNITS)
    time_of_day = trigger._time.replace(tzinfo=None)
    return _calendar(lengths, trigger.start_date, time_of_day, _zone_name(trigger.timezone), trigger.end_date)


def _from_or(trigger: Any) -> AnyOf:
    return AnyOf(_some([from_apscheduler(member) for member in trigger.triggers]))


def _from_and(trigger: Any) -> AllOf:
    together = AllOf(_some([from_apscheduler(member) for member in trigger.triggers]))
    together.resolved(EARLIEST).next_after(EARLIEST)  # raises if they never meet
    return together


UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"})


def _zone_name(tz: tzinfo) -> str:
    """One name for UTC: `TZ=UTC` and `TZ=Etc/UTC` mean the same, and derived names of jobs must be equal."""
    if tz is UTC or getattr(tz, "key", getattr(tz, "zone", None)) in UTC_NAMES:
        return "UTC"
    if isinstance(name := getattr(tz, "zone", None), str):  # of pytz, which APScheduler 3.10 makes zones with
        return zone_name(name)
    if isinstance(tz, timezone) or not isinstance(tz, ZoneInfo):
        raise ConfigurationError(f'time zone {tz!r} has no name; give timezone="Europe/Zurich" or the like.')
    return zone_name(tz)


# Checks, shared by both ways in.


def _cron(
    expressions: Mapping[str, str], tz: str, start: datetime | None, end: datetime | None
) -> APSchedulerCron:
    fields = tuple(expressions[name] for name in CRON_FIELDS)
    start, end = bounds(start, end)
    try:
        first = cron_engine(fields).get_next_fire_time(None, datetime(1970, 1, 1, tzinfo=UTC))
    except ValueError as problem:
        raise ConfigurationError(
            f"{dict(expressions)!r} are not APScheduler cron fields ({problem}); correct them or use cron()."
        ) from None
    if first is None:
        raise ConfigurationError(
            f"{dict(expressions)!r} never fires: no date matches all its fields; correct the day fields."
        )
    return APSchedulerCron(fields, tz, start, end)


def _calendar(
    lengths: tuple[Any, ...], first: date, time_of_day: time, tz: str, last: date | None
) -> CalendarInterval:
    if any(not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= 3653 for n in lengths) or not any(
        lengths
    ):
        raise ConfigurationError(
            f"{dict(zip(CALENDAR_UNITS, lengths, strict=True))} is not a calendar interval; give whole "
            "numbers from 0 to 3653, at least one of them above 0."
        )
    years, months, weeks, days = lengths
    if last is not None and first > last:
        raise ConfigurationError(f"first {first} is after last {last}; swap them or drop last.")
    return CalendarInterval(first, (years, months, weeks, days), time_of_day, zone_name(tz), last)


def _spread(calendar: Trigger, jitter: timedelta, name: str) -> Spread:
    fires = list(itertools.islice(calendar.resolved(EARLIEST).after(EARLIEST), 50))
    shortest = min(
        (later - earlier for earlier, later in itertools.pairwise(fires)), default=LONGEST_INTERVAL
    )
    if not ONE_MICROSECOND <= jitter < shortest:
        raise ConfigurationError(
            f"a jitter of {jitter.total_seconds():g} s is as long as from one fire to the next "
            f"({calendar.describe()}); lower it, well below {shortest.total_seconds():g} s."
        )
    return Spread(calendar, jitter, name)


def _some(members: list[Trigger]) -> tuple[Trigger, ...]:
    if not members:
        raise ConfigurationError("the combination [] has no members; give at least one trigger.")
    return tuple(sorted(members, key=lambda member: json.dumps(member.to_json(), sort_keys=True)))


# Reading JSON.


def _from_json(value: Mapping[str, Any]) -> Trigger:
    kind = str(value.get("kind"))
    if kind not in _KINDS:
        hint = did_you_mean(kind, _KINDS)
        raise ConfigurationError(
            f"{kind!r} is no kind of trigger; {hint}set kind to one of {', '.join(_KINDS)}."
        )
    return _KINDS[kind](value)


def _cron_from_json(value: Mapping[str, Any]) -> APSchedulerCron:
    check_keys(value, ["kind", "fields", "tz"], ["start", "end"])
    fields = value["fields"]
    if (
        not isinstance(fields, Mapping)
        or fields.keys() != set(CRON_FIELDS)
        or not all(isinstance(text, str) for text in fields.values())
    ):
        raise ConfigurationError(
            f"fields {fields!r} do not fit; give a text for each of {', '.join(CRON_FIELDS)}."
        )
    start, end = (moment_from_json(value, name) for name in ("start", "end"))
    return _cron(fields, zone_name(value["tz"]), start, end)


def _calendar_from_json(value: Mapping[str, Any]) -> CalendarInterval:
    check_keys(value, ["kind", *CALENDAR_UNITS, "first", "time", "tz"], ["last"])
    try:
        first, time_of_day = date.fromisoformat(value["first"]), time.fromisoformat(value["time"])
        last = date.fromisoformat(value["last"]) if "last" in value else None
    except (TypeError, ValueError) as problem:
        raise ConfigurationError(
            f"trigger {dict(value)!r}: {problem}; write dates like 2026-11-15 and the time like 02:30:00."
        ) from None
    lengths = tuple(value[unit] for unit in CALENDAR_UNITS)
    return _calendar(lengths, first, time_of_day.replace(tzinfo=None), value["tz"], last)


def _members_from_json(value: Mapping[str, Any]) -> tuple[Trigger, ...]:
    check_keys(value, ["kind", "members"], [])
    members = value["members"]
    if not isinstance(members, list):
        raise ConfigurationError(f"members {members!r} is not a list; give a list of triggers.")
    return _some([trigger_from_json(member) for member in members])


def _spread_from_json(value: Mapping[str, Any]) -> Spread:
    check_keys(value, ["kind", "jitter", "name", "of"], [])
    jitter, name = value["jitter"], value["name"]
    if not isinstance(jitter, int | float) or isinstance(jitter, bool) or not 0 < jitter < 1e8:
        raise ConfigurationError(f"jitter {jitter!r} is not a number of seconds; write it like 30.")
    if not isinstance(name, str):
        raise ConfigurationError(f"name {name!r} is not a text; write the name of the job.")
    return _spread(trigger_from_json(value["of"]), timedelta(seconds=jitter), name)


_KINDS: dict[str, Callable[[Mapping[str, Any]], Trigger]] = {
    "cron": _cron_from_json,
    "calendar": _calendar_from_json,
    "or": lambda value: AnyOf(_members_from_json(value)),
    "and": lambda value: AllOf(_members_from_json(value)),
    "spread": _spread_from_json,
}

# By exact type: a subclass may compute other times than its base.
_CONVERSIONS: dict[type, Callable[[Any], Trigger]] = {
    interval_module.IntervalTrigger: _from_interval,
    date_module.DateTrigger: _from_date,
    cron_module.CronTrigger: _from_cron,
    combining.OrTrigger: _from_or,
    combining.AndTrigger: _from_and,
}
if CalendarIntervalTrigger is not None:
    _CONVERSIONS[CalendarIntervalTrigger] = _from_calendar

register_trigger_type("apscheduler", _from_json, from_apscheduler)
