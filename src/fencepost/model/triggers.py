"""When a job is due: `every`, `cron` and `at`.

Pure: nothing here reads a clock. A trigger is a value, and the fires it answers are a function of that
value alone, never of the instant of asking: `next_after(t)` is the first element after `t` of one fixed
sequence. That is what lets every replica, and the audit years later, compute the same fire keys.
All fires are aware datetimes in UTC, strictly increasing.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from heapq import heappop, heappush
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from fencepost.errors import ConfigurationError
from fencepost.model import integrations

SHORTEST_INTERVAL = timedelta(milliseconds=10)
LONGEST_INTERVAL = timedelta(days=3653)  # ten years
MOST_MOMENTS = 10_000
INTEGRATIONS = "fencepost.triggers"
"""Their entry points. They are imported when first met, because they may need an extra."""

# Outside of these no calendar or time zone arithmetic can overflow.
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)

ONE_MICROSECOND = timedelta(microseconds=1)
ONE_SECOND = timedelta(seconds=1)
ONE_DAY = timedelta(days=1)


class Trigger(ABC):
    """A fixed sequence of fires."""

    __slots__ = ()

    @property
    def foreign(self) -> str | None:
        """Why this host cannot work out the fires; None: it can."""
        return None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The fires strictly after `moment`, in UTC, strictly increasing."""
        return self._after(as_utc(moment, "moment"))

    def next_after(self, moment: datetime) -> datetime | None:
        """The first fire strictly after `moment`, or None when there are no more."""
        return next(self.after(moment), None)

    def count_after(self, moment: datetime, until: datetime) -> int:
        """How many fires lie in (moment, until]."""
        until = as_utc(until, "until")
        return sum(1 for _ in itertools.takewhile(lambda fire: fire <= until, self.after(moment)))

    def resolved(self, anchor: datetime) -> Trigger:
        """This trigger with an open anchor filled in; itself if there is none."""
        return self

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        """The fires up to `moment` that the trigger names one by one. A job that is declared after them accounts for
        them; a recurring calendar names none, and simply begins when it is declared."""
        return ()

    @abstractmethod
    def describe(self) -> str:
        """In words, with the expression and the zone."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The canonical form: equal triggers have equal JSON. `trigger_from_json` reads it back."""

    @abstractmethod
    def _after(self, moment: datetime) -> Iterator[datetime]:
        """`after`, with the moment already in UTC."""


