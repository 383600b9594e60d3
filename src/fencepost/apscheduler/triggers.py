"""APScheduler's triggers as Fencepost's: `from_apscheduler(CronTrigger(hour=2))`.

Never pickled: each becomes a value with a JSON form. Its fires keep the promises of `fencepost.triggers`,
strictly increasing and independent of the instant of asking, which APScheduler's own do not near clock
changes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from heapq import heappop, heappush, merge
from typing import Any
from zoneinfo import ZoneInfo

import apscheduler.triggers.combining as combining
import apscheduler.triggers.cron as cron_module
import apscheduler.triggers.date as date_module
import apscheduler.triggers.interval as interval_module

from fencepost.errors import ConfigurationError
from fencepost.triggers import (
    EARLIEST,
    LONGEST_INTERVAL,
    ONE_MICROSECOND,
    At,
    Every,
    Trigger,
    at,
    bounds,
    check_keys,
    describe_bounds,
    did_you_mean,
    every,
    fires_on_the_clock,
    iso,
    moment_from_json,
    moments_to_json,
    register_trigger_type,
    trigger_from_json,
    zone,
    zone_name,
)

try:  # since APScheduler 3.11
    from apscheduler.triggers.calendarinterval import (  # type: ignore[import-untyped, unused-ignore]
        CalendarIntervalTrigger,
    )
except ImportError:
    CalendarIntervalTrigger = None

CRON_FIELDS: tuple[str, ...] = tuple(cron_module.CronTrigger.FIELD_NAMES)
CALENDAR_UNITS = ("years", "months", "weeks", "days")
MOST_LEAPS = 10_000

# APScheduler searches for a match until its end date: without one, until the year 9999.
HORIZON = datetime(2200, 1, 1, tzinfo=UTC)


def from_apscheduler(trigger: Any, *, spread: str | None = None) -> Trigger:
    """The same schedule as a Fencepost trigger.

    - An interval trigger is the grid start_date, start_date + interval, … A start_date with a fraction of a
      second is the one APScheduler makes up from the current time when none is given; as it differs from
      replica to replica, the anchor is left open, and the store sets it.
    - A cron trigger keeps APScheduler's reading of its fields. A time that the clock skips fires as much
      later as the clock was advanced; a repeated one fires in both passes.
    - A calendar interval skips a time that the clock skips; a repeated one fires in the first pass.
    - "or" fires whenever one of its members does, "and" when all of them do.
    - With jitter, fires are moved by what looks like chance and is derived from the name `spread` and the time: the
      same on every replica, and another for every name. Without a name jitter is refused.
    """
    convert = _CONVERSIONS.get(type(trigger))
    if convert is None:
        known = ", ".join(sorted(kind.__name__ for kind in _CONVERSIONS))
        raise ConfigurationError(
            f"{trigger!r} cannot be converted; use one of APScheduler's {known}, or every(), cron(), at()."
        )
    if not getattr(trigger, "jitter", None):
        return convert(trigger)
    if spread is None:
        raise ConfigurationError(
            f"{trigger!r} has jitter={trigger.jitter}, so its fires are random; remove jitter=, "
            "and spread the load by giving jobs different minutes or anchors."
        )
    return _spread(convert(trigger), timedelta(seconds=trigger.jitter), spread)


@dataclass(frozen=True, slots=True)
class APSchedulerCron(Trigger):
    """The fields of an APScheduler `CronTrigger`, one expression for each of `CRON_FIELDS`."""

    fields: tuple[str, ...]
    tz: str
    start: datetime | None = None
    end: datetime | None = None

    def describe(self) -> str:
        named = zip(CRON_FIELDS, self.fields, strict=True)
        given = [f"{name}={text}" for name, text in named if text != "*"] or ["second=*"]
        return f"APScheduler cron {', '.join(given)} in {self.tz}{describe_bounds(self.start, self.end)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "apscheduler",
            "kind": "cron",
            "fields": dict(zip(CRON_FIELDS, self.fields, strict=True)),
            "tz": self.tz,
            **moments_to_json(start=self.start, end=self.end),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return fires_on_the_clock(self._walls_after, zone(self.tz), _shifted, moment, self.start, self.end)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        engine = _engine(self.fields)
        found = engine.get_next_fire_time(None, wall)
        while found is not None:
            yield found
            found = engine.get_next_fire_time(None, found + ONE_MICROSECOND)


@dataclass(frozen=True, slots=True)
class CalendarInterval(Trigger):
    """Every so many years, months, weeks and days from `first`, at one time of day."""

    first: date
    every: tuple[int, int, int, int]  # CALENDAR_UNITS
    time_of_day: time
    tz: str
    last: date | None = None

    def describe(self) -> str:
        length = " ".join(f"{n} {unit}" for n, unit in zip(self.every, CALENDAR_UNITS, strict=True) if n)
        until = "" if self.last is None else f", until {self.last}"
        return f"every {length} at {self.time_of_day} in {self.tz}, from {self.first}{until}"

    def to_json(self) -> dict[str, Any]:
        value = {
            "type": "apscheduler",
            "kind": "calendar",
            **dict(zip(CALENDAR_UNITS, self.every, strict=True)),
            "first": self.first.isoformat(),
            "time": self.time_of_day.isoformat(),
            "tz": self.tz,
        }
        return value if self.last is None else {**value, "last": self.last.isoformat()}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return fires_on_the_clock(self._walls_after, zone(self.tz), _regular, moment, None, None)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        days = self._dates_around(wall.date())
        if self.last is not None:
            last = self.last
            days = itertools.takewhile(lambda day: day <= last, days)
        return (datetime.combine(day, self.time_of_day, UTC) for day in days)

    def _dates_around(self, goal: date) -> Iterator[date]:
        """The dates from some time before `goal` on; always counted from `first`."""
        years, months, weeks, days = self.every
        current, step = self.first, timedelta(weeks=weeks, days=days)
        if not years and not months:  # the only ones that can be many
            current += max(0, (goal - current) // step) * step
        month = 12 * years + months
        while current < HORIZON.date():
            yield current
            current = _months_later(current, month) + step


@dataclass(frozen=True, slots=True)
class AnyOf(Trigger):
    """Fires whenever one of its members does."""

    members: tuple[Trigger, ...]

    def resolved(self, anchor: datetime) -> AnyOf:
        return replace(self, members=tuple(member.resolved(anchor) for member in self.members))

    def describe(self) -> str:
        return "; or ".join(member.describe() for member in self.members)

    def to_json(self) -> dict[str, Any]:
        return {"type": "apscheduler", "kind": "or", "members": [member.to_json() for member in self.members]}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        fires = merge(*(member.after(moment) for member in self.members))
        return (fire for fire, _ in itertools.groupby(fires))


@dataclass(frozen=True, slots=True)
class AllOf(Trigger):
    """Fires when all of its members do at the same instant."""

    members: tuple[Trigger, ...]

    def resolved(self, anchor: datetime) -> AllOf:
        return replace(self, members=tuple(member.resolved(anchor) for member in self.members))

    def describe(self) -> str:
        return "; and ".join(member.describe() for member in self.members)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "apscheduler",
            "kind": "and",
            "members": [member.to_json() for member in self.members],
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        while (agreed := self._agreed_after(moment)) is not None:
            yield (moment := agreed)

    def _agreed_after(self, moment: datetime) -> datetime | None:
        for _ in range(MOST_LEAPS):
            fires = [member.next_after(moment) for member in self.members]
            known = [fire for fire in fires if fire is not None]
            if len(known) < len(fires):
                return None
            if min(known) == max(known):
                return known[0]
            moment = max(known) - ONE_MICROSECOND  # nobody agrees before the latest proposal
        raise ConfigurationError(
            f"{self.describe()!r}: no common fire found in {MOST_LEAPS} steps; combine only triggers that "
            "fire at times of day, or use one cron()."
        )


@dataclass(frozen=True, slots=True)
class Spread(Trigger):
    """The fires of another trigger, each moved by up to `jitter`, earlier or later."""

    calendar: Trigger
    jitter: timedelta
    name: str

    def resolved(self, anchor: datetime) -> Spread:
        return replace(self, calendar=self.calendar.resolved(anchor))

    def describe(self) -> str:
        return f"{self.calendar.describe()}, spread by up to {self.jitter.total_seconds():g} s"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "apscheduler",
            "kind": "spread",
            "jitter": self.jitter.total_seconds(),
            "name": self.name,
            "of": self.calendar.to_json(),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        # Less than the smallest distance of two fires: each can only change places with its neighbours.
        latest, waiting = moment, list[datetime]()
        for nominal in self.calendar.after(moment - self.jitter - ONE_MICROSECOND):
            heappush(waiting, nominal + self._offset(nominal))
            while waiting and waiting[0] <= nominal - self.jitter:
                if (fire := heappop(waiting)) > latest:
                    yield (latest := fire)
        for fire in sorted(waiting):
            if fire > latest:
                yield (latest := fire)

    def _offset(self, nominal: datetime) -> timedelta:
        digest = hashlib.sha256(f"{self.name}@{iso(nominal)}".encode()).digest()
        share = int.from_bytes(digest[:6]) / 2**48
        return (2 * share - 1) * self.jitter


# Clock rules; see fencepost.triggers.


def _shifted(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """APScheduler's: a skipped wall is read with the offset before the gap, a repeated one fires twice."""
    return (before, after) if before < after else (before,)


