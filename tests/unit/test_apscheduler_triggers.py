from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apscheduler")

from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from fencepost.apscheduler.triggers import from_apscheduler
from fencepost.errors import ConfigurationError
from fencepost.model.triggers import at, every, trigger_from_json

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def local_fires(trigger: object, zone: str, begin: str, count: int) -> list[str]:
    fires = from_apscheduler(trigger).after(datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(zone)))
    return [f"{fire.astimezone(ZoneInfo(zone)):%m-%dT%H:%M%z}" for fire in islice(fires, count)]


class TestInterval:
    def test_the_grid_includes_the_start_date(self) -> None:
        grid = from_apscheduler(
            IntervalTrigger(minutes=5, start_date=NOON, end_date=NOON + timedelta(minutes=10))
        )
        assert list(grid.after(NOON - timedelta(days=9))) == [NOON + timedelta(minutes=n) for n in (0, 5, 10)]
        assert grid == every(minutes=5, anchor=NOON - timedelta(minutes=5), end=NOON + timedelta(minutes=10))

    def test_a_made_up_start_date_leaves_the_anchor_to_the_store(self) -> None:
        assert from_apscheduler(IntervalTrigger(minutes=5, start_date=NOON.replace(microsecond=3))) == every(
            minutes=5
        )

    def test_a_negative_interval(self) -> None:
        with pytest.raises(ConfigurationError, match="10 ms to ten years"):
            from_apscheduler(IntervalTrigger(minutes=-5, start_date=NOON))


def test_date() -> None:
    assert from_apscheduler(DateTrigger(NOON.astimezone(BERLIN))) == at(NOON)


