"""`rrule`: recurrence rules as calendar programs write them (RFC 5545)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from fencepost.errors import ConfigurationError
from fencepost.model.calendars.rules import RecurrenceRule, parsed
from fencepost.model.triggers.base import Trigger
from fencepost.model.triggers.times import (
    bounds,
    check_keys,
    declared,
    describe_bounds,
    moment_from_json,
    moments_to_json,
    zone,
    zone_name,
)
from fencepost.model.triggers.walls import clock_times, fires_on_the_clock, fixed_times

if TYPE_CHECKING:
    from fencepost.model.triggers.calendar import Calendar


def rrule(
    rule: str,
    start: datetime,
    tz: str | ZoneInfo | None = None,
    *,
    end: datetime | None = None,
    calendar: Calendar | None = None,
    closed: str = "exclude",
) -> Trigger:
    """A recurrence rule: `rrule("FREQ=MONTHLY;BYDAY=-1FR", start=datetime(2026, 11, 27, 17, tzinfo=ZURICH))`.

    `start` is where the rule counts from, and says what the rule does not: the time of day above all. Its zone is the
    one whose clock the rule follows, unless `tz` names another. COUNT and UNTIL end the rule, and so does `end`.

    When the zone's clock changes, a rule of days or longer means fixed times of day, as a `cron` without stars: a time
    that the clock skips fires when the gap ends, a repeated one in the first pass. Rules of hours, minutes or seconds
    follow the clock: a skipped time does not fire, a repeated one fires in both passes.

    `calendar` and `closed` as for `cron`. Needs `fencepost[calendars]`.
    """
    first = declared(start, "start")
    name = zone_name(tz if tz is not None else _zone_of(start))
    if isinstance(start.tzinfo, ZoneInfo) and start.tzinfo.key == name:
        wall = start.replace(tzinfo=UTC, fold=0)  # as written, also where the clock skips it that day
    else:
        wall = WallIn(name)(first)
    if wall.microsecond:
        raise ConfigurationError(f"start {start.isoformat()} has a fraction of a second; leave it out.")
    _, end = bounds(None, end)
    trigger = RRule(_checked(rule, wall, name), wall, name, end)
    return trigger if calendar is None else trigger.on(calendar, closed)


@dataclass(frozen=True, slots=True)
class RRule(Trigger):
    """Made by `rrule`."""

    rule: str
    first: datetime
    """A wall: what the clock of the zone shows when the rule starts."""
    tz: str
    end: datetime | None = None

    def describe(self) -> str:
        start = f"{self.first:%Y-%m-%d %H:%M:%S}"
        return f"rrule {self.rule} in {self.tz}, from {start}{describe_bounds(None, self.end)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "rrule",
            "rule": self.rule,
            "first": f"{self.first:%Y-%m-%dT%H:%M:%S}",
            "tz": self.tz,
            **moments_to_json(end=self.end),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        rule = _parsed(self.rule, self.first, self.tz)
        clock = clock_times if rule.within_days else fixed_times
        return fires_on_the_clock(rule.walls_after, zone(self.tz), clock, moment, None, self.end)


@dataclass(frozen=True)
class WallIn:
    tz: str

    def __call__(self, moment: datetime) -> datetime:
        return moment.astimezone(zone(self.tz)).replace(tzinfo=UTC, fold=0)


def rrule_from_json(value: Mapping[str, Any]) -> RRule:
    check_keys(value, ["rule", "first", "tz"], ["end"])
    try:
        wall = datetime.strptime(value["first"], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"first {value['first']!r} is not a local time; write it like 2026-11-27T17:00:00."
        ) from None
    _, end = bounds(None, moment_from_json(value, "end"))
    name = zone_name(value["tz"])
    return RRule(_checked(value["rule"], declared(wall, "first"), name), wall, name, end)


def _checked(rule: str, wall: datetime, tz: str) -> str:
    if not isinstance(rule, str):
        raise ConfigurationError(f'{rule!r} is not a recurrence rule; give "FREQ=MONTHLY;BYDAY=-1FR".')
    rule = rule.strip().removeprefix("RRULE:").upper()
    return _parsed(rule, wall, tz).text


def _parsed(rule: str, wall: datetime, tz: str) -> RecurrenceRule:
    return parsed(rule, wall, WallIn(tz))


def _zone_of(start: datetime) -> str:
    if isinstance(start.tzinfo, ZoneInfo):
        return start.tzinfo.key
    if start.tzinfo is UTC:
        return "UTC"
    raise ConfigurationError(
        f'start {start.isoformat()} names no zone; add tz="Europe/Zurich", whose clock the rule follows.'
    )
