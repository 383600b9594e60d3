"""Rules about fires that are asked for later, about backfills, about fires that are skipped, and about jitter."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost.model import Backfill, FireRecord, JobRecord, Segment, State, fire_key
from fencepost.model.triggers import every
from fencepost.model.triggers.following import After
from fencepost.store.base import ChangeJob, RetryLater
from fencepost.testing.conformance.harness import Harness, due_times, steps
from fencepost.testing.conformance.loss import remember_more

MINUTE = timedelta(minutes=1)


class LaterRules:
    @pytest.fixture
    async def by_hand(self, harness: Harness) -> Harness:
        """Replica `a`, and a job that runs only by hand."""
        await harness.join("a")
        await harness.define("job")
        return harness

    async def test_a_fire_can_be_asked_for_later(self, by_hand: Harness) -> None:
        now = await by_hand.now()
        added = await by_hand.trigger("job", delay=30.0, args={"x": 1})
        assert added.outcome == "added"
        assert added.fire is not None
        assert added.fire.due_at >= now + timedelta(seconds=30)
        asked = await by_hand.ask("a")
        assert asked.claims == ()
        assert asked.wake_in == pytest.approx(30, abs=1)
        assert [fire.key for fire in await by_hand.fires("job", State.PENDING)] == ["job!by-hand"]
        await by_hand.elapse(31)
        fire = await by_hand.claim("a")
        assert (fire.key, fire.args, fire.due_at) == ("job!by-hand", {"x": 1}, added.fire.due_at)

    async def test_it_may_name_the_moment_and_a_past_one_is_now(self, by_hand: Harness) -> None:
        due_at = (await by_hand.now()).replace(microsecond=0) + 2 * MINUTE
        await by_hand.trigger("job", "ahead", due_at=due_at)
        await by_hand.trigger("job", "past", due_at=due_at - timedelta(days=1))
        past = await by_hand.claim("a")
        assert past.key == "job!past"
        assert past.due_at > due_at - 5 * MINUTE
        await by_hand.settle(past)
        await by_hand.elapse(121)
        assert (await by_hand.claim("a")).due_at == due_at

    async def test_the_same_name_is_one_fire(self, by_hand: Harness) -> None:
        first = await by_hand.trigger("job", delay=30.0)
        assert (await by_hand.trigger("job", delay=90.0)).fire == first.fire
        assert (await by_hand.trigger("job")).outcome == "exists"

    async def test_what_lies_ahead_can_be_cancelled(self, by_hand: Harness) -> None:
        await by_hand.trigger("job", delay=30.0)
        fire = await by_hand.store.cancel_fire("job!by-hand", "ann")
        assert fire is not None
        assert (fire.state, fire.cancelled_by) == (State.CANCELLED, "ann")
        await by_hand.elapse(31)
        assert await by_hand.claims("a") == []

    async def test_it_neither_fills_the_queue_nor_counts_as_active(self, by_hand: Harness) -> None:
        for number in range(105):
            await by_hand.trigger("job", f"n{number}", delay=600.0)
        assert (await by_hand.trigger("job", "now", if_active="refuse")).outcome == "added"
        assert (await by_hand.claim("a")).key == "job!now"

    async def test_scheduled_fires_go_on_and_a_new_trigger_leaves_it_alone(self, by_hand: Harness) -> None:
        await by_hand.define("job", every(minutes=1))
        await by_hand.trigger("job", delay=90.0)
        await by_hand.fall_due()
        fire = await by_hand.claim("a")
        assert fire.scheduled
        await by_hand.settle(fire)
        await by_hand.define("job", every(minutes=10))
        asked = await by_hand.ask("a")
        assert asked.wake_in == pytest.approx(30, abs=2)
        await by_hand.elapse(31)
        assert (await by_hand.claim("a")).key == "job!by-hand"

    async def test_it_goes_with_its_job(self, by_hand: Harness) -> None:
        await by_hand.trigger("job", delay=30.0)
        await by_hand.remove("job")
        assert (await by_hand.fire("job!by-hand")).state is State.CANCELLED


async def begin(harness: Harness, name: str = "b", minutes: int = 5, **fields: Any) -> JobRecord:
    """A backfill of so many minutes before now, of a job that has not run then."""
    now = await harness.now()
    since = now.replace(second=0, microsecond=0) - minutes * MINUTE
    given = Backfill(name, every(minutes=1, anchor=since - MINUTE), since, now, since, **fields)
    change = ChangeJob("job", "backfill", by="ann", backfill=replace(given, total=minutes))
    record = await harness.store.change_job(change)
    assert record is not None
    return record


async def ran_through(harness: Harness) -> list[FireRecord]:
    """Plan, claim and settle until nothing is left; the fires in the order of their runs."""
    ran: list[FireRecord] = []
    while True:
        while plans := await harness.plans():
            await harness.store.plan_fires(plans)
            await harness.advance(0.001)
        fires = await harness.claims("a")
        if not fires:
            return ran
        for fire in fires:
            await harness.settle(fire)
        ran += fires


class BackfillRules:
    @pytest.fixture
    async def filling(self, harness: Harness) -> Harness:
        await harness.join("a")
        await harness.define("job", overlap="allow(4)")
        return harness

    async def test_each_due_time_runs_once_under_a_key_of_its_own(self, filling: Harness) -> None:
        record = await begin(filling, minutes=45)
        since = record.backfills[0].since
        ran = await ran_through(filling)
        due = steps(since, 60, len(ran))
        assert len(ran) in (45, 46)
        assert [fire.nominal_due_at for fire in ran] == due
        assert [fire.effect_key for fire in ran] == [fire_key("job", each) for each in due]
        assert ran[0].key == f"job!backfill-b:{since:%Y-%m-%dT%H:%M:%S}.000000Z"
        assert {(fire.scheduled, fire.backfill, fire.by) for fire in ran} == {(False, "b", "ann")}
        [backfill] = (await filling.job("job")).backfills
        assert (backfill.state, backfill.added, backfill.ended) == ("done", len(ran), {"succeeded": len(ran)})
        assert backfill.total == 45

    async def test_the_same_name_is_one_backfill(self, filling: Harness) -> None:
        first = await begin(filling)
        await filling.advance(1)
        again = await begin(filling, limit=3)
        assert len(again.backfills) == 1
        assert again.backfills[0].limit == first.backfills[0].limit

    async def test_it_may_run_backwards(self, filling: Harness) -> None:
        await begin(filling, minutes=45, reverse=True)
        due = [fire.nominal_due_at for fire in await ran_through(filling)]
        assert due == sorted(due, reverse=True)
        assert len(due) in (45, 46)

    async def test_at_most_so_many_run_at_once(self, filling: Harness) -> None:
        await begin(filling, limit=2)
        await filling.plan()
        first = await filling.claims("a")
        assert len(first) == 2
        assert await filling.claims("a") == []
        assert await filling.settle(first[0])
        assert len(await filling.claims("a")) == 1

    async def test_it_never_runs_more_at_once_than_the_job_allows(self, filling: Harness) -> None:
        await filling.define("job", overlap="skip")
        await begin(filling, limit=3)
        await filling.plan()
        assert len(await filling.claims("a")) == 1

    async def test_rows_are_added_a_page_at_a_time(self, filling: Harness) -> None:
        await begin(filling, minutes=600)
        await filling.plan()
        live = await filling.fires("job", State.PENDING)
        assert 10 <= len(live) <= 22
        [backfill] = (await filling.job("job")).backfills
        assert backfill.added == len(live)

    async def test_rows_of_a_stale_leader_are_refused(self, filling: Harness) -> None:
        await begin(filling, minutes=45)
        [plan] = await filling.plans()
        assert await filling.store.plan_fires([plan]) == (True,)
        assert await filling.store.plan_fires([plan]) == (False,)
        assert len({fire.key for fire in await ran_through(filling)}) in (45, 46)

    async def test_pausing_holds_what_has_not_begun(self, filling: Harness) -> None:
        await begin(filling)
        await filling.plan()
        fire = await filling.claim("a")
        paused = await filling.store.change_job(ChangeJob("job", "pause backfill", "later", name="b"))
        assert paused is not None
        assert (paused.backfills[0].state, paused.backfills[0].note) == ("paused", "later")
        assert await filling.settle(fire)
        asked = await filling.ask("a")
        assert (asked.claims, asked.wake_in) == ((), None)
        assert await filling.store.change_job(ChangeJob("job", "resume backfill", name="b"))
        assert len(await ran_through(filling)) in (4, 5)

    async def test_it_is_cancelled_as_one(self, filling: Harness) -> None:
        await begin(filling, minutes=45, limit=2)
        await filling.plan()
        one, two = await filling.claims("a")
        await filling.update(RetryLater(two.key, two.token, 60.0))
        assert await filling.store.change_job(ChangeJob("job", "cancel backfill", by="bob", name="b"))
        assert (await filling.fire(one.key)).cancel_requested
        assert (await filling.fire(two.key)).state is State.CANCELLED
        assert await filling.fires("job", State.PENDING) == []
        await filling.settle(one, State.CANCELLED)
        await filling.plan()
        assert await filling.claims("a") == []
        [backfill] = (await filling.job("job")).backfills
        assert (backfill.state, backfill.is_open, backfill.cancelled_by) == ("cancelled", False, "bob")
        assert sum(backfill.ended.values()) == backfill.added
        assert await filling.store.change_job(ChangeJob("job", "cancel backfill", name="b")) is None

    async def test_it_is_cancelled_also_where_its_rows_seem_to_lie_ahead(self, filling: Harness) -> None:
        if filling.step_back is None:
            pytest.skip("this store's clock cannot be stepped")
        await begin(filling)
        await filling.plan()
        await filling.step_back(30)
        assert await filling.store.change_job(ChangeJob("job", "cancel backfill", name="b"))
        await filling.elapse(40)
        assert await filling.claims("a") == []
        [backfill] = (await filling.job("job")).backfills
        assert (backfill.is_open, sum(backfill.ended.values())) == (False, backfill.added)

    @pytest.mark.parametrize(
        ("repeats", "pauses"),
        [("", True), ("job", True), ("job after", False)],
        ids=["job", "child", "neither"],
    )
    async def test_it_pauses_after_a_loss_if_what_has_run_must_not_be_repeated(
        self, filling: Harness, repeats: str, pauses: bool
    ) -> None:
        """By the job's own policy, or by that of one that follows it."""
        policies = {id: "rerun" if id in repeats.split() else "record" for id in ("job", "after")}
        await filling.define("job", after_crash=policies["job"])
        await filling.define("after", After(("job",)), after_crash=policies["after"])
        await begin(filling)
        await filling.elapse(1)
        await remember_more(filling, steps=1_000_000)
        await filling.elapse(1)
        ran = await ran_through(filling)
        [backfill] = (await filling.job("job")).backfills
        assert (bool(ran), backfill.state) == ((False, "paused") if pauses else (True, "done"))
        if pauses:
            assert await filling.store.change_job(ChangeJob("job", "resume backfill", name="b"))
            assert {fire.job_id for fire in await ran_through(filling)} == {"job", "after"}

    async def test_only_missing_passes_over_what_has_succeeded(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        trigger = (await harness.job("job")).segments[0].trigger
        states = [State.SUCCEEDED, State.FAILED, State.SUCCEEDED]
        for state in states:
            await harness.fall_due()
            await harness.settle(await harness.claim("a"), state)
        await harness.advance(1)
        now = await harness.now()
        given = Backfill("b", trigger, now - 10 * MINUTE, now, now, only_missing=True)
        for name, missing in (("b", 1), ("c", 0)):
            change = ChangeJob("job", "backfill", backfill=replace(given, name=name))
            assert await harness.store.change_job(change)
            ran = await ran_through(harness)
            assert len(ran) == missing
            backfill = (await harness.job("job")).backfill(name)
            assert backfill is not None
            assert (backfill.passed, backfill.added, backfill.state) == (3 - missing, missing, "done")

    async def test_no_misfire_rule_and_no_pause_of_the_job_drops_its_fires(self, filling: Harness) -> None:
        await filling.define("job", misfire="skip", misfire_after=timedelta(seconds=2))
        await begin(filling)
        await filling.plan()
        await filling.pause("job")
        await filling.elapse(60)
        assert len(await ran_through(filling)) in (5, 6)

    async def test_what_is_scheduled_waits_for_its_turn_and_goes_first(self, filling: Harness) -> None:
        await filling.define("job", every(minutes=1), overlap="skip")
        await begin(filling)
        await filling.plan()
        fire = await filling.claim("a")
        await filling.fall_due()
        assert await filling.claims("a") == []
        assert [each.state for each in await filling.fires("job", State.QUEUED)] == [State.QUEUED]
        await filling.settle(fire)
        assert (await filling.claim("a")).scheduled

    async def test_its_fires_do_not_fill_the_queue_of_manual_ones(self, filling: Harness) -> None:
        await filling.define("job", overlap="allow(200)")
        await begin(filling, minutes=300, limit=100)
        await filling.plan()
        assert len(await filling.fires("job", State.PENDING)) > 100
        assert (await filling.trigger("job")).outcome == "added"

    async def test_a_backfill_goes_with_its_job(self, filling: Harness) -> None:
        await begin(filling)
        await filling.plan()
        await filling.remove("job")
        await filling.plan()
        assert await filling.claims("a") == []
        assert {fire.state for fire in await filling.fires("job")} == {State.CANCELLED}


async def next_due(harness: Harness) -> list[datetime]:
    [segment] = (await harness.job("job")).segments
    assert isinstance(segment, Segment)
    first = segment.trigger.next_after(await harness.now())
    assert first is not None
    return steps(first, 60, 3)


class SkipRules:
    @pytest.fixture
    async def minutely(self, harness: Harness) -> Harness:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        return harness

    async def test_a_coming_fire_is_skipped_with_its_reason(self, minutely: Harness) -> None:
        first, second, _ = await next_due(minutely)
        for due_at in (first, second):
            change = ChangeJob("job", "skip", "holiday", "ann", due_at=due_at)
            assert await minutely.store.change_job(change)
        assert (await minutely.job("job")).next_run_after(await minutely.now()) == second + MINUTE
        for _ in range(2):
            await minutely.fall_due()
            assert await minutely.claims("a") == []
        rows = await minutely.fires("job", State.SKIPPED)
        assert due_times(rows) == [first, second]
        assert {row.reason for row in rows} == {"on request: holiday"}
        assert (await minutely.job("job")).skips == ()
        await minutely.fall_due()
        assert (await minutely.claim("a")).due_at == second + MINUTE

    async def test_it_can_be_taken_back_as_long_as_it_lies_ahead(self, minutely: Harness) -> None:
        first, second, _ = await next_due(minutely)
        for due_at in (first, second):
            assert await minutely.store.change_job(ChangeJob("job", "skip", due_at=due_at))
        assert await minutely.store.change_job(ChangeJob("job", "unskip", due_at=second))
        await minutely.fall_due()
        assert await minutely.claims("a") == []
        assert await minutely.store.change_job(ChangeJob("job", "unskip", due_at=first)) is None
        await minutely.fall_due()
        assert (await minutely.claim("a")).due_at == second

    async def test_only_what_the_calendar_has_ahead_can_be_skipped(self, minutely: Harness) -> None:
        first, _, _ = await next_due(minutely)
        for due_at in (first + timedelta(seconds=1), first - 5 * MINUTE, None):
            assert await minutely.store.change_job(ChangeJob("job", "skip", due_at=due_at)) is None

    async def test_it_is_skipped_also_in_a_backlog(self, minutely: Harness) -> None:
        await minutely.define("job", every(minutes=1), misfire="all")
        first, second, third = await next_due(minutely)
        assert await minutely.store.change_job(ChangeJob("job", "skip", "no", due_at=second))
        await minutely.elapse(200)
        await minutely.plan()
        await minutely.settle(await minutely.claim("a"))
        await minutely.settle(await minutely.claim("a"))
        assert [fire.due_at for fire in await minutely.fires("job", State.SUCCEEDED)] == [first, third]
        assert [fire.due_at for fire in await minutely.fires("job", State.SKIPPED)] == [second]


class JitterRules:
    async def test_the_start_is_put_off_and_the_due_time_is_not(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1), jitter=timedelta(seconds=50))
        job = (await harness.job("job")).job
        drawn = set()
        for _ in range(3):
            await harness.plan()
            planned = (await harness.fires("job", State.PENDING))[0]
            wait = job.jitter_of(planned)
            assert timedelta(0) <= wait < timedelta(seconds=50)
            drawn.add(wait)
            await harness.advance((planned.due_at + wait - await harness.now()).total_seconds() - 0.2)
            await harness.heartbeat("a")
            asked = await harness.ask("a")
            assert asked.claims == ()
            assert asked.wake_in == pytest.approx(0.2, abs=0.2)
            await harness.advance(0.3)
            fire = await harness.claim("a")
            assert (fire.due_at, fire.start_at) == (planned.due_at, planned.due_at + wait)
            await harness.settle(fire)
            assert (await harness.fire(fire.key)).jitter_seconds == wait.total_seconds()
        assert len(drawn) == 3

    async def test_late_is_counted_from_the_start_that_was_drawn(self, harness: Harness) -> None:
        await harness.join("a")
        brief = timedelta(seconds=2)
        jitter = timedelta(minutes=20)
        await harness.define("job", every(hours=1), misfire="skip", misfire_after=brief, jitter=jitter)
        await harness.plan(7200.0)
        [planned, *_] = await harness.fires("job", State.PENDING)
        wait = (await harness.job("job")).job.jitter_of(planned)
        await harness.elapse((planned.due_at + wait - await harness.now()).total_seconds() + 1)
        assert (await harness.claim("a")).key == planned.key

    async def test_manual_fires_start_at_once(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", jitter=timedelta(hours=1))
        await harness.trigger("job")
        assert (await harness.claim("a")).start_at <= await harness.now()
