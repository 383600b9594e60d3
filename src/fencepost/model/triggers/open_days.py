"""A trigger that keeps to a calendar: on closed days its fires are left out, or move to the next open day."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from heapq import heappop, heappush
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import LeftOut, Trigger
from fencepost.model.triggers.calendar import Calendar, calendar_from_json
from fencepost.model.triggers.times import (
    EARLIEST,
    LATEST,
    ONE_DAY,
    ONE_MICROSECOND,
    as_utc,
    check_keys,
    did_you_mean,
    zone,
)
from fencepost.model.triggers.walls import instant_of

CLOSED = ("exclude", "shift")
MOST_STEPS = 5_000
"""Closed days in a row that are searched for an open one."""
MOST_SHIFTED = 1_440
"""Fires a day that `shift` may move: one a minute."""


def on_open_days(of: Trigger, calendar: Calendar, closed: str) -> OpenDays:
    if not isinstance(calendar, Calendar):
        raise ConfigurationError(
            f'{calendar!r} is not a calendar; give Calendar("zurich", holidays="CH-ZH").'
        )
    trigger = OpenDays(of, calendar, _checked_closed(closed))
    if not trigger.is_bound:
        return trigger
    sample = trigger.resolved(EARLIEST)
    if (first := sample.next_after(EARLIEST)) is None:
        raise ConfigurationError(f"{trigger.describe()!r} never fires: all its days are closed; open some.")
    day = itertools.takewhile(lambda fire: fire <= first + ONE_DAY, sample.of.after(first))
    if closed == "shift" and sum(1 for _ in itertools.islice(day, MOST_SHIFTED + 1)) > MOST_SHIFTED:
        raise ConfigurationError(
            f"{of.describe()!r} fires more than once a minute, too often to be moved to another day; "
            'use closed="exclude".'
        )
    return trigger


@dataclass(frozen=True, slots=True)
class OpenDays(Trigger):
    """Made by `calendar=` and `Trigger.on`."""

    of: Trigger
    calendar: Calendar
    closed: str = "exclude"

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.of,)

    @property
    def local_zone(self) -> str:
        return self.calendar.tz or self.of.local_zone or "UTC"

    def left_out(self, moment: datetime, until: datetime) -> Iterator[LeftOut]:
        found = itertools.takewhile(lambda left: left.at <= until, self._left_out(moment, until))
        inner = (left for left in self.of.left_out(moment, until) if left.moved_to is None)
        return iter(sorted(itertools.chain(found, inner), key=lambda left: left.at))

    def resolved(self, anchor: datetime) -> OpenDays:
        return replace(self, of=self.of.resolved(anchor))

    def bound(self, job_id: str) -> OpenDays:
        return self if self.is_bound else on_open_days(self.of.bound(job_id), self.calendar, self.closed)

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        found = (self._moved(fire) for fire in self.of.listed_until(moment))
        return tuple(sorted({fire for fire in found if fire is not None and fire <= moment}))

    def describe(self) -> str:
        what = "left out" if self.closed == "exclude" else "moved to the next open day"
        zone = "" if self.local_zone == self.of.local_zone else f" (days of {self.local_zone})"
        return f"{self.of.describe()}; {what} when {self.calendar.name} is closed{zone}"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "calendar",
            "of": self.of.to_json(),
            "calendar": self.calendar.to_json(),
            "closed": self.closed,
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return self._open(moment) if self.closed == "exclude" else self._shifted(moment)

    def _open(self, moment: datetime) -> Iterator[datetime]:
        """From each closed fire leap to where its closed day ends: there may be a fire every second."""
        fires, leaps = self.of.after(moment), 0
        while leaps < MOST_STEPS:
            for fire in fires:
                if self._why_closed(fire) is not None:
                    break
                leaps = 0
                yield fire
            else:
                return
            fires, leaps = self.of.after(max(fire, self._closed_until(fire) - ONE_MICROSECOND)), leaps + 1

    def _shifted(self, moment: datetime) -> Iterator[datetime]:
        """A fire moves to its own time or later, never before: when the trigger has come to a time, what is to
        fire before it is known."""
        latest = moment
        waiting: list[datetime] = []
        for nominal in self.of.after(self._reaching(moment)):
            while waiting and waiting[0] < nominal:
                if (fire := heappop(waiting)) > latest:
                    yield (latest := fire)
            if (moved := self._moved(nominal)) is not None:
                heappush(waiting, moved)
        for fire in sorted(set(waiting)):
            if fire > latest:
                yield fire

    def _reaching(self, moment: datetime) -> datetime:
        """Fires at or before this are not moved to after `moment`: the start of the closed days that are going on."""
        if not EARLIEST < moment < LATEST:
            return moment
        day = first = self._day(moment)
        for _ in range(MOST_STEPS):
            if not self._may_be_closed(first - ONE_DAY):
                break
            first -= ONE_DAY
        if first == day and not self._may_be_closed(day):
            return moment
        return min(moment, self._start_of(first) - ONE_MICROSECOND)

    def _moved(self, fire: datetime) -> datetime | None:
        """The same time of the first day on which it is open; None: there is none."""
        if self._why_closed(fire) is None:
            return fire
        if self.closed == "exclude":
            return None
        tz = zone(self.local_zone)
        wall = fire.astimezone(tz).replace(tzinfo=UTC, fold=0)
        for _ in range(MOST_STEPS):
            wall += ONE_DAY
            moved = instant_of(wall, tz)
            if moved > fire and self._why_closed(moved) is None:
                return moved
        return None

    def _left_out(self, moment: datetime, until: datetime) -> Iterator[LeftOut]:
        """From each open day leap to the next day."""
        moment = max(as_utc(moment, "moment"), EARLIEST)
        while moment <= until:
            for fire in self.of.after(moment):
                why = self._why_closed(fire)
                if why is None or fire > until:
                    break
                moved = self._moved(fire)
                yield LeftOut(fire, why, moved)
            else:
                return
            following = self._start_of(self._day(fire) + ONE_DAY) - ONE_MICROSECOND
            blackout = self.calendar.next_blackout(fire)
            moment = max(fire, following if blackout is None else min(following, blackout - ONE_MICROSECOND))

    def _why_closed(self, moment: datetime) -> str | None:
        if (why := self.calendar.closed_day(self._day(moment))) is not None:
            return why
        blackout = self.calendar.blackout_at(moment)
        return None if blackout is None else blackout.why

    def _closed_until(self, moment: datetime) -> datetime:
        """Of a closed moment: until when it stays so at least."""
        blackout = self.calendar.blackout_at(moment)
        if blackout is not None:
            return blackout.end
        return self._start_of(self._day(moment) + ONE_DAY)

    def _may_be_closed(self, day: date) -> bool:
        if self.calendar.closed_day(day) is not None:
            return True
        if not self.calendar.blackouts:
            return False
        return self.calendar.blackout_within(self._start_of(day), self._start_of(day + ONE_DAY) + ONE_DAY)

    def _day(self, moment: datetime) -> date:
        return moment.astimezone(zone(self.local_zone)).date()

    def _start_of(self, day: date) -> datetime:
        """Of the two readings of a midnight that the clock repeats or skips the earlier one: no fire of the day is
        before it."""
        midnight = datetime.combine(day, time(), zone(self.local_zone))
        return min(midnight.astimezone(UTC), midnight.replace(fold=1).astimezone(UTC))


def open_days_from_json(value: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Trigger]) -> OpenDays:
    check_keys(value, ["of", "calendar", "closed"], [])
    return OpenDays(
        read(value["of"]), calendar_from_json(value["calendar"]), _checked_closed(value["closed"])
    )


def _checked_closed(closed: Any) -> str:
    if closed not in CLOSED:
        hint = did_you_mean(closed, CLOSED)
        raise ConfigurationError(f"closed={closed!r} is not known; {hint}use one of {', '.join(CLOSED)}.")
    return str(closed)