def every(
    interval: timedelta | None = None,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> Every:
    """A fixed grid, start to start, in absolute time: `every(minutes=5)`.

    Fires at anchor + interval, anchor + 2 * interval, … as far as they lie in [start, end]. Daylight saving
    does not matter: an hour is 3600 seconds. Without `anchor` the store sets one when the job is first
    declared, and keeps it.
    """
    parts = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    length = _interval(interval, {unit: amount for unit, amount in parts.items() if amount != 0})
    start, end = bounds(start, end)
    return Every(length, None if anchor is None else declared(anchor, "anchor"), start, end)


def cron(
    expression: str,
    tz: str | ZoneInfo = "UTC",
    *,
    start: datetime | None = None,
    end: datetime | None = None,
) -> Cron:
    """Wall-clock times in a zone: `cron("30 2 * * *", tz="Europe/Zurich")`.

    Five fields (minute, hour, day of month, month, day of week), or six with seconds first; names, ranges,
    lists, steps, `L` and `LW` as days of the month, `5L` and `MON#1` as days of the week. Sunday is 0 or 7.
    When both day fields are restricted a day need match only one of them; a day field that begins with a
    star must match in any case.

    When the zone's clock changes:

    - An expression whose second, minute and hour fields do not begin with a star means fixed times of day.
      A time that the clock skips (a gap) fires once, at the instant the gap ends; several skipped times
      fire once together. A time that the clock repeats (a fold) fires once, in the first pass.
    - With a star at the beginning of one of those fields the expression follows the clock: it fires at every
      real instant whose wall-clock time matches. So a skipped time does not fire, and a repeated one
      fires in both passes; `*/30 * * * *` and `0 * * * *` keep their distance in elapsed time across a
      change of an hour. (`*/5 2 * * *` does not fire on the day that has no hour 2, and
      `0 */2 * * *` counts hours of the clock, not elapsed ones.)
    """
    expression = _cron_expression(expression)
    start, end = bounds(start, end)
    return Cron(expression, zone_name(tz), start, end)


def at(*moments: datetime) -> At:
    """One or more given moments: `at(datetime(2026, 11, 15, 12, tzinfo=ZoneInfo("Europe/Zurich")))`."""
    if not moments:
        raise ConfigurationError("at() has no moments; give at least one datetime, e.g. at(moment).")
    if len(moments) > MOST_MOMENTS:
        raise ConfigurationError(
            f"at() was given {len(moments)} moments, more than {MOST_MOMENTS}; use every() or cron(), "
            "or split them over several jobs."
        )
    return At(tuple(sorted({declared(moment, "moment") for moment in moments})))


def trigger_from_json(value: Mapping[str, Any]) -> Trigger:
    """The trigger that `to_json` wrote. The value comes from outside: everything is checked."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f'{value!r} is not a trigger; give an object like {{"type": "every", …}}.')
    kind = str(value.get("type"))
    if kind not in _READERS and kind in integrations.registered(INTEGRATIONS):
        _import_for(kind)
    if kind not in _READERS:
        known = sorted(_READERS.keys() | integrations.registered(INTEGRATIONS))
        hint = did_you_mean(kind, known)
        raise ConfigurationError(f"{kind!r} is no trigger type; {hint}set type to one of {', '.join(known)}.")
    return _READERS[kind](value)


def stored_trigger(value: Mapping[str, Any]) -> Trigger:
    """The same from a store, which other hosts write to. One that names a zone or a type that is not known here can
    be kept and written back, but not expanded."""
    try:
        return trigger_from_json(value)
    except ConfigurationError as error:
        if not isinstance(dict(value).get("type"), str):
            raise
        return Foreign(json.dumps(value, sort_keys=True), str(error))


@dataclass(frozen=True, slots=True)
class Foreign(Trigger):
    """A trigger of another host, as its JSON: this one does not know the zone or the type that it names."""

    text: str
    why: str = field(compare=False)

    @property
    def foreign(self) -> str:
        return self.why

    def describe(self) -> str:
        return f"{self.text}, which this host does not know"

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        return value

    def _after(self, moment: datetime) -> Iterator[datetime]:
        raise ConfigurationError(f"{self.text} cannot be expanded here: {self.why}")


def register_trigger_type(
    name: str,
    read: Callable[[Mapping[str, Any]], Trigger],
    convert: Callable[[Any], Trigger] | None = None,
) -> None:
    """Let `trigger_from_json` read another type. `read` must check what it is given. `convert` makes one of a trigger
    of the library of that name."""
    _READERS[name] = read
    if convert is not None:
        _CONVERTERS[name] = convert


def converted(given: Any) -> Trigger | None:
    """A trigger of another library as ours; None: no integration is registered for that library."""
    library = type(given).__module__.partition(".")[0]
    if library not in _CONVERTERS and library in integrations.registered(INTEGRATIONS):
        _import_for(library)
    convert = _CONVERTERS.get(library)
    return None if convert is None else convert(given)


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


@dataclass(frozen=True, slots=True)
class Every(Trigger):
    """Made by `every`."""

    interval: timedelta
    anchor: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None

    def count_after(self, moment: datetime, until: datetime) -> int:
        first = self._grid_points_until(self._not_before_start(as_utc(moment, "moment")))
        last = self._grid_points_until(min(as_utc(until, "until"), self.end or LATEST))
        return max(0, last - first)

    def resolved(self, anchor: datetime) -> Every:
        if self.anchor is not None:
            return self
        return replace(self, anchor=declared(anchor, "anchor").replace(microsecond=0))

    def describe(self) -> str:
        return f"every {_in_words(self.interval)}{describe_bounds(self.start, self.end)}"

    def to_json(self) -> dict[str, Any]:
        microseconds = self.interval // ONE_MICROSECOND
        whole = microseconds % 1_000_000 == 0
        length = {"seconds": microseconds // 1_000_000} if whole else {"microseconds": microseconds}
        moments = moments_to_json(anchor=self.anchor, start=self.start, end=self.end)
        return {"type": "every", **length, **moments}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        origin, end = self._origin(), self.end or LATEST
        next_point = self._grid_points_until(self._not_before_start(moment)) + 1
        fires = (origin + point * self.interval for point in itertools.count(next_point))
        return itertools.takewhile(lambda fire: fire <= end, fires) if moment < end else iter(())

    def _grid_points_until(self, moment: datetime) -> int:
        # timedelta // timedelta is exact integer arithmetic: no drift, however far from the anchor.
        return max(0, (moment - self._origin()) // self.interval)

    def _not_before_start(self, moment: datetime) -> datetime:
        return moment if self.start is None else max(moment, self.start - ONE_MICROSECOND)

    def _origin(self) -> datetime:
        if self.anchor is None:
            raise ConfigurationError(
                f"{self.describe()!r} has no anchor yet: the store sets it when the job is declared; "
                "call resolved(anchor) or give every(…, anchor=…) to use the trigger by itself."
            )
        return self.anchor


@dataclass(frozen=True, slots=True)
class Cron(Trigger):
    """Made by `cron`."""

    expression: str
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None

    def describe(self) -> str:
        return f"cron {self.expression} in {self.tz}{describe_bounds(self.start, self.end)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "cron",
            "expression": self.expression,
            "tz": self.tz,
            **moments_to_json(start=self.start, end=self.end),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        times_of_day = self.expression.split()[:-3]
        follows_the_clock = any(field.startswith("*") for field in times_of_day)
        rule = clock_times if follows_the_clock else fixed_times
        return fires_on_the_clock(self._walls_after, zone(self.tz), rule, moment, self.start, self.end)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        # One simulator per iteration, and a copy of a parsed one: parsing costs more than a step.
        simulator = copy(_parsed(self.expression))
        simulator.dt = wall.replace(microsecond=0)
        return simulator


@dataclass(frozen=True, slots=True)
class At(Trigger):
    """Made by `at`."""

    moments: tuple[datetime, ...]

    def count_after(self, moment: datetime, until: datetime) -> int:
        first = bisect_right(self.moments, as_utc(moment, "moment"))
        return max(0, bisect_right(self.moments, as_utc(until, "until")) - first)

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        return self.moments[: bisect_right(self.moments, as_utc(moment, "moment"))]

    def describe(self) -> str:
        first, *others = (_readable(moment) for moment in self.moments)
        if len(others) < 3:
            return "at " + ", ".join([first, *others])
        return f"at {first} and {len(others)} more until {others[-1]}"

    def to_json(self) -> dict[str, Any]:
        return {"type": "at", "moments": [iso(moment) for moment in self.moments]}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return itertools.islice(self.moments, bisect_right(self.moments, moment), None)


# From wall clocks to instants. A "wall" is what a clock on the wall shows, kept as a datetime that is
# labelled UTC only for cheap arithmetic. Cron engines step over walls, where there are no gaps and folds;
# which instants a wall stands for is decided here. (The engines' own zone handling depends on the instant
# of asking: cronsim, started in the second pass of a fold, answers a time already past; it fires at
# midnights that a gap skips only when it arrives from another day; and it loses the half hour after Lord
# Howe's 30-minute change.)

ClockRule = Callable[[datetime, datetime, ZoneInfo], tuple[datetime, ...]]
"""Which instants an irregular wall stands for, given it read with the offset before the change and with the
offset after. In a fold the first reading is the earlier one, in a gap it is the later one."""


def fixed_times(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """A skipped time fires when the gap ends, a repeated one in the first pass."""
    return (before,) if before < after else (_change_between(after, before, tz),)


def clock_times(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """A skipped time does not fire, a repeated one fires in both passes."""
    return (before, after) if before < after else ()


def fires_on_the_clock(
    walls_after: Callable[[datetime], Iterable[datetime]],
    tz: ZoneInfo,
    rule: ClockRule,
    moment: datetime,
    start: datetime | None,
    end: datetime | None,
) -> Iterator[datetime]:
    """The instants in (moment, end], not before start, of the walls that `walls_after(wall)` answers.

    They come in order; walls at or before the given one may be among them, and are dropped.
    """
    last = end or LATEST
    moment = max(moment, EARLIEST if start is None else start - ONE_MICROSECOND)
    if moment >= last:
        return iter(())
    walls = walls_after(_wall_safely_before(moment, tz))
    fires = _instants(walls, tz, rule, moment)
    return itertools.takewhile(lambda fire: fire <= last, fires)


def _wall_safely_before(moment: datetime, tz: ZoneInfo) -> datetime:
    """A wall such that no earlier wall fires after `moment`.

    Away from clock changes that is what the clock shows. Within a day of a change the clock may show again
    what it showed before, so step back by the size of the change: the fires then do not depend on the
    moment of asking. No zone has changed by more than 24 hours, nor twice within two days of consequence.
    """
    here = _offset_at(moment, tz)
    nearby = (_offset_at(moment - ONE_DAY, tz), here, _offset_at(moment + ONE_DAY, tz))
    return moment + here - (max(nearby) - min(nearby))


def _instants(
    walls: Iterable[datetime], tz: ZoneInfo, rule: ClockRule, moment: datetime
) -> Iterator[datetime]:
    """Walls to instants after `moment`, put in order and without repetition."""
    latest = moment
    pending: list[datetime] = []
    for wall in walls:
        local = wall.replace(tzinfo=tz)
        before = wall - _offset_of(local)
        after = wall - _offset_of(local.replace(fold=1))
        if before == after and not pending:  # nearly always
            if before > latest:
                latest = before
                yield before
            continue
        for fire in (before,) if before == after else rule(before, after, tz):
            heappush(pending, fire)
        # Later walls fire later than both readings' minimum: up to there the order is settled.
        while pending and pending[0] <= min(before, after):
            if (fire := heappop(pending)) > latest:
                latest = fire
                yield fire
    while pending:
        if (fire := heappop(pending)) > latest:
            latest = fire
            yield fire


def _change_between(low: datetime, high: datetime, tz: ZoneInfo) -> datetime:
    """The instant in (low, high] at which the zone's offset changes, to the second."""
    old = _offset_at(low, tz)
    while high - low > ONE_SECOND:
        middle = low + (high - low) // (2 * ONE_SECOND) * ONE_SECOND
        if _offset_at(middle, tz) == old:
            low = middle
        else:
            high = middle
    return high


def _offset_at(instant: datetime, tz: ZoneInfo) -> timedelta:
    return _offset_of(instant.astimezone(tz))


def _offset_of(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None
    return offset


# Checking what comes from outside.


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
    after = "" if start is None else f", from {_readable(start)}"
    return after if end is None else f"{after}, until {_readable(end)}"


def _interval(interval: timedelta | None, parts: dict[str, float]) -> timedelta:
    if interval is not None and not isinstance(interval, timedelta):
        raise ConfigurationError(f"{interval!r} is not a timedelta; name its unit, e.g. every(seconds=30).")
    if interval is not None and parts:
        raise ConfigurationError(f"every() got {interval!r} and {parts}; give either a timedelta or units.")
    try:
        length = timedelta(**parts) if interval is None else interval
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"{parts} is not a duration; give numbers, e.g. every(minutes=5).") from None
    if not SHORTEST_INTERVAL <= length <= LONGEST_INTERVAL:
        raise ConfigurationError(
            f"an interval of {length} does not work; give one from 10 ms to ten years, e.g. every(minutes=5)."
        )
    return length


def _cron_expression(expression: str) -> str:
    if not isinstance(expression, str):
        raise ConfigurationError(f'{expression!r} is not a cron expression; give a text like "30 2 * * *".')
    expression = " ".join(expression.split())
    try:
        next(copy(_parsed(expression)))
    except (CronSimError, ValueError) as problem:
        raise ConfigurationError(
            f"{expression!r} is not a cron expression that can fire ({problem}); write minute, hour, "
            'day of month, month, day of week, e.g. "30 2 * * MON-FRI".'
        ) from None
    except StopIteration:  # cronsim gives up after 50 years
        raise ConfigurationError(
            f"{expression!r} never fires: no date matches all its fields; correct the day and month fields."
        ) from None
    return expression


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> CronSim:
    # In UTC, and in a leap year: what does not match within the 50 years that cronsim tries never will.
    return CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))


