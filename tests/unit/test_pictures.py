"""Windows, ticks, stretches and needs: what of the pictures needs no store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from fencepost import at, cron, every
from fencepost.errors import UsageError
from fencepost.insight.pictures.counting import spread
from fencepost.insight.pictures.load import _by_hour
from fencepost.insight.pictures.planned import Tick, ticks_of
from fencepost.insight.pictures.replicas import Term, terms_of
from fencepost.insight.pictures.window import Window, floor, window_of
from fencepost.insight.views.pictures import plain
from fencepost.model import LEADERSHIP, Gap, Job, JobEvent, JobRecord, Segment, State
from fencepost.model.fires import FireRecord
from fencepost.model.triggers import Every, Trigger

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
ZURICH = ZoneInfo("Europe/Zurich")
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def record_of(trigger: Trigger, *pauses: Gap) -> JobRecord:
    segment = Segment(1, trigger, NOON, None)
    return JobRecord(Job("job", "work", trigger), "", NOON, NOON, segments=(segment,), pauses=pauses)


def dues(ticks: tuple[Tick, ...]) -> list[datetime]:
    return [tick.due_at for tick in ticks]


@pytest.mark.parametrize("minutes", [10, 37, 60, 60 * 24, 60 * 24 * 30])
@pytest.mark.parametrize("columns", [10, 240, 600])
def test_a_window_has_no_more_buckets_than_columns(minutes: int, columns: int) -> None:
    window = window_of(NOON + 17 * SECOND, timedelta(minutes=minutes), columns=columns)
    buckets = list(window.buckets())
    wide = 1 if window.width < timedelta(days=1) else 30
    assert len(buckets) <= max(columns, wide) + 2
    assert window.since <= NOON < window.until
    assert all(floor(each, window.width) == each for each in (*buckets, window.until))


@pytest.mark.parametrize("span", [timedelta(minutes=9), timedelta(days=31), timedelta()])
def test_windows_that_are_too_short_or_too_long_are_refused(span: timedelta) -> None:
    with pytest.raises(UsageError, match="10m to 30d"):
        window_of(NOON, span)


@pytest.mark.parametrize("until", [datetime(1900, 1, 1, tzinfo=UTC), datetime(8999, 12, 31, tzinfo=UTC)])
def test_a_window_at_the_end_of_time(until: datetime) -> None:
    window = window_of(NOON, timedelta(days=30), until)
    assert window.since < window.until


def test_ticks_lie_ahead_of_now_one_for_each_bucket() -> None:
    window = Window(NOON - HOUR, NOON + HOUR, 10 * MINUTE, NOON + 4 * MINUTE)
    found = ticks_of(record_of(every(minutes=1, anchor=NOON)), window)
    assert dues(found) == [NOON + 5 * MINUTE, *(NOON + n * 10 * MINUTE for n in range(1, 6))]
    assert all(tick.more for tick in found)
    sparse = ticks_of(record_of(every(minutes=25, anchor=NOON)), window)
    assert [(tick.due_at, tick.more) for tick in sparse] == [
        (NOON + 25 * MINUTE, False),
        (NOON + 50 * MINUTE, False),
    ]
    assert ticks_of(record_of(at(NOON)), window) == ()


def test_a_window_of_the_past_has_no_ticks() -> None:
    window = Window(NOON - 2 * HOUR, NOON - HOUR, MINUTE, NOON)
    assert ticks_of(record_of(every(seconds=1, anchor=NOON)), window) == ()


def test_ticks_in_a_pause_are_marked() -> None:
    window = Window(NOON, NOON + HOUR, MINUTE, NOON)
    pause = Gap(NOON - HOUR, NOON + 30 * MINUTE)
    found = ticks_of(record_of(every(minutes=20, anchor=NOON), pause), window)
    assert [tick.paused for tick in found] == [True, False]


@pytest.mark.parametrize(
    ("begin", "local"),
    [
        (
            datetime(2027, 3, 26, tzinfo=UTC),
            ["02:30", "02:30", "03:00", "02:30"],
        ),  # 02:30 is skipped on the 28th
        (
            datetime(2026, 10, 23, tzinfo=UTC),
            ["02:30", "02:30", "02:30", "02:30"],
        ),  # and comes twice on the 25th
    ],
)
def test_ticks_across_a_change_of_the_clock(begin: datetime, local: list[str]) -> None:
    window = Window(begin, begin + timedelta(days=4), HOUR, begin)
    found = dues(ticks_of(record_of(cron("30 2 * * *", tz="Europe/Zurich")), window))
    assert [f"{due.astimezone(ZURICH):%H:%M}" for due in found] == local
    assert len({due.astimezone(ZURICH).date() for due in found}) == 4


def test_ticks_of_many_fires_cost_as_much_as_the_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    trigger = every(timedelta(milliseconds=10), anchor=NOON)
    real = type(trigger)._after

    def after(self: Every, moment: datetime) -> Iterator[datetime]:
        nonlocal asked
        for due in real(self, moment):
            asked += 1
            yield due

    monkeypatch.setattr(type(trigger), "_after", after)
    window = Window(NOON, NOON + timedelta(days=30), 3 * HOUR, NOON)
    assert len(ticks_of(record_of(trigger), window)) == 240
    assert asked <= 3 * 240


def test_a_row_of_many_fires_is_spread_over_its_buckets() -> None:
    row = FireRecord("job@x", "job", NOON, count=121, last_due_at=NOON + 2 * MINUTE)
    assert list(spread(row, NOON - HOUR, NOON + HOUR, MINUTE)) == [
        (NOON, 60),
        (NOON + MINUTE, 60),
        (NOON + 2 * MINUTE, 1),
    ]
    assert list(spread(row, NOON + 90 * SECOND, NOON + HOUR, MINUTE)) == [
        (NOON + MINUTE, 30),
        (NOON + 2 * MINUTE, 1),
    ]
    assert list(spread(row, NOON + HOUR, NOON + 2 * HOUR, MINUTE)) == []
    one = FireRecord("job@x", "job", NOON)
    assert list(spread(one, NOON, NOON + HOUR, MINUTE)) == [(NOON, 1)]
    assert list(spread(one, NOON + SECOND, NOON + HOUR, MINUTE)) == []


def test_a_week_by_the_hour() -> None:
    found = dict(_by_hour(every(hours=2, anchor=NOON), NOON))
    assert found == {NOON + 2 * n * HOUR: 1 for n in range(1, 84)}
    assert sum(number for _, number in _by_hour(cron("*/15 9-17 * * MON-FRI"), NOON)) == 5 * 9 * 4


def test_terms_end_when_the_next_begins_or_the_leader_resigns() -> None:
    def event(minutes: int, kind: str, term: int, by: str) -> JobEvent:
        moment = NOON + minutes * MINUTE
        return JobEvent(LEADERSHIP, moment, kind, term, moment, by=by)  # type: ignore[arg-type]

    events = [
        event(0, "led", 1, "a"),
        event(5, "resigned", 1, "a"),
        event(6, "led", 2, "b"),
        event(9, "led", 3, "c"),
    ]
    assert terms_of(events) == [
        Term(1, "a", NOON, NOON + 5 * MINUTE),
        Term(2, "b", NOON + 6 * MINUTE, NOON + 9 * MINUTE),
        Term(3, "c", NOON + 9 * MINUTE, None),
    ]


def test_values_as_json() -> None:
    tick = Tick(NOON, NOON + SECOND, more=True, paused=False)
    assert plain({"ticks": (tick,), "width": MINUTE, "state": State.LOST}) == {
        "ticks": [
            {
                "at": "2026-11-15T12:00:00.000000Z",
                "due_at": "2026-11-15T12:00:01.000000Z",
                "more": True,
                "paused": False,
            }
        ],
        "width": 60.0,
        "state": "lost",
    }
