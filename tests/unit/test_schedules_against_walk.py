"""Calendars, recurrence rules and combinations against oracles: the `holidays` library asked day by day, dateutil from
the first occurrence on, and a walk over every quarter of an hour. Every trigger is read back from its JSON first.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
import random
import warnings
from datetime import UTC, date, datetime, time, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import holidays
import pytest
from dateutil.rrule import rrulestr

from fencepost import Calendar, cron, every, rrule
from fencepost.model.triggers import Trigger, trigger_from_json
from tests.unit.walk import DAY, QUARTER, Walk, moved, nth_weekday, utc

PLACES = {
    "Europe/Zurich": "CH-ZH",
    "America/New_York": "US-NY",
    "America/Sao_Paulo": "BR",
    "Australia/Lord_Howe": "AU-NSW",
    "Africa/Casablanca": "MA",
    "Asia/Tokyo": "JP",
    "Pacific/Apia": "WS",
    "Europe/London": "GB-ENG",
    "Asia/Kolkata": "IN",
    "America/Santiago": "CL",
    "Asia/Tehran": "IR",
    "Pacific/Auckland": "NZ",
}
RULES = (
    "FREQ=MONTHLY;BYDAY=-1FR",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU",
    "FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=31,-2;BYHOUR=2;BYMINUTE=15,45",
    "FREQ=YEARLY;BYMONTH=3,10;BYDAY=-1SU;BYHOUR=2;BYMINUTE=30",
    "FREQ=YEARLY;INTERVAL=3;BYYEARDAY=60,-1",
    "FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=MO",
    "FREQ=DAILY;INTERVAL=9;BYMONTH=1,4,9",
    "FREQ=DAILY;BYMONTHDAY=1,-1,-15;BYDAY=MO,TU,SA;BYHOUR=0,12,18;BYSETPOS=-1,1",
    "FREQ=DAILY;BYYEARDAY=1,100,-1,-306",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1,2",
    "FREQ=DAILY;INTERVAL=2;COUNT=700",
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
)
MARGIN = timedelta(days=45)
"""At the ends of a walk fires may move in or out of it."""


def stored(trigger: Trigger) -> Trigger:
    return trigger_from_json(json.loads(json.dumps(trigger.to_json())))


def fires(trigger: Trigger, walk: Walk) -> set[datetime]:
    begin, end = walk.instants[0] + MARGIN, walk.instants[-1] - MARGIN
    found = list(takewhile(lambda fire: fire < end, stored(trigger).after(begin)))
    assert found == sorted(set(found))
    return set(found)


def inner(found: set[datetime], walk: Walk) -> set[datetime]:
    begin, end = walk.instants[0] + MARGIN, walk.instants[-1] - MARGIN
    return {fire for fire in found if begin < fire < end}


def oracle_calendar(code: str, years: range):
    country, _, part = code.partition("-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are known for a few years only
        return holidays.country_holidays(country, subdiv=part or None, years=years)


def check_calendars(
    walk: Walk, zone: str, code: str, years: tuple[int, int], chance: random.Random, step: int
) -> None:
    official = oracle_calendar(code, range(years[0], years[1] + 1))
    own = {walk.walls[chance.randrange(len(walk.walls))].date(): "own" for _ in range(20)}
    weekend = chance.choice([(5, 6), (4, 5), ()])
    windows = []
    for _ in range(10):
        begin = walk.instants[chance.randrange(len(walk.instants))]
        windows.append((begin, begin + chance.randint(1, 400) * QUARTER, "freeze"))
    calendar = Calendar(
        "oracle",
        holidays=code,
        dates={day.isoformat(): name for day, name in own.items()},
        weekend=[("mon", "tue", "wed", "thu", "fri", "sat", "sun")[day] for day in weekend],
        blackouts=windows,
        years=years,
    )

    def closed(day: date) -> bool:
        return day in official or day in own or day.weekday() in weekend

    def frozen(moment: datetime) -> bool:
        return any(begin <= moment < end for begin, end, _ in windows)

    hour, minute = chance.randrange(24), chance.choice([0, 15, 30, 45])
    daily = walk.fixed(datetime.combine(day, time(hour, minute)) for day in walk.days())

    def is_open(fire: datetime) -> bool:
        return not closed(walk.wall_of(fire).date()) and not frozen(fire)

    expression = f"{minute} {hour} * * *"
    expected = set(filter(is_open, daily))
    assert fires(cron(expression, zone, calendar=calendar), walk) == inner(expected, walk)

    weekday = chance.randrange(7)
    weekly = {fire for fire in daily if walk.wall_of(fire).weekday() == weekday}
    if not walk.skipped.keys() & {datetime.combine(day, time(hour, minute)) for day in walk.days()}:
        shifted = cron(f"{minute} {hour} * * {(weekday + 1) % 7}", zone, calendar=calendar, closed="shift")
        assert fires(shifted, walk) == inner(moved(walk, weekly, closed, frozen), walk)

    every_hour = set(walk.following((hour, minute) for hour in range(0, 24, step)))
    open_hours = set(filter(is_open, every_hour))
    hourly = cron(f"{minute} */{step} * * *", zone).on(calendar)
    assert fires(hourly, walk) == inner(open_hours, walk)
    left = {
        left.at for left in stored(hourly).left_out(walk.instants[0] + MARGIN, walk.instants[-1] - MARGIN)
    }
    assert inner(left, walk) == inner(every_hour - open_hours, walk)


def check_rules(walk: Walk, zone: str, start: datetime, rules=RULES) -> None:
    for text in rules:
        trigger = rrule(text, start=start.replace(tzinfo=ZoneInfo(zone)))
        last = walk.walls[-1]
        walls = list(takewhile(lambda wall: wall <= last, rrulestr(text, dtstart=start)))  # noqa: B023
        assert fires(trigger, walk) == inner(walk.fixed(walls), walk), text


def check_walked_rules(walk: Walk, zone: str, start: datetime) -> None:
    """Rules that the walk itself understands."""
    tz, at, days = ZoneInfo(zone), start.time(), [day for day in walk.days() if day >= start.date()]
    last_friday = rrule("FREQ=MONTHLY;BYDAY=-1FR", start=start.replace(tzinfo=tz))
    expected = walk.fixed(datetime.combine(day, at) for day in days if nth_weekday(day, -1, 4))
    assert fires(last_friday, walk) == inner(expected, walk)
    third_day = rrule("FREQ=DAILY;INTERVAL=3", start=start.replace(tzinfo=tz))
    expected = walk.fixed(datetime.combine(day, at) for day in days if (day - start.date()).days % 3 == 0)
    assert fires(third_day, walk) == inner(expected, walk)
    hours = rrule("FREQ=HOURLY;INTERVAL=6", start=start.replace(tzinfo=tz))
    shown = walk.following((hour, 15) for hour in range(start.hour % 6, 24, 6))
    expected = {instant for instant, wall in shown.items() if wall >= start}
    assert fires(hours, walk) == inner(expected, walk)


def check_combinations(walk: Walk, zone: str, chance: random.Random) -> None:
    def drawn() -> tuple[Trigger, set[datetime]]:
        minute, hours = chance.choice([0, 0, 0, 30]), sorted(chance.sample(range(8), 3))
        weekdays = sorted(chance.sample(range(7), chance.randint(2, 5)))
        text = f"{minute} {','.join(map(str, hours))} * * {','.join(map(str, weekdays))}"
        days = [day for day in walk.days() if day.isoweekday() % 7 in weekdays]
        walls = (datetime.combine(day, time(hour, minute)) for day in days for hour in hours)
        return cron(text, zone), walk.fixed(walls)

    anchor = walk.instants[0] - timedelta(hours=chance.randint(1, 9))
    step = timedelta(hours=chance.randint(5, 30))
    grid = {instant for instant in walk.instants if not (instant - anchor) % step}
    (a, in_a), (b, in_b), (c, in_c) = drawn(), drawn(), drawn()
    g = every(step, anchor=anchor)
    spread = a.spread("15m", "some job")
    assert timedelta() <= spread.offset < timedelta(minutes=15)
    for combine, expected in (
        (lambda: a | b | g, in_a | in_b | grid),
        (lambda: (a | b) & c, (in_a | in_b) & in_c),
        (lambda: a & g, in_a & grid),
        (lambda: g - a - b, grid - in_a - in_b),
        (lambda: (a | g) - (b | c), (in_a | grid) - (in_b | in_c)),
        (lambda: spread, {fire + spread.offset for fire in in_a}),
    ):
        if inner(expected, walk):
            trigger = combine()
            assert fires(trigger, walk) == inner(expected, walk), trigger.describe()


@pytest.mark.parametrize(
    "zone", ["Europe/Zurich", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"]
)
def test_a_year_is_as_walked(zone: str) -> None:
    """2011: Apia skipped a day, and Sao Paulo changed its clock at midnight."""
    chance = random.Random(zone)
    walk = Walk(zone, utc("2011-01-01"), utc("2012-03-01"))
    check_calendars(walk, zone, PLACES[zone], (2010, 2013), chance, 1)
    check_rules(walk, zone, datetime(2009, 3, 29, 2, 30), RULES[:10])
    check_walked_rules(walk, zone, datetime(2010, 12, 30, chance.randrange(4), 15))
    check_combinations(walk, zone, chance)


@pytest.mark.slow
@pytest.mark.parametrize("zone", PLACES)
def test_thirty_years_are_as_walked(zone: str) -> None:
    chance = random.Random(f"thirty years of {zone}")
    walk = Walk(zone, utc("2010-01-01"), utc("2040-01-01"))
    check_calendars(walk, zone, PLACES[zone], (2009, 2040), chance, 12)
    # Half of the rules in each zone: every rule is seen in several.
    check_rules(walk, zone, datetime(2009, 3, 29, 2, 30), random.Random(zone).sample(RULES, len(RULES) // 2))
    check_walked_rules(walk, zone, datetime(2009, 12, 30, chance.randrange(4), 15))
    check_combinations(walk, zone, chance)


@pytest.mark.parametrize("seed", range(6))
def test_the_instant_of_asking_does_not_matter(seed: int) -> None:
    """`next_after` from anywhere is the next of the one sequence, also among days that are moved."""
    chance = random.Random(seed)
    zone = chance.choice(list(PLACES))
    begin = datetime(2026, chance.randint(1, 9), 1, tzinfo=UTC)
    weekend = chance.choice(["", "sat,sun", "fri"]).split(",") if seed else []
    dates = {(begin + timedelta(days=chance.randint(0, 60))).date(): "closed" for _ in range(25)}
    freeze = begin + timedelta(hours=chance.randint(0, 900))
    calendar = Calendar(
        "random",
        dates=dates,
        weekend=[day for day in weekend if day],
        blackouts=[(freeze, freeze + timedelta(hours=chance.randint(1, 80)), "freeze")],
    )
    hours = ",".join(map(str, sorted(chance.sample(range(24), 3))))
    nominal = cron(f"30 {hours} * * *", zone)
    late = rrule("FREQ=HOURLY;INTERVAL=7;BYMINUTE=10", start=begin - DAY, tz=zone)
    for trigger in (
        nominal.on(calendar),
        nominal.on(calendar, "shift"),
        late.on(calendar, "shift"),
        (nominal.on(calendar, "shift") | late) - cron("10 8-12 * * *", zone),
        (nominal | late).on(calendar).spread("3h", f"job {seed}"),
    ):
        end = begin + timedelta(days=75)
        sequence = list(takewhile(lambda fire: fire <= end, trigger.after(begin)))  # noqa: B023
        assert sequence == sorted(set(sequence))
        assert trigger.count_after(begin, end) == len(sequence)
        for _ in range(40):
            asked = begin + timedelta(seconds=chance.randint(0, 49 * 86_400))
            later = [fire for fire in sequence if fire > asked]
            assert trigger.next_after(asked) == later[0]