def _in_words(length: timedelta) -> str:
    minutes, seconds = divmod(length, timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    whole_weeks = length % timedelta(weeks=1) == timedelta()
    weeks, days = divmod(days, 7) if whole_weeks else (0, days)
    amounts: dict[str, float] = {"week": weeks, "day": days, "hour": hours, "minute": minutes}
    amounts["second"] = seconds / ONE_SECOND
    named = [(amount, unit) for unit, amount in amounts.items() if amount]
    if len(named) == 1 and named[0][0] == 1:
        return named[0][1]
    return " ".join(f"{amount:.9g} {unit}{'' if amount == 1 else 's'}" for amount, unit in named)


def _readable(moment: datetime) -> str:
    return moment.isoformat()[:-6] + "Z"


# Reading JSON.


def _every_from_json(value: Mapping[str, Any]) -> Every:
    unit = "microseconds" if "microseconds" in value else "seconds"
    check_keys(value, [unit], ["anchor", "start", "end"])
    amount = value[unit]
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise ConfigurationError(f"{unit} {amount!r} is not an integer; write whole {unit}.")
    try:
        interval = timedelta(**{unit: amount})
    except OverflowError:
        raise ConfigurationError(f"{unit} {amount!r} is too long; give at most ten years.") from None
    anchor, start, end = (moment_from_json(value, name) for name in ("anchor", "start", "end"))
    return every(interval, anchor=anchor, start=start, end=end)


def _cron_from_json(value: Mapping[str, Any]) -> Cron:
    check_keys(value, ["expression", "tz"], ["start", "end"])
    start, end = (moment_from_json(value, name) for name in ("start", "end"))
    return cron(value["expression"], value["tz"], start=start, end=end)


def _at_from_json(value: Mapping[str, Any]) -> At:
    check_keys(value, ["moments"], [])
    moments = value["moments"]
    if not isinstance(moments, list):
        raise ConfigurationError(f"moments {moments!r} is not a list; give a list of ISO 8601 times.")
    return at(*map(from_iso, moments))


def _import_for(kind: str) -> None:
    try:
        integrations.load(INTEGRATIONS, kind)
    except ImportError as problem:
        raise ConfigurationError(f"a trigger of type {kind!r} cannot be read: {problem}") from problem


_READERS: dict[str, Callable[[Mapping[str, Any]], Trigger]] = {
    "every": _every_from_json,
    "cron": _cron_from_json,
    "at": _at_from_json,
}

_CONVERTERS: dict[str, Callable[[Any], Trigger]] = {}