def _regular(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """A skipped wall does not fire, a repeated one fires in the first pass."""
    return (before,) if before < after else ()


@lru_cache(maxsize=1024)
def _engine(fields: tuple[str, ...]) -> Any:
    # In UTC it steps over walls, undisturbed by its own handling of zones.
    named = dict(zip(CRON_FIELDS, fields, strict=True))
    return cron_module.CronTrigger(**named, timezone=UTC, end_date=HORIZON)


def _months_later(day: date, months: int) -> date:
    """The same day of the month, `months` later; where a month lacks it, as many months on again."""
    if not months:
        return day
    for count in itertools.count(1):
        years, month = divmod(day.month - 1 + count * months, 12)
        try:
            return date(day.year + years, month + 1, day.day)
        except ValueError:
            if day.year + years > HORIZON.year:
                break
    return HORIZON.date()


# From APScheduler's objects.


def _from_interval(trigger: Any) -> Every:
    implicit = trigger.start_date.microsecond != 0
    grid = every(trigger.interval, end=trigger.end_date)  # checks the interval first
    if implicit:
        return grid
    return every(trigger.interval, anchor=trigger.start_date.astimezone(UTC) - trigger.interval, end=grid.end)


def _from_date(trigger: Any) -> At:
    return at(trigger.run_date)


def _from_cron(trigger: Any) -> APSchedulerCron:
    expressions = {field.name: str(field) for field in trigger.fields}
    ours = _cron(expressions, _zone_name(trigger.timezone), trigger.start_date, trigger.end_date)
    if _meaning(_engine(ours.fields)) != _meaning(trigger):  # APScheduler writes "0-0/5" as "0/5"
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
        first = _engine(fields).get_next_fire_time(None, datetime(1970, 1, 1, tzinfo=UTC))
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

register_trigger_type("apscheduler", _from_json)
