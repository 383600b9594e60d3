"""The checker's calendar against dates written by hand. Nothing here is computed by the code under test."""

# mypy: no-check-untyped-defs

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fencepost import Calendar, at, cron, every
from tests.protocol.calendar import due_between


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(trigger, after: str, until: str) -> list[str]:
    return [f"{fire:%m-%d %H:%M}" for fire in due_between(trigger.to_json(), utc(after), utc(until))]


ZURICH_NIGHTLY = cron("30 2 * * *", tz="Europe/Zurich")
ZURICH_HALF_HOURS = cron("*/30 * * * *", tz="Europe/Zurich")


@pytest.mark.parametrize(
    ("trigger", "after", "until", "expected"),
    [
        # On 2026-03-29 the clocks of Zurich go from 02:00 to 03:00, at 01:00 UTC. 02:30 does not exist.
        (
            ZURICH_NIGHTLY,
            "2026-03-27",
            "2026-03-31",
            ["03-27 01:30", "03-28 01:30", "03-29 01:00", "03-30 00:30"],
        ),
        # On 2026-10-25 they go back from 03:00 to 02:00, at 01:00 UTC. 02:30 is there twice: the first counts.
        (ZURICH_NIGHTLY, "2026-10-24", "2026-10-27", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
        (
            ZURICH_HALF_HOURS,
            "2026-03-29T00:00",
            "2026-03-29T02:00",
            ["03-29 00:30", "03-29 01:00", "03-29 01:30", "03-29 02:00"],
        ),
        (
            ZURICH_HALF_HOURS,
            "2026-10-24T23:30",
            "2026-10-25T02:00",
            ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"],
        ),
        # New York: 2026-03-08 02:00 -> 03:00 at 07:00 UTC; 2026-11-01 02:00 -> 01:00 at 06:00 UTC.
        (
            cron("30 2 * * *", tz="America/New_York"),
            "2026-03-07",
            "2026-03-10",
            ["03-07 07:30", "03-08 07:00", "03-09 06:30"],
        ),
        (
            cron("30 1 * * *", tz="America/New_York"),
            "2026-10-31",
            "2026-11-03",
            ["10-31 05:30", "11-01 05:30", "11-02 06:30"],
        ),
        (
            cron("0 * * * *", tz="America/New_York"),
            "2026-11-01T04:30",
            "2026-11-01T08:00",
            ["11-01 05:00", "11-01 06:00", "11-01 07:00", "11-01 08:00"],
        ),
        # Lord Howe moves by half an hour. 2026-04-05 02:00 (+11) -> 01:30 (+10:30) at 2026-04-04 15:00 UTC;
        # 2026-10-04 02:00 (+10:30) -> 02:30 (+11) at 2026-10-03 15:30 UTC.
        (
            cron("45 1 * * *", tz="Australia/Lord_Howe"),
            "2026-04-03",
            "2026-04-06",
            ["04-03 14:45", "04-04 14:45", "04-05 15:15"],
        ),
        (
            cron("15 2 * * *", tz="Australia/Lord_Howe"),
            "2026-10-02",
            "2026-10-05",
            ["10-02 15:45", "10-03 15:30", "10-04 15:15"],
        ),
        (
            cron("*/30 * * * *", tz="Australia/Lord_Howe"),
            "2026-10-03T14:30",
            "2026-10-03T16:30",
            ["10-03 15:00", "10-03 15:30", "10-03 16:00", "10-03 16:30"],
        ),
    ],
)
def test_clock_changes_as_worked_out_by_hand(trigger, after, until, expected):
    assert due(trigger, after, until) == expected


def test_the_29th_of_february_comes_every_four_years():
    leap_day = cron("0 12 29 2 *")
    assert due(leap_day, "2027-02-20", "2027-03-10") == []
    assert due(leap_day, "2028-02-20", "2028-03-10") == ["02-29 12:00"]
    assert due(cron("0 0 31 * *"), "2026-03-01", "2026-05-31") == ["03-31 00:00", "05-31 00:00"]


def test_the_edges_are_after_exclusive_and_until_inclusive():
    assert due(cron("0 * * * *"), "2026-11-15T12:00", "2026-11-15T14:00") == ["11-15 13:00", "11-15 14:00"]
    assert due(cron("0 * * * *"), "2026-11-15T12:00:01", "2026-11-15T12:59:59") == []


def test_days_of_the_month_and_of_the_week_combine_as_cron_has_it():
    # 2026-11-15 is a Sunday.
    assert due(cron("0 0 * * 7"), "2026-11-14", "2026-11-23") == ["11-15 00:00", "11-22 00:00"]
    assert due(cron("0 0 18 * 1"), "2026-11-14", "2026-11-23") == [
        "11-16 00:00",
        "11-18 00:00",
        "11-23 00:00",
    ]
    assert due(cron("0 9-17/4 * * 1-5"), "2026-11-15", "2026-11-16T23:00") == [
        "11-16 09:00",
        "11-16 13:00",
        "11-16 17:00",
    ]


def test_a_grid_starts_one_interval_after_its_anchor_and_keeps_its_bounds():
    anchor = utc("2026-11-15T12:00")
    assert due(every(minutes=20, anchor=anchor), "2026-11-15T11:00", "2026-11-15T13:00") == [
        "11-15 12:20",
        "11-15 12:40",
        "11-15 13:00",
    ]
    bounded = every(minutes=20, anchor=anchor, start=utc("2026-11-15T12:40"), end=utc("2026-11-15T13:00"))
    assert due(bounded, "2026-11-15T11:00", "2026-11-15T15:00") == ["11-15 12:40", "11-15 13:00"]
    half = due_between(every(seconds=0.5, anchor=anchor).to_json(), anchor, utc("2026-11-15T12:00:01"))
    assert [fire.microsecond for fire in half] == [500_000, 0]


def test_given_moments_are_due_as_given():
    moments = [utc("2026-11-15T12:00"), utc("2026-11-16T12:00"), utc("2026-11-17T12:00")]
    assert due(at(*moments), "2026-11-15T12:00", "2026-11-16T12:00") == ["11-16 12:00"]


def test_what_is_made_of_other_triggers():
    noon = utc("2026-11-15T12:00")
    two, three = (every(minutes=n, anchor=noon) for n in (2, 3))
    window = ("2026-11-15T12:00", "2026-11-15T12:12")

    def minutes(trigger) -> list[int]:
        return [int(fire[-2:]) for fire in due(trigger, *window)]

    assert minutes(two | three) == [2, 3, 4, 6, 8, 9, 10, 12]
    assert minutes(two & three) == [6, 12]
    assert minutes(three - two) == [3, 9]
    spread = three.spread("10m", "job")
    later = spread.offset
    found = due_between(spread.to_json(), noon + later, noon + later + timedelta(minutes=6))
    assert [fire - later for fire in found] == [noon + timedelta(minutes=3), noon + timedelta(minutes=6)]
    freeze = Calendar("c", blackouts=[(utc("2026-11-15T12:06"), utc("2026-11-15T12:09"), "freeze")])
    assert minutes(three.on(freeze)) == [3, 9, 12]
    sunday = Calendar("c", weekend="sun")
    assert due(cron("0 12 * * *").on(sunday), "2026-11-13", "2026-11-17") == [
        "11-13 12:00",
        "11-14 12:00",
        "11-16 12:00",
    ]
    monday = Calendar("c", dates={"2026-11-16": "moved house"})
    assert due(cron("0 12 * * *").on(monday), "2026-11-15", "2026-11-18") == ["11-15 12:00", "11-17 12:00"]
