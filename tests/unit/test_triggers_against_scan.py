"""Cron against a scan of every minute, over all zones, preferably near a change of the clock.

The scan shares no code with the product: it walks UTC minute by minute, reads the local clock, matches the
fields itself, and applies the two written rules for gaps and folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.model.triggers import at, cron, every, trigger_from_json

ZONES = sorted(available_timezones() - {"localtime"})
RESTLESS = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Europe/Dublin"]
RESTLESS += ["Pacific/Apia", "America/Havana", "America/Sao_Paulo", "Antarctica/Troll", "America/Santiago"]
MINUTE = timedelta(minutes=1)
bounded = settings(deadline=None, max_examples=150, print_blob=True)


@dataclass(frozen=True)
class Fields:
    """A cron expression as text and as what it means."""

    minute: str
    hour: str
    day: str
    month: str
    weekday: str

    def __str__(self) -> str:
        return f"{self.minute} {self.hour} {self.day} {self.month} {self.weekday}"

    @property
    def follows_the_clock(self) -> bool:
        return self.minute[0] == "*" or self.hour[0] == "*"

    def match(self, wall: datetime) -> bool:
        day = wall.day in numbers(self.day, 1, 31)
        weekday = wall.isoweekday() % 7 in {n % 7 for n in numbers(self.weekday, 0, 7)}
        both = self.day[0] == "*" or self.weekday[0] == "*"
        return (
            wall.minute in numbers(self.minute, 0, 59)
            and wall.hour in numbers(self.hour, 0, 23)
            and wall.month in numbers(self.month, 1, 12)
            and (day and weekday if both else day or weekday)
        )


@cache
def numbers(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def scan(fields: Fields, tz: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
    """The fires in (begin, end], both whole minutes."""
    fires: list[datetime] = []
    seen: set[datetime] = set()
    previous = None
    moment = begin - timedelta(days=1, hours=1)  # long enough to have seen the first pass of any fold
    while moment <= end:
        wall = moment.astimezone(tz).replace(tzinfo=None, fold=0)
        due = fields.match(wall)
        if not fields.follows_the_clock:
            due = due and wall not in seen
            if previous is not None and wall - previous > MINUTE:  # a gap ends here
                skipped = (previous + n * MINUTE for n in range(1, (wall - previous) // MINUTE))
                due = due or any(map(fields.match, skipped))
            seen.add(wall)
        if due and moment > begin:
            fires.append(moment)
        previous = wall
        moment += MINUTE
    return fires


@cache
def changes(zone: str, year: int) -> tuple[datetime, ...]:
    """The minutes of the year at which the zone's clock changes."""
    tz = ZoneInfo(zone)
    days = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(367)]
    offsets = [day.astimezone(tz).utcoffset() for day in days]
    found = []
    for day, old, new in zip(days, offsets, offsets[1:], strict=False):
        if old != new:
            minutes = (day + n * MINUTE for n in range(1, 24 * 60 + 1))
            found.append(next(minute for minute in minutes if minute.astimezone(tz).utcoffset() != old))
    return tuple(found)


def joined(low: int, high: int) -> st.SearchStrategy[str]:
    values = st.lists(st.integers(low, high), min_size=1, max_size=3, unique=True)
    return values.map(lambda found: ",".join(map(str, sorted(found))))


def stepped(high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.integers(2, high).map("*/{}".format))


def mostly_any(others: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 3).flatmap(lambda n: others if n == 0 else st.just("*"))


expressions = st.builds(
    Fields,
    minute=st.one_of(joined(0, 59), st.sampled_from(["0", "30", "15,45", "0-40/20"]), stepped(59)),
    hour=st.one_of(
        joined(0, 4), joined(0, 23), st.sampled_from(["0", "1", "2", "3", "1-3", "23"]), stepped(12)
    ),
    day=mostly_any(joined(1, 31) | stepped(15)),
    month=mostly_any(st.sampled_from(["3,10", "1-12/2", "2-11"])),
    weekday=mostly_any(joined(0, 7) | st.sampled_from(["1-5", "7"])),
)


