from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

import fencepost.model.triggers as triggers
from fencepost.errors import ConfigurationError
from fencepost.model.triggers import at, codec, cron, every, from_iso, iso, trigger_from_json

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NAIVE = datetime(2026, 11, 15, 12)


def local_fires(expression: str, zone: str, begin: str, count: int) -> list[str]:
    """The next fires as the clock shows them, with their offsets."""
    fires = cron(expression, zone).after(datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(zone)))
    return [f"{fire.astimezone(ZoneInfo(zone)):%m-%dT%H:%M%z}" for fire in islice(fires, count)]


class TestEvery:
    def test_first_fire_is_one_interval_after_the_anchor(self) -> None:
        grid = every(minutes=5, anchor=NOON)
        assert grid.next_after(NOON - timedelta(days=400)) == NOON + timedelta(minutes=5)
        assert grid.next_after(NOON + timedelta(minutes=5)) == NOON + timedelta(minutes=10)

    def test_start_and_end_are_inclusive(self) -> None:
        start, end = NOON + timedelta(minutes=10), NOON + timedelta(minutes=20)
        grid = every(minutes=5, anchor=NOON, start=start, end=end)
        assert [fire.minute for fire in grid.after(NOON)] == [10, 15, 20]
        assert grid.count_after(NOON, NOON + timedelta(days=1)) == 3
        assert list(grid.after(end)) == []

    def test_no_drift(self) -> None:
        third = timedelta(microseconds=333_333)
        grid = every(third, anchor=NOON)
        assert grid.next_after(NOON + third * 10**9) == NOON + third * (10**9 + 1)

    def test_counting_is_constant_time(self) -> None:
        assert (
            every(seconds=1, anchor=NOON).count_after(NOON, NOON + timedelta(days=36_500)) == 36_500 * 86_400
        )

    def test_counting_backwards_is_nothing(self) -> None:
        assert every(seconds=1, anchor=NOON).count_after(NOON + timedelta(days=1), NOON) == 0

    def test_open_anchor_is_resolved_once_and_to_the_second(self) -> None:
        open_grid = every(hours=1)
        grid = open_grid.resolved(NOON.replace(microsecond=7))
        assert grid.anchor == NOON
        assert grid.resolved(NOON + timedelta(days=1)) is grid

    @pytest.mark.parametrize("use", ["after", "next_after", "count_after"])
    def test_open_anchor_cannot_fire(self, use: str) -> None:
        with pytest.raises(ConfigurationError, match=r"the store sets it.*anchor="):
            getattr(every(hours=1), use)(*[NOON] * (2 if use == "count_after" else 1))

    def test_units_add_up(self) -> None:
        assert every(weeks=1, days=1, hours=1, minutes=1, seconds=0.5).interval == timedelta(
            days=8, hours=1, minutes=1, milliseconds=500
        )

    def test_the_last_years_do_not_overflow(self) -> None:
        grid = every(triggers.LONGEST_INTERVAL, anchor=datetime(8999, 12, 31, tzinfo=UTC))
        assert grid.next_after(NOON) is None
        assert grid.next_after(datetime.max.replace(tzinfo=UTC)) is None

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "interval of 0:00:00 .*10 ms to ten years"),
            ({"seconds": 0.009}, r"0:00:00.009000.*10 ms to ten years"),
            ({"seconds": -5}, "10 ms to ten years"),
            ({"days": 3654}, "3654 days.*10 ms to ten years"),
            ({"minutes": "5"}, r"'5'.*give numbers"),
            ({"minutes": float("nan")}, "nan.*give numbers"),
            ({"days": 1e300}, r"1e\+300.*give numbers"),
            ({"interval": 300}, r"300 is not a timedelta.*every\(seconds="),
            ({"interval": timedelta(1), "seconds": 1}, "either a timedelta or units"),
            ({"seconds": 1, "start": NOON, "end": NOON - timedelta(1)}, "start 2026-11-15.*swap them"),
            ({"seconds": 1, "anchor": datetime(9999, 1, 1, tzinfo=UTC)}, "anchor 9999.*years 1900 to 8999"),
            ({"seconds": 1, "anchor": "2026-11-15"}, "anchor '2026-11-15' is not a datetime; give an aware"),
        ],
    )
    def test_bad_input(self, arguments: dict, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            every(**arguments)


class TestCron:
    @pytest.mark.parametrize(
        ("expression", "zone", "begin", "expected"),
        [
            # fixed times: a gap fires when it ends, a fold in its first pass
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29T03:00+0200", "03-30T02:30+0200"]),
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25T02:30+0200", "10-26T02:30+0100"]),
            ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["03-08T03:00-0400", "03-09T02:30-0400"]),
            ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["11-01T01:30-0400", "11-02T01:30-0500"]),
            ("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00", ["03-29T03:00+0200", "03-29T03:30+0200"]),
            ("0 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29T03:00+0200", "03-30T02:30+0200"]),
            (
                "15 2 * * *",
                "Australia/Lord_Howe",
                "2026-10-03T12:00",
                ["10-04T02:30+1100", "10-05T02:15+1100"],
            ),
            (
                "45 1 * * *",
                "Australia/Lord_Howe",
                "2026-04-04T12:00",
                ["04-05T01:45+1100", "04-06T01:45+1030"],
            ),
            ("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00", ["02-15T02:30+0100", "02-16T02:30+0000"]),
            ("30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00", ["03-22T03:00+0100", "03-23T02:30+0100"]),
            ("30 1 * * *", "Europe/Dublin", "2026-03-28T12:00", ["03-29T02:00+0100", "03-30T01:30+0100"]),
            ("30 1 * * *", "Europe/Dublin", "2026-10-24T12:00", ["10-25T01:30+0100", "10-26T01:30+0000"]),
            ("0 12 * * *", "Pacific/Apia", "2011-12-29T13:00", ["12-31T00:00+1400", "12-31T12:00+1400"]),
            ("0 0 30 12 *", "Pacific/Apia", "2011-12-29T13:00", ["12-31T00:00+1400", "12-30T00:00+1400"]),
            # following the clock: a gap is skipped, a fold fires in both passes
            ("0 * * * *", "Europe/Berlin", "2026-03-29T00:59", ["03-29T01:00+0100", "03-29T03:00+0200"]),
            ("0 */2 * * *", "Europe/Berlin", "2026-03-28T23:59", ["03-29T00:00+0100", "03-29T04:00+0200"]),
            ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-30T02:00+0200", "03-30T02:30+0200"]),
            (
                "*/20 3 * * *",
                "Australia/Lord_Howe",
                "2026-10-04T01:00",
                ["10-04T03:00+1100", "10-04T03:20+1100"],
            ),
            ("*/30 * 30 12 *", "Pacific/Apia", "2011-12-29T13:00", ["12-30T00:00+1400", "12-30T00:30+1400"]),
            ("0 */2 * * SUN", "America/Havana", "2026-03-07T12:00", ["03-08T02:00-0400", "03-08T04:00-0400"]),
            # calendars
            ("0 0 29 2 *", "UTC", "2096-03-01T00:00", ["02-29T00:00+0000", "02-29T00:00+0000"]),
            (
                "0 0 29 2 MON",
                "UTC",
                "2028-02-20T00:00",
                ["02-21T00:00+0000", "02-28T00:00+0000", "02-29T00:00+0000"],
            ),
            ("0 0 L * *", "UTC", "2028-02-20T00:00", ["02-29T00:00+0000", "03-31T00:00+0000"]),
            ("0 9 * * MON#1", "UTC", "2026-11-03T00:00", ["12-07T09:00+0000", "01-04T09:00+0000"]),
        ],
    )
    def test_known_cases(self, expression: str, zone: str, begin: str, expected: list[str]) -> None:
        assert local_fires(expression, zone, begin, len(expected)) == expected

    @pytest.mark.parametrize(
        "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin"]
    )
    @pytest.mark.parametrize("day", [datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4, 10, 11)])
    def test_every_half_hour_is_half_an_hour_of_elapsed_time(self, zone: str, day: datetime) -> None:
        fires = list(islice(cron("*/30 * * * *", zone).after(day), 31 * 48))
        assert {b - a for a, b in pairwise(fires)} == {timedelta(minutes=30)}

    @pytest.mark.parametrize(
        "expression", ["*/10 * * * *", "*/20 1,2 * * *", "5,35 */1 * * *", "10,40 1-3 * * *"]
    )
    @pytest.mark.parametrize(
        ("zone", "change"),
        [
            ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
            ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
            ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
            ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
            ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
            ("Africa/Casablanca", datetime(2026, 2, 15, 2, tzinfo=UTC)),
            ("Europe/Dublin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
            ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
        ],
    )
    def test_the_instant_of_asking_does_not_matter(
        self, expression: str, zone: str, change: datetime
    ) -> None:
        trigger = cron(expression, zone)
        fires = list(islice(trigger.after(change - timedelta(days=1, hours=3)), 400))
        for minute in range(-180, 180, 5):
            asking = change + timedelta(minutes=minute)
            assert trigger.next_after(asking) == next(fire for fire in fires if fire > asking)

    def test_asked_in_the_second_pass_of_a_fold(self) -> None:
        second_pass = datetime(2026, 10, 25, 2, 15, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
        assert cron("30 2 * * *", "Europe/Berlin").next_after(second_pass) == datetime(
            2026, 10, 26, 1, 30, tzinfo=UTC
        )

    def test_a_gap_that_does_not_end_on_a_whole_minute(self) -> None:
        monrovia = cron("30 0 * * *", "Africa/Monrovia")  # 1972-01-07 00:00:00 → 00:44:30
        end_of_gap = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)
        assert monrovia.next_after(end_of_gap - timedelta(seconds=1)) == end_of_gap
        assert monrovia.next_after(end_of_gap) == datetime(1972, 1, 8, 0, 30, tzinfo=UTC)

    def test_start_and_end_are_inclusive(self) -> None:
        hourly = cron("0 * * * *", start=NOON, end=NOON + timedelta(hours=2))
        assert [fire.hour for fire in hourly.after(NOON - timedelta(days=9))] == [12, 13, 14]
        assert hourly.count_after(NOON, NOON + timedelta(days=9)) == 2

    def test_seconds(self) -> None:
        assert cron("*/20 * * * * *").next_after(NOON) == NOON + timedelta(seconds=20)

    def test_fractions_of_a_second(self) -> None:
        minutely = cron("* * * * *", "Europe/Zurich")
        assert minutely.next_after(NOON - timedelta(microseconds=1)) == NOON
        assert minutely.next_after(NOON + timedelta(microseconds=1)) == NOON + timedelta(minutes=1)

    def test_the_ends_of_time(self) -> None:
        assert cron("0 0 * * *", "Asia/Tokyo").next_after(datetime.max.replace(tzinfo=UTC)) is None
        assert cron("0 0 * * *", "Asia/Tokyo").next_after(datetime.min.replace(tzinfo=UTC)) is not None

    def test_zone_objects_and_spaces(self) -> None:
        assert cron(" 0  9 * * MON ", ZoneInfo("Europe/Zurich")) == cron("0 9 * * MON", "Europe/Zurich")

    @pytest.mark.parametrize(
        "expression",
        [
            "",
            "* * * *",
            "x * * * *",
            "60 * * * *",
            "0 24 * * *",
            "0 0 0 * *",
            "0 0 * * 8",
            "*/0 * * * *",
            "0 0 30 2 *",
            "5-1 * * * *",
            "0 0 * * MON#6",
            "9" * 5000 + " * * * *",
            "1/2/3 * * * *",
        ],
    )
    def test_bad_expressions(self, expression: str) -> None:
        with pytest.raises(
            ConfigurationError, match=r"is not a cron expression.*write minute, hour"
        ) as raised:
            cron(expression)
        assert repr(expression) in str(raised.value)

    def test_an_expression_that_never_fires(self) -> None:
        with pytest.raises(ConfigurationError, match=r"'0 0 \*/14 \* MON#2' never fires.*correct the day"):
            cron("0 0 */14 * MON#2")

    def test_an_expression_that_is_no_text(self) -> None:
        with pytest.raises(ConfigurationError, match=r'5 is not a cron expression; give a text like "30 2'):
            cron(5)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("zone", "message"),
        [
            ("Europe/Zurch", "'Europe/Zurch' is not a known time zone; did you mean 'Europe/Zurich'"),
            ("europe/berlin", "did you mean 'Europe/Berlin'"),
            ("Europe", "'Europe' is not a known time zone.*IANA name"),
            ("", "IANA name"),
            ("../etc/passwd", "IANA name"),
            ("a\0b", "IANA name"),
            (timezone(timedelta(hours=1)), 'not a named time zone; give a name such as "Europe/Zurich"'),
        ],
    )
    def test_bad_zones(self, zone: str, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            cron("* * * * *", zone)


class TestAt:
    def test_sorted_and_without_repetition(self) -> None:
        zurich = NOON.astimezone(ZoneInfo("Europe/Zurich"))
        assert at(NOON + timedelta(1), zurich, NOON).moments == (NOON, NOON + timedelta(1))

    def test_strictly_after(self) -> None:
        assert at(NOON).next_after(NOON) is None
        assert at(NOON).next_after(NOON - timedelta(microseconds=1)) == NOON

    def test_none(self) -> None:
        with pytest.raises(ConfigurationError, match="at least one"):
            at()

    def test_too_many(self) -> None:
        moments = [NOON + timedelta(seconds=n) for n in range(10_001)]
        assert len(at(*moments[1:]).moments) == 10_000
        with pytest.raises(ConfigurationError, match=r"10001 moments.*use every\(\) or cron\(\)"):
            at(*moments)


@pytest.mark.parametrize(
    "use",
    [
        lambda: at(NAIVE),
        lambda: every(seconds=1, anchor=NAIVE),
        lambda: every(seconds=1, start=NAIVE),
        lambda: every(seconds=1, end=NAIVE),
        lambda: every(seconds=1).resolved(NAIVE),
        lambda: cron("* * * * *", start=NAIVE),
        lambda: cron("* * * * *", end=NAIVE),
        lambda: at(NOON).after(NAIVE),
        lambda: at(NOON).next_after(NAIVE),
        lambda: at(NOON).count_after(NOON, NAIVE),
        lambda: cron("* * * * *").count_after(NOON, NAIVE),
        lambda: every(seconds=1, anchor=NOON).count_after(NAIVE, NOON),
        lambda: iso(NAIVE),
    ],
)
def test_naive_datetimes_are_refused(use) -> None:
    with pytest.raises(ConfigurationError, match=r"2026-11-15T12:00:00 is naive.*add tzinfo.*ZoneInfo"):
        use()


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (every(minutes=5), "every 5 minutes"),
        (every(hours=1), "every hour"),
        (every(weeks=2), "every 2 weeks"),
        (every(days=8), "every 8 days"),
        (every(seconds=90), "every 1 minute 30 seconds"),
        (every(seconds=0.25), "every 0.25 seconds"),
        (every(days=1, start=NOON), "every day, from 2026-11-15T12:00:00Z"),
        (cron("30 2 * * *", "Europe/Zurich"), "cron 30 2 * * * in Europe/Zurich"),
        (cron("0 0 * * *", end=NOON), "cron 0 0 * * * in UTC, until 2026-11-15T12:00:00Z"),
        (at(NOON), "at 2026-11-15T12:00:00Z"),
        (
            at(*(NOON + timedelta(n) for n in range(9))),
            "at 2026-11-15T12:00:00Z and 8 more until 2026-11-23T12:00:00Z",
        ),
    ],
)
def test_in_words(trigger: triggers.Trigger, words: str) -> None:
    assert trigger.describe() == words


