"""Rules that the simulator found broken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fencepost.model import CATCH_UP_LIMIT, Reason, State
from fencepost.model.triggers import every
from fencepost.store.base import RetryLater
from fencepost.testing.conformance.harness import Harness, job_of
from fencepost.testing.conformance.loss import remember_more


async def step_back(harness: Harness, seconds: float) -> None:
    if harness.step_back is None:
        pytest.skip("this store's clock cannot be stepped")
    await harness.step_back(seconds)


class SimulatedRules:
    async def test_a_removal_holds_after_what_was_decided(self, harness: Harness) -> None:
        fire = await harness.running()
        await step_back(harness, 300)
        await harness.remove("job")
        removed = (await harness.store.history("job"))[-1]
        assert (removed.kind, removed.since) == ("removed", fire.due_at)

    async def test_a_removal_closes_a_manual_fire_that_seems_to_lie_ahead(self, harness: Harness) -> None:
        await harness.define("job")
        added = await harness.trigger("job")
        await step_back(harness, 300)
        await harness.remove("job")
        assert added.fire is not None
        closed = await harness.fire(added.fire.key)
        assert (closed.state, closed.reason) == (State.CANCELLED, Reason.REMOVED)

    async def test_a_resume_ends_a_pause_that_seems_to_lie_ahead(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await step_back(harness, 30)
        await harness.resume("job")
        await harness.fall_due(100)
        assert len(await harness.claims("a")) == 1

    async def test_a_new_calendar_does_not_begin_before_the_one_it_replaces(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.fall_due(150)
        await harness.define("job", every(minutes=2))
        await step_back(harness, 120)
        await harness.define("job", every(minutes=3))
        first, second, third = await harness.store.history("job")
        assert first.since < second.since == third.since
        assert len(await harness.fires("job", State.PENDING)) == 2

    async def test_a_queued_fire_is_not_planned_again(self, harness: Harness) -> None:
        await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        (queued,) = await harness.fires("job", State.QUEUED)
        await step_back(harness, 90)
        await harness.define("job", every(minutes=1), overlap="queue", misfire="all")
        await harness.define("job", every(seconds=30), overlap="queue")
        await harness.plan(200)
        assert (await harness.fire(queued.key)).state is State.QUEUED

    async def test_a_stretch_is_not_cut_by_a_new_calendar(self, harness: Harness) -> None:
        await harness.define("job", every(seconds=1))
        await harness.advance(1000)
        await harness.plan(0)
        (stretch, *_) = await harness.fires("job", State.PENDING)
        assert stretch.count > 1
        await step_back(harness, 500)
        await harness.define("job", every(seconds=2))
        assert (await harness.store.history("job"))[-1].since >= stretch.last_due

    async def test_a_limit_that_was_lowered_holds_for_what_waits(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", overlap="allow(2)")
        for name in ("one", "two"):
            await harness.trigger("job", name)
        first, second = await harness.claims("a")
        for fire in (first, second):
            assert await harness.update(RetryLater(fire.key, fire.token, 0.0))
        await harness.define("job", overlap="skip")
        (again,) = await harness.claims("a")
        assert await harness.claims("a") == []
        await harness.settle(again)
        assert len(await harness.claims("a")) == 1

    async def test_catch_up_is_bounded_however_often_it_falls_behind(self, harness: Harness) -> None:
        await harness.running(misfire="all", misfire_after=timedelta(seconds=1))
        for _ in range(2):
            await harness.advance(80 * 60)
            await harness.heartbeat("a")
            await harness.plan()
            await harness.ask("a", room=0)
        assert len(await harness.fires("job", State.QUEUED)) <= CATCH_UP_LIMIT

    async def test_what_was_planned_for_a_task_that_no_replica_knows_goes(self, harness: Harness) -> None:
        term = await harness.elect("a", "other")
        await harness.define("job", every(minutes=1))
        await harness.store.sweep("a", term, ())
        await harness.advance(3600.5)
        await harness.plan(300)
        stale = await harness.plans(600)
        await harness.store.sweep("a", term, ())
        assert await harness.store.plan_fires(stale) == (False,) * len(stale)
        assert await harness.fires("job", State.PENDING) == []
        await harness.join("b")
        await harness.plan(300)
        await harness.ask("b")
        assert all(fire.reason != Reason.UNKNOWN_TASK for fire in await harness.fires("job", State.PENDING))

    async def test_what_waits_ends_when_its_job_gets_a_task_that_no_replica_knows(
        self, harness: Harness
    ) -> None:
        """One that waits for another attempt by then, and one that asks for it later; no claim would decide them."""
        term = await harness.elect("a")
        await harness.define("other", target="gone")
        await harness.store.sweep("a", term, ())
        await harness.advance(3600.5)
        await harness.heartbeat("a")
        await harness.store.sweep("a", term, ())
        await harness.define("job", overlap="allow(2)")
        for name in ("first", "second"):
            await harness.trigger("job", name)
        first, second = await harness.claims("a")
        assert await harness.update(RetryLater(first.key, first.token, 60.0))
        await harness.define("job", target="gone", overlap="allow(2)")
        assert await harness.update(RetryLater(second.key, second.token, 60.0))
        for run in (first, second):
            ended = await harness.fire(run.key)
            assert (ended.state, ended.reason) == (State.FAILED, Reason.UNKNOWN_TASK)

    async def test_who_declares_while_overdue_is_known(self, harness: Harness) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.join("b")
        await harness.put(old, by="b")
        await harness.advance(40)
        await harness.put(new, by="a")
        await harness.heartbeat("a")
        await harness.heartbeat("b")
        assert (await harness.put(old, by="b")).outcome == "flip back"

    async def test_a_stretch_taken_for_lost_is_never_run_as_one(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=1))
        await harness.advance(10)
        await remember_more(harness, steps=1_000_000)
        await harness.plan(0)
        await harness.define("job", every(seconds=1), after_crash="rerun", misfire_after=timedelta(seconds=1))
        assert all(fire.count == 1 for fire in await harness.claims("a"))