@st.composite
def places(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and a whole minute, mostly within two days of a change of its clock."""
    zone = draw(st.sampled_from(RESTLESS) | st.sampled_from(ZONES))
    year = draw(st.integers(1973, 2100) | st.sampled_from([1985, 2011, 2026]))
    instants = changes(zone, year)
    near = bool(instants) and draw(st.integers(0, 9)) > 0
    instant: datetime = draw(st.sampled_from(instants)) if near else datetime(year, 6, 1, tzinfo=UTC)
    distance = draw(st.integers(-150, 150) | st.integers(-36 * 60, 36 * 60))
    return zone, instant + distance * MINUTE


def fires_between(trigger, begin, end):
    return list(takewhile(lambda fire: fire <= end, trigger.after(begin)))


@bounded
@given(expressions, places(), st.integers(60, 3000))
def test_cron_fires_exactly_where_the_scan_does(fields, place, minutes) -> None:
    zone, begin = place
    end = begin + minutes * MINUTE
    assert fires_between(cron(str(fields), zone), begin, end) == scan(fields, ZoneInfo(zone), begin, end)


@bounded
@given(expressions, places(), st.lists(st.integers(-(10**10), 10**10), min_size=1, max_size=8))
def test_the_instant_of_asking_does_not_matter(fields, place, delays) -> None:
    zone, moment = place
    trigger = cron(str(fields), zone)
    end = moment + timedelta(days=2)
    sequence = fires_between(trigger, moment - timedelta(days=2), end)
    assert sequence == sorted(set(sequence))
    asked = [moment + timedelta(microseconds=delay) for delay in delays]
    nearest = sorted(sequence, key=lambda fire: abs(fire - moment))[:20]
    for asking in [*asked, *nearest]:
        answer = trigger.next_after(asking)
        assert answer is not None
        later = [fire for fire in sequence if fire > asking]
        assert answer == later[0] if later else answer > end


@bounded
@given(expressions, st.sampled_from(ZONES), st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)))
def test_cron_is_strictly_increasing_counts_and_survives_json(fields, zone, naive) -> None:
    moment = naive.replace(tzinfo=UTC)
    trigger = cron(str(fields), zone, start=moment)
    until = moment + timedelta(days=6)
    fires = fires_between(trigger, moment, until)
    assert all(a < b for a, b in zip([moment, *fires], fires, strict=False))
    assert all(fire.tzinfo is UTC for fire in fires)
    assert trigger.count_after(moment, until) == len(fires)
    assert trigger_from_json(trigger.to_json()) == trigger


instants = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
intervals = st.one_of(
    st.integers(1, 10_000).map(lambda n: timedelta(seconds=n)),
    st.integers(10_000, 10**12).map(lambda n: timedelta(microseconds=n)),
)


@bounded
@given(intervals, instants, st.integers(-50, 10**6), st.integers(-3, 100), st.data())
def test_every_is_an_exact_grid(interval, anchor, skipped, length, data) -> None:
    moment = anchor + interval * min(skipped, timedelta(days=50_000) // interval)
    moment += timedelta(microseconds=data.draw(st.integers(-2, 2)))
    until = moment + length * interval
    start, end = (data.draw(st.none() | st.just(moment + n * interval)) for n in (3, 60))
    trigger = every(interval, anchor=anchor, start=start, end=end)
    fires = fires_between(trigger, moment, until)
    assert trigger.count_after(moment, until) == len(fires)
    assert all(a < b for a, b in zip([moment, *fires], fires, strict=False))
    assert all((fire - anchor) % interval == timedelta() and fire > anchor for fire in fires)
    assert trigger_from_json(trigger.to_json()) == trigger
    for fire in fires[:5]:
        assert trigger.next_after(fire - timedelta(microseconds=1)) == fire


@bounded
@given(st.lists(instants, min_size=1, max_size=20), instants, instants)
def test_at_is_its_moments(moments, begin, until) -> None:
    trigger = at(*moments)
    assert list(trigger.after(begin)) == sorted({moment for moment in moments if moment > begin})
    assert trigger.count_after(begin, until) == len({m for m in moments if begin < m <= until})
    assert trigger_from_json(trigger.to_json()) == trigger