ZURICH_NOON = NOON.astimezone(ZoneInfo("Europe/Zurich"))
TEXT = "2026-11-15T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("trigger", "value"),
    [
        (every(minutes=5), {"type": "every", "seconds": 300}),
        (every(seconds=0.25), {"type": "every", "microseconds": 250_000}),
        (every(minutes=5, anchor=ZURICH_NOON), {"type": "every", "seconds": 300, "anchor": TEXT}),
        (
            every(minutes=5, start=ZURICH_NOON, end=NOON),
            {"type": "every", "seconds": 300, "start": TEXT, "end": TEXT},
        ),
        (cron("0 9 * * *"), {"type": "cron", "expression": "0 9 * * *", "tz": "UTC"}),
        (
            cron("0 9 * * *", "Asia/Tokyo", end=ZURICH_NOON),
            {"type": "cron", "expression": "0 9 * * *", "tz": "Asia/Tokyo", "end": TEXT},
        ),
        (at(ZURICH_NOON), {"type": "at", "moments": [TEXT]}),
    ],
)
def test_json(trigger: triggers.Trigger, value: dict) -> None:
    assert trigger.to_json() == value
    assert trigger_from_json(json.loads(json.dumps(value))) == trigger
    assert hash(trigger_from_json(value)) == hash(trigger)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "None is not a trigger; give an object"),
        ([], "not a trigger"),
        (
            {},
            "set type to one of after, all, any, apscheduler, at, calendar, cron, every, except, rrule, spread",
        ),
        ({"type": "corn"}, "'corn' is no trigger type; did you mean 'cron'"),
        ({"type": ["cron"]}, "set type to one of"),
        ({"type": "every"}, "lacks 'seconds'; its keys are anchor, end, seconds"),
        ({"type": "every", "seconds": 1.5}, "seconds 1.5 is not an integer; write whole seconds"),
        ({"type": "every", "seconds": True}, "not an integer"),
        ({"type": "every", "seconds": "5"}, "not an integer"),
        ({"type": "every", "seconds": 10**30}, "at most ten years"),
        ({"type": "every", "seconds": 0}, "10 ms to ten years"),
        ({"type": "every", "seconds": 5, "jitter": 1}, "has an unknown 'jitter'; its keys are"),
        ({"type": "every", "seconds": 5, 7: 1}, "unknown '7'"),
        ({"type": "every", "seconds": 5, "anchor": "noon"}, "'noon' is not an ISO 8601 time; write it like"),
        ({"type": "every", "seconds": 5, "anchor": None}, "None is not an ISO 8601 time"),
        ({"type": "every", "seconds": 5, "anchor": "2026-11-15T12:00:00"}, "no offset from UTC; append Z"),
        ({"type": "cron", "tz": "UTC"}, "lacks 'expression'"),
        ({"type": "cron", "expression": "* * * * *"}, "lacks 'tz'"),
        ({"type": "cron", "expression": 5, "tz": "UTC"}, "give a text"),
        ({"type": "cron", "expression": "* * * * *", "tz": 5}, "give a name"),
        ({"type": "cron", "expression": "* * * * *", "tz": "Mars"}, "not a known time zone"),
        ({"type": "at", "moments": "2026"}, "give a list"),
        ({"type": "at", "moments": []}, "at least one"),
        ({"type": "at", "moments": [5]}, "5 is not an ISO 8601 time"),
    ],
)
def test_bad_json(value: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        trigger_from_json(value)


def test_without_apscheduler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(codec._READERS, "apscheduler", raising=False)
    for name in [name for name in sys.modules if "apscheduler" in name.split(".")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apscheduler", None)
    with pytest.raises(ConfigurationError, match=r"'apscheduler' cannot be read.*fencepost\[apscheduler\]"):
        trigger_from_json({"type": "apscheduler", "kind": "cron"})


def test_iso_is_exact_and_sorts() -> None:
    assert iso(NOON) == TEXT
    assert iso(ZURICH_NOON.replace(microsecond=7)) == "2026-11-15T12:00:00.000007Z"
    assert from_iso(TEXT) == NOON
    assert from_iso("2026-11-15T13:00:00+01:00") == NOON
    assert from_iso(TEXT).tzinfo is UTC


def test_a_moment_at_the_edge_of_datetime_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="years 1900 to 8999"):
        at(NOON).next_after(datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))))