class TestCron:
    def test_keeps_apscheduler_weekday_numbers(self) -> None:
        trigger = CronTrigger.from_crontab("0 9 * * 1", timezone="Europe/Berlin")
        assert local_fires(trigger, "Europe/Berlin", "2026-11-15T12:00", 1) == [
            "11-17T09:00+0100"
        ]  # a Tuesday

    @pytest.mark.parametrize(
        ("fields", "zone", "begin", "expected"),
        [
            (
                {"hour": 2, "minute": 30},
                "Europe/Berlin",
                "2026-03-28T12:00",
                ["03-29T03:30+0200", "03-30T02:30+0200"],
            ),
            (
                {"hour": 2, "minute": 30},
                "Europe/Berlin",
                "2026-10-24T12:00",
                ["10-25T02:30+0200", "10-25T02:30+0100"],
            ),
            (
                {"hour": 2, "minute": "15,40"},
                "Australia/Lord_Howe",
                "2026-10-03T12:00",
                ["10-04T02:40+1100", "10-04T02:45+1100", "10-05T02:15+1100"],
            ),
            ({"hour": 12}, "Pacific/Apia", "2011-12-29T13:00", ["12-31T12:00+1400", "01-01T12:00+1400"]),
        ],
    )
    def test_clock_changes(self, fields: dict, zone: str, begin: str, expected: list[str]) -> None:
        assert local_fires(CronTrigger(**fields, timezone=zone), zone, begin, len(expected)) == expected

    @pytest.mark.parametrize(
        "fields",
        [
            {"minute": "*/7"},
            {"day": "last", "hour": 3},
            {"day": "2nd tue,last fri", "hour": "8-18/5"},
            {"week": "*/3", "day_of_week": "mon-wed", "minute": "5/20"},
            {"month": "jan-mar,oct", "day": 29},
            {"year": "2026-2030", "second": "*/45"},
        ],
    )
    def test_the_same_fires_as_apscheduler_where_the_clock_does_not_change(self, fields: dict) -> None:
        theirs = CronTrigger(**fields, timezone="Asia/Tokyo", start_date=NOON)
        ours = from_apscheduler(theirs).after(NOON - timedelta(microseconds=1))
        expected = theirs.get_next_fire_time(None, NOON)
        for fire in islice(ours, 60):
            assert fire == expected
            expected = theirs.get_next_fire_time(expected, expected)

    def test_start_and_end_are_inclusive(self) -> None:
        trigger = CronTrigger(hour="*", timezone="UTC", start_date=NOON, end_date=NOON + timedelta(hours=2))
        assert [fire.hour for fire in from_apscheduler(trigger).after(NOON - timedelta(days=5))] == [
            12,
            13,
            14,
        ]

    def test_in_words(self) -> None:
        trigger = from_apscheduler(CronTrigger(hour=2, day_of_week="mon-fri", timezone="Europe/Berlin"))
        assert (
            trigger.describe()
            == "APScheduler cron day_of_week=mon-fri, hour=2, minute=0, second=0 in Europe/Berlin"
        )
        always = from_apscheduler(CronTrigger(second="*", timezone="UTC"))
        assert always.describe() == "APScheduler cron second=* in UTC"

    @pytest.mark.parametrize(
        ("trigger", "message"),
        [
            (CronTrigger(month=2, day=30, timezone="UTC"), "never fires.*correct the day fields"),
            (
                CronTrigger(hour=2, timezone=timezone(timedelta(hours=2))),
                'has no name; give timezone="Europe/Zurich"',
            ),
            (CronTrigger(minute="0-0/5", timezone="UTC"), "cannot be written down; simplify"),
            (CronTrigger(hour=2, timezone="UTC", jitter=30), "jitter=30.*remove jitter="),
        ],
    )
    def test_refusals(self, trigger: object, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            from_apscheduler(trigger)


class TestCalendarInterval:
    def test_months_that_lack_the_day_are_left_out(self) -> None:
        trigger = CalendarIntervalTrigger(months=1, hour=3, start_date=date(2026, 1, 31), timezone="UTC")
        assert local_fires(trigger, "UTC", "2026-01-01T00:00", 3) == [
            "01-31T03:00+0000",
            "03-31T03:00+0000",
            "05-31T03:00+0000",
        ]

    def test_a_skipped_time_is_left_out_and_a_repeated_one_fires_once(self) -> None:
        trigger = CalendarIntervalTrigger(
            days=1,
            hour=2,
            minute=30,
            start_date=date(2020, 1, 1),
            end_date=date(2026, 10, 26),
            timezone=BERLIN,
        )
        assert local_fires(trigger, "Europe/Berlin", "2026-03-28T00:00", 2) == [
            "03-28T02:30+0100",
            "03-30T02:30+0200",
        ]
        assert local_fires(trigger, "Europe/Berlin", "2026-10-25T00:00", 9) == [
            "10-25T02:30+0200",
            "10-26T02:30+0100",
        ]

    @pytest.mark.parametrize(
        "lengths", [{"days": 3}, {"weeks": 2, "days": 1}, {"months": 5}, {"years": 1, "months": 1, "days": 2}]
    )
    def test_the_same_fires_as_apscheduler(self, lengths: dict) -> None:
        theirs = CalendarIntervalTrigger(**lengths, hour=12, start_date=date(2024, 2, 29), timezone=BERLIN)
        expected = theirs.get_next_fire_time(None, NOON)
        for fire in islice(from_apscheduler(theirs).after(datetime(2024, 1, 1, tzinfo=UTC)), 30):
            assert fire == expected
            expected = theirs.get_next_fire_time(expected.astimezone(BERLIN), NOON)

    def test_a_leap_day_every_hundred_years_ends(self) -> None:
        trigger = CalendarIntervalTrigger(years=100, start_date=date(2096, 2, 29), timezone="UTC")
        assert from_apscheduler(trigger).count_after(NOON, datetime(2500, 1, 1, tzinfo=UTC)) == 2

    def test_a_negative_length(self) -> None:
        with pytest.raises(ConfigurationError, match=r"'days': -1.*whole numbers"):
            from_apscheduler(CalendarIntervalTrigger(days=-1, timezone="UTC"))


class TestCombined:
    WEEKDAYS = CronTrigger(day_of_week="mon-fri", hour=9, timezone="UTC")
    FIRSTS = CronTrigger(day=1, hour="9,12", timezone="UTC")

    def test_or(self) -> None:
        fires = islice(
            from_apscheduler(OrTrigger([self.WEEKDAYS, self.FIRSTS])).after(NOON + timedelta(days=14)), 4
        )
        assert [(fire.day, fire.hour) for fire in fires] == [(30, 9), (1, 9), (1, 12), (2, 9)]

    def test_and(self) -> None:
        fires = islice(from_apscheduler(AndTrigger([self.WEEKDAYS, self.FIRSTS])).after(NOON), 3)
        assert [(fire.month, fire.day, fire.hour) for fire in fires] == [(12, 1, 9), (1, 1, 9), (2, 1, 9)]

    def test_and_ends_with_its_first_member(self) -> None:
        trigger = AndTrigger([self.WEEKDAYS, DateTrigger(datetime(2026, 11, 16, 9, tzinfo=UTC))])
        assert len(list(from_apscheduler(trigger).after(NOON))) == 1

    def test_and_of_triggers_that_never_meet(self) -> None:
        half_past = IntervalTrigger(hours=1, start_date=NOON + timedelta(minutes=30))
        with pytest.raises(ConfigurationError, match=r"no common fire.*use one cron\(\)"):
            from_apscheduler(AndTrigger([half_past, CronTrigger(minute=0, timezone="UTC")]))

    def test_open_anchors_are_resolved_inside(self) -> None:
        trigger = from_apscheduler(
            OrTrigger([IntervalTrigger(hours=1, start_date=NOON.replace(microsecond=1))])
        )
        with pytest.raises(ConfigurationError, match="no anchor"):
            trigger.next_after(NOON)
        assert trigger.resolved(NOON).next_after(NOON) == NOON + timedelta(hours=1)

    def test_no_members(self) -> None:
        with pytest.raises(ConfigurationError, match="at least one trigger"):
            from_apscheduler(OrTrigger([]))

    def test_jitter_inside(self) -> None:
        with pytest.raises(ConfigurationError, match="remove jitter="):
            from_apscheduler(OrTrigger([CronTrigger(hour=1, jitter=5, timezone="UTC")]))


class Subclass(DateTrigger):  # type: ignore[misc, unused-ignore]
    pass


@pytest.mark.parametrize("trigger", [None, "cron", Subclass(NOON)])
def test_other_triggers_are_refused(trigger: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"cannot be converted; use one of APScheduler's .*CronTrigger"
    ):
        from_apscheduler(trigger)


@pytest.mark.parametrize(
    "trigger",
    [
        CronTrigger(day="2nd tue", hour="*/2", timezone="Europe/Berlin", start_date=NOON),
        CronTrigger(second="*", timezone="UTC", end_date=NOON),
        CalendarIntervalTrigger(months=1, minute=5, start_date=date(2026, 1, 1), timezone="Asia/Tokyo"),
        CalendarIntervalTrigger(
            days=1, start_date=date(2026, 1, 1), end_date=date(2026, 2, 1), timezone="UTC"
        ),
        OrTrigger([DateTrigger(NOON), AndTrigger([CronTrigger(hour=1, timezone="UTC")])]),
    ],
)
def test_json_round_trip(trigger: object) -> None:
    ours = from_apscheduler(trigger)
    value = json.loads(json.dumps(ours.to_json()))
    assert value["type"] == "apscheduler"
    assert trigger_from_json(value) == ours
    assert hash(trigger_from_json(value)) == hash(ours)
    assert ours.describe()


def test_the_order_of_members_does_not_matter() -> None:
    members = [DateTrigger(NOON), CronTrigger(hour=1, timezone="UTC")]
    assert from_apscheduler(OrTrigger(members)) == from_apscheduler(OrTrigger(members[::-1]))


CRON = from_apscheduler(CronTrigger(hour=1, timezone="UTC")).to_json()
CALENDAR = from_apscheduler(
    CalendarIntervalTrigger(days=1, start_date=date(2026, 1, 1), timezone="UTC")
).to_json()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "apscheduler"}, "set kind to one of cron, calendar, or, and"),
        ({"type": "apscheduler", "kind": "calender"}, "did you mean 'calendar'"),
        ({**CRON, "fields": {}}, "give a text for each of year, month"),
        ({**CRON, "fields": {**CRON["fields"], "hour": 5}}, "give a text for each"),
        ({**CRON, "fields": {**CRON["fields"], "hour": "25"}}, "'25'.*correct them or use cron"),
        ({**CRON, "tz": "Mars"}, "not a known time zone"),
        ({**CRON, "jitter": 5}, "unknown 'jitter'"),
        ({**CALENDAR, "days": 0}, "at least one of them above 0"),
        ({**CALENDAR, "days": 1.5}, "whole numbers"),
        ({**CALENDAR, "first": "soon"}, "write dates like 2026-11-15"),
        ({**CALENDAR, "last": "2025-01-01"}, "swap them"),
        ({"type": "apscheduler", "kind": "or", "members": {}}, "give a list of triggers"),
        ({"type": "apscheduler", "kind": "and", "members": []}, "at least one trigger"),
        ({"type": "apscheduler", "kind": "and", "members": [5]}, "5 is not a trigger"),
    ],
)
def test_bad_json(value: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        trigger_from_json(value)


@settings(deadline=None, max_examples=60, print_blob=True)
@given(
    st.sampled_from(sorted(available_timezones() - {"localtime"})),
    st.sampled_from(["*", "*/2", "0-3", "1", "2", "23"]),
    st.sampled_from(["*/15", "0", "10,50", "15,40"]),
    st.datetimes(datetime(1973, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_increasing_and_independent_of_the_instant_of_asking(zone, hour, minute, begin) -> None:
    tz = ZoneInfo(zone)
    days = [begin + timedelta(days=n) for n in range(366)]
    change = next((a for a, b in pairwise(days) if offset(a, tz) != offset(b, tz)), begin)
    trigger = from_apscheduler(CronTrigger(hour=hour, minute=minute, timezone=tz))
    sequence = list(islice(trigger.after(change - timedelta(days=1)), 60))
    assert sequence == sorted(set(sequence))
    for a, b in pairwise(sequence):
        assert trigger.next_after(a) == b
        assert trigger.next_after(b - timedelta(microseconds=1)) == b


def offset(moment: datetime, tz: ZoneInfo) -> timedelta | None:
    return moment.astimezone(tz).utcoffset()


class TestSpread:
    """Jitter, by a name from which offsets are derived."""

    MINUTELY = IntervalTrigger(minutes=1, start_date=datetime(2026, 11, 15, 12, tzinfo=UTC), jitter=20)

    def test_every_replica_derives_the_same_offsets(self) -> None:
        one, other = (from_apscheduler(self.MINUTELY, spread="poll") for _ in range(2))
        fires = list(islice(one.after(NOON), 50))
        assert fires == list(islice(other.after(NOON), 50))
        nominal = [NOON + timedelta(minutes=number) for number in range(51)]
        assert all(any(abs(fire - moment) <= timedelta(seconds=20) for moment in nominal) for fire in fires)
        assert len({fire.microsecond for fire in fires}) > 40

    def test_each_name_has_its_own(self) -> None:
        one, other = (from_apscheduler(self.MINUTELY, spread=name) for name in ("poll", "report"))
        assert not set(islice(one.after(NOON), 50)) & set(islice(other.after(NOON), 50))

    @pytest.mark.parametrize("jitter", [1, 29, 45, 59])
    def test_fires_increase_and_do_not_depend_on_the_moment_of_asking(self, jitter: int) -> None:
        trigger = IntervalTrigger(minutes=1, start_date=datetime(2026, 11, 15, 12, tzinfo=UTC), jitter=jitter)
        spread = from_apscheduler(trigger, spread="poll")
        fires = list(islice(spread.after(NOON - timedelta(hours=1)), 200))
        assert fires == sorted(set(fires))
        for earlier, later in pairwise(fires):
            assert spread.next_after(earlier) == later
            assert spread.next_after(later - timedelta(microseconds=1)) == later
            assert spread.next_after(earlier + (later - earlier) / 2) == later

    def test_an_open_anchor_is_filled_in_below(self) -> None:
        spread = from_apscheduler(IntervalTrigger(minutes=1, jitter=5), spread="poll")
        fire = spread.resolved(NOON).next_after(NOON)
        assert fire is not None
        assert abs(fire - NOON - timedelta(minutes=1)) <= timedelta(seconds=5)

    def test_json_and_words(self) -> None:
        spread = from_apscheduler(CronTrigger(hour=2, timezone="UTC", jitter=30), spread="poll")
        assert trigger_from_json(spread.to_json()) == spread
        assert spread.describe().endswith(", spread by up to 30 s")

    @pytest.mark.parametrize(
        ("trigger", "message"),
        [
            (IntervalTrigger(seconds=10, jitter=10), "as long as from one fire to the next.*below 10 s"),
            (CronTrigger(minute="*/5", timezone="UTC", jitter=400), "lower it, well below 300 s"),
        ],
    )
    def test_a_jitter_as_long_as_the_period_is_refused(self, trigger: object, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            from_apscheduler(trigger, spread="poll")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"jitter": "5"}, "not a number of seconds"),
            ({"jitter": 0}, "not a number of seconds"),
            ({"name": 5}, "not a text"),
            ({"more": 1}, "unknown 'more'"),
        ],
    )
    def test_bad_json(self, changes: dict, message: str) -> None:
        spread = from_apscheduler(CronTrigger(hour=2, timezone="UTC", jitter=30), spread="poll")
        with pytest.raises(ConfigurationError, match=message):
            trigger_from_json({**spread.to_json(), **changes})
