"""Expanding a calendar: what is listed, what becomes a stretch, and where it stops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.model import CATCH_UP_LIMIT, Gap, Job, JobRecord, Segment
from fencepost.model.triggers import Trigger, at, every
from fencepost.replica.plan import STEPS, expand
from fencepost.store.base import Plan, Planned

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def record_of(
    trigger: Trigger,
    cursor: float = 0,
    until: float | None = None,
    pauses: tuple[Gap, ...] = (),
    later: tuple[Segment, ...] = (),
) -> JobRecord:
    end = None if until is None else after(until)
    head = Segment(3, trigger, after(cursor), after(cursor), end)
    job = Job("job", "work", trigger)
    return JobRecord(job, job.fingerprint, NOON, NOON, version=3, segments=(head, *later), pauses=pauses)


def secondly() -> Trigger:
    return every(seconds=1, anchor=NOON)


def singles(plan: Plan) -> list[float]:
    """The fires listed one by one, in seconds after noon."""
    return [(row.first - NOON).total_seconds() for row in plan.rows if row.count == 1]


def stretches(plan: Plan) -> list[tuple[float, float, int]]:
    return [
        ((row.first - NOON).total_seconds(), (row.last - NOON).total_seconds(), row.count)
        for row in plan.rows
        if row.count > 1
    ]


class TestAhead:
    def test_fires_are_listed_up_to_the_horizon(self) -> None:
        plan = expand(record_of(every(seconds=20, anchor=NOON)), NOON, 60)
        assert plan == Plan(
            "job",
            3,
            NOON,
            None,
            tuple(Planned(after(s), after(s)) for s in (20, 40, 60)),
            after(80),
        )

    def test_nothing_lies_within_the_horizon(self) -> None:
        plan = expand(record_of(every(seconds=100, anchor=NOON)), NOON, 60)
        assert (plan.rows, plan.next_at) == ((), after(100))

    def test_it_goes_on_after_the_cursor(self) -> None:
        plan = expand(record_of(every(seconds=20, anchor=NOON), cursor=40), NOON, 60)
        assert (singles(plan), plan.cursor, plan.next_at) == ([60], after(40), after(80))

    def test_at_most_a_hundred(self) -> None:
        plan = expand(record_of(secondly()), NOON, 500)
        assert singles(plan) == [float(n) for n in range(1, CATCH_UP_LIMIT + 1)]
        assert plan.next_at == after(CATCH_UP_LIMIT + 1)

    def test_exactly_a_hundred_leave_nothing_out(self) -> None:
        plan = expand(record_of(secondly()), NOON, 100)
        assert len(plan.rows) == 100
        assert plan.next_at == after(101)

    def test_a_calendar_comes_to_its_end(self) -> None:
        plan = expand(record_of(at(after(10), after(30))), NOON, 60)
        assert (singles(plan), plan.next_at) == ([10, 30], None)

    def test_an_exhausted_calendar_has_nothing(self) -> None:
        plan = expand(record_of(at(after(10)), cursor=10), NOON, 60)
        assert (plan.rows, plan.next_at) == ((), None)


class TestDue:
    def test_a_hundred_due_fires_are_listed_one_by_one(self) -> None:
        plan = expand(record_of(secondly()), after(100), 0)
        assert (len(singles(plan)), stretches(plan), plan.next_at) == (100, [], after(101))

    def test_older_ones_become_a_stretch(self) -> None:
        plan = expand(record_of(secondly()), after(350), 5)
        assert stretches(plan) == [(1, 250, 250)]
        assert singles(plan) == [float(n) for n in range(251, 356)]
        assert plan.next_at == after(356)

    def test_a_stretch_comes_before_what_is_listed(self) -> None:
        rows = expand(record_of(secondly()), after(350), 5).rows
        assert all(one.last < two.first for one, two in pairwise(rows))

    def test_due_and_ahead_are_counted_apart(self) -> None:
        plan = expand(record_of(secondly()), after(200), 500)
        assert stretches(plan) == [(1, 100, 100)]
        assert len(singles(plan)) == 200
        assert plan.next_at == after(301)


class TestGaps:
    def test_a_stretch_never_crosses_the_edge_of_a_pause(self) -> None:
        pauses = (Gap(after(100), after(150)),)
        plan = expand(record_of(secondly(), pauses=pauses), after(350), 0)
        assert stretches(plan) == [(1, 99, 99), (100, 149, 50), (150, 250, 101)]

    def test_nor_of_a_time_when_nobody_knew_the_task(self) -> None:
        plan = expand(record_of(secondly()), after(350), 0, [Gap(after(200), after(900))])
        assert stretches(plan) == [(1, 99, 99), (200, 350, 151)]
        assert singles(plan) == [float(n) for n in range(100, 200)]

    def test_nor_where_one_gap_meets_the_next(self) -> None:
        pauses = (Gap(after(50), after(100)), Gap(after(100), after(150)))
        plan = expand(record_of(secondly(), pauses=pauses), after(250), 0)
        assert stretches(plan) == [(1, 49, 49), (50, 99, 50), (100, 149, 50)]
        assert 150.0 in singles(plan)

    def test_a_gap_between_two_fires_divides_nothing(self) -> None:
        plan = expand(record_of(secondly(), pauses=(Gap(after(50.2), after(50.8)),)), after(350), 0)
        assert stretches(plan) == [(1, 250, 250)]

    def test_what_lies_ahead_is_listed_whatever_the_pause(self) -> None:
        plan = expand(record_of(every(seconds=20, anchor=NOON), pauses=(Gap(NOON),)), NOON, 60)
        assert singles(plan) == [20, 40, 60]


class TestUntil:
    def test_nothing_after_the_end_is_planned(self) -> None:
        plan = expand(record_of(every(seconds=20, anchor=NOON), until=50), after(200), 60)
        assert (singles(plan), plan.until, plan.next_at) == ([20, 40], after(50), after(60))

    def test_the_end_itself_belongs_to_it(self) -> None:
        plan = expand(record_of(every(seconds=20, anchor=NOON), until=40), after(200), 60)
        assert (singles(plan), plan.next_at) == ([20, 40], after(60))

    def test_the_newest_before_the_end_are_listed(self) -> None:
        plan = expand(record_of(secondly(), until=300), after(9999), 60)
        assert stretches(plan) == [(1, 200, 200)]
        assert singles(plan) == [float(n) for n in range(201, 301)]
        assert plan.next_at == after(301)

    def test_only_the_oldest_calendar_is_expanded(self) -> None:
        newer = Segment(4, every(seconds=5, anchor=NOON), after(50), after(50))
        record = record_of(every(seconds=20, anchor=NOON), until=50, later=(newer,))
        plan = expand(record, after(200), 60)
        assert (plan.version, singles(plan)) == (3, [20, 40])


class TestChunks:
    def test_a_long_backlog_takes_several(self) -> None:
        plan = expand(record_of(secondly()), after(3 * STEPS), 60)
        assert stretches(plan) == [(1, STEPS - 100, STEPS - 100)]
        assert singles(plan) == []
        assert plan.next_at == after(STEPS - 99)

    def test_a_chunk_that_ends_where_the_backlog_does_lists_the_newest(self) -> None:
        plan = expand(record_of(secondly()), after(STEPS), 0)
        assert stretches(plan) == [(1, STEPS - 100, STEPS - 100)]
        assert len(singles(plan)) == 100
        assert plan.next_at == after(STEPS + 1)

    def test_one_fire_more_and_it_is_behind(self) -> None:
        plan = expand(record_of(secondly()), after(STEPS + 1), 0)
        assert stretches(plan) == [(1, STEPS - 100, STEPS - 100)]
        assert plan.next_at == after(STEPS - 99)

    def test_a_chunk_may_end_ahead_of_now(self) -> None:
        plan = expand(record_of(secondly()), after(STEPS - 20), 60)
        assert len(singles(plan)) == 120
        assert plan.next_at == after(STEPS + 1)

    @pytest.mark.parametrize("backlog", [1, 99, 100, 101, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS, 12_345])
    def test_chunk_by_chunk_everything_is_planned_once(self, backlog: int) -> None:
        cursor, counted = 0.0, 0
        rows: list[Planned] = []
        while True:
            plan = expand(record_of(secondly(), cursor=cursor), after(backlog), 0)
            assert plan.next_at is not None
            rows += plan.rows
            counted += sum(row.count for row in plan.rows)
            if plan.next_at > after(backlog):
                break
            cursor = (plan.rows[-1].last - NOON).total_seconds()
        assert counted == backlog
        assert all(one.last + timedelta(seconds=1) == two.first for one, two in pairwise(rows))
        assert rows[0].first == after(1)
        assert rows[-1].last == after(backlog)
        assert rows[-1].count == 1


@given(
    interval=st.integers(1, 50),
    cursor=st.integers(0, 300),
    now=st.integers(0, 3000),
    horizon=st.integers(0, 200),
    until=st.none() | st.integers(1, 3000),
    edges=st.lists(st.integers(0, 3000), max_size=6),
)
def test_every_fire_is_in_exactly_one_row(
    interval: int, cursor: int, now: int, horizon: int, until: int | None, edges: list[int]
) -> None:
    trigger = every(seconds=interval, anchor=NOON)
    pauses = tuple(Gap(after(a), after(b)) for a, b in pairwise(sorted(edges)))
    plan = expand(record_of(trigger, cursor, until, pauses), after(now), horizon)
    assert plan.next_at is not None
    end = min(after(now + horizon), after(until) if until else after(now + horizon))
    assert sum(row.count for row in plan.rows) == trigger.count_after(
        after(cursor), plan.next_at - timedelta(microseconds=1)
    )
    assert all(row.last <= end for row in plan.rows)
    assert all(one.last < two.first for one, two in pairwise(plan.rows))
    assert all(row.count == trigger.count_after(row.first, row.last) + 1 for row in plan.rows)
    for row in plan.rows:
        assert len({tuple(gap.covers(m) for gap in pauses) for m in (row.first, row.last)}) == 1
