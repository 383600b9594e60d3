"""Rules that an earlier model broke."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from fencepost.model import (
    Reason,
    State,
    manual_key,
)
from fencepost.model.triggers import cron, every
from fencepost.replica.plan import STEPS
from fencepost.store.base import (
    ChangeJob,
    FireQuery,
    GiveBack,
)
from fencepost.testing.conformance.harness import Harness, job_of, steps


class MendedRules:
    async def test_a_job_is_due_for_planning_once(self, harness: Harness) -> None:
        await harness.define("other", cron("0 14 * * *"))
        await harness.define("job", cron("0 15 * * *"))
        await harness.plan()
        await harness.define("job", cron("0 15 * * 0-6"))
        await harness.plan()
        due = await harness.store.due_jobs(4 * 3600, 10)
        assert [record.id for record in due.jobs] == ["other", "job"]

    async def test_a_cancelled_fire_wakes_no_replica(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job")
        await harness.trigger("job", "soon", delay=30.0)
        await harness.trigger("job", "late", delay=60.0)
        await harness.store.cancel_fire(manual_key("job", "soon"))
        assert (await harness.ask("a")).wake_in == 60.0
        await harness.store.cancel_fire(manual_key("job", "late"))
        assert (await harness.ask("a")).wake_in is None

    async def test_latest_never_runs_a_stretch(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=1))
        await harness.advance(1000.5)
        await harness.pause("job")
        await harness.advance(200)
        await harness.resume("job")
        await harness.plan()
        reply = await harness.ask("a")
        (claim,) = reply.claims
        assert claim.fire.count == 1
        assert [(row.reason, row.count) for row in reply.closed] == [
            (Reason.COALESCED, 999),
            (Reason.PAUSED, 200),
        ]

    async def test_all_runs_what_a_later_pause_does_not_cover(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=1), misfire="all", overlap="allow(500)")
        await harness.advance(50.5)
        await harness.pause("job")
        await harness.advance(200)
        await harness.resume("job")
        await harness.plan()
        assert len(await harness.claims("a", room=500)) == 50

    async def test_a_revision_never_goes_down(self, harness: Harness) -> None:
        same, other = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.put(same, revision=5)
        await harness.put(same, revision=3)
        assert (await harness.job("job")).revision == 5
        assert (await harness.put(other, revision=4)).outcome == "older revision"

    async def test_the_pause_in_force_is_not_forgotten(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.advance(10)
        await harness.pause("job")
        await harness.advance(10)
        await harness.define("job", every(minutes=2))
        await harness.advance(100)
        await harness.store.prune(50)
        assert "paused" in [event.kind for event in await harness.store.history("job")]

    async def test_pruning_does_not_depend_on_the_order_in_which_rows_were_closed(
        self, harness: Harness
    ) -> None:
        await harness.define("job")
        assert harness.step_back is not None
        for name in ("before", "after"):
            await harness.trigger("job", name)
            await harness.store.cancel_fire(f"job!{name}")
            if name == "before":
                await harness.step_back(1000)
        await harness.advance(600)
        assert await harness.store.prune(300) == 1
        assert [fire.key for fire in await harness.fires("job")] == ["job!before"]

    async def test_a_crash_after_a_request_to_end_is_not_called_crashed_too_often(
        self, harness: Harness
    ) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(after_crash="rerun")
        await harness.store.cancel_fire(fire.key)
        (done,) = (await harness.bury("leader", term, "a")).settled
        assert done.crashes == 1
        assert done.reason == Reason.REPLICA_DIED

    async def test_no_more_than_a_hundred_fires_of_a_job_are_planned_ahead(self, harness: Harness) -> None:
        await harness.define("job", every(seconds=0.1))
        await harness.plan()
        assert len(await harness.fires("job", State.PENDING)) <= 100

    async def test_a_pause_comes_before_an_unknown_task(self, harness: Harness) -> None:
        term = await harness.elect("a", "nothing")
        await harness.define("job", every(minutes=10))
        await harness.pause("job")
        for _ in range(13):
            await harness.store.sweep("a", term, [])
            await harness.plan()
            await harness.advance(300)
        assert {row.reason for row in await harness.fires("job") if row.state.final} == {Reason.PAUSED}

    async def test_a_result_after_giving_back_is_refused(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.update(GiveBack(fire.key, fire.token))
        assert not await harness.settle(fire)

    async def test_a_queued_fire_is_not_withdrawn(self, harness: Harness) -> None:
        await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        (queued,) = await harness.fires("job", State.QUEUED)
        assert harness.step_back is not None
        await harness.step_back(30)
        await harness.define("job", every(hours=1), overlap="queue")
        assert await harness.fires("job", State.QUEUED) == [queued]

    async def test_what_a_leaving_replica_gives_back_is_a_hint(self, harness: Harness) -> None:
        await harness.running()
        waiting = asyncio.create_task(harness.store.wait(0.2))
        await asyncio.sleep(0.01)
        await harness.store.leave("a")
        assert await waiting is True

    async def test_a_key_is_one_condition_among_others(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.store.find_fires(FireQuery(key=fire.key, states=(State.PENDING,))) == ()
        assert await harness.store.find_fires(FireQuery(key=fire.key, job_id="another")) == ()

    async def test_what_a_removed_job_owed_is_cancelled_though_it_was_added_again(
        self, harness: Harness
    ) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.advance(150)
        await harness.remove("job")
        await harness.advance(1)
        await harness.define("job", every(minutes=1))
        await harness.plan()
        assert await harness.claims("a") == []
        (row,) = await harness.fires("job", State.CANCELLED)
        assert (row.reason, row.count) == (Reason.REMOVED, 2)

    async def test_a_job_added_again_is_not_paused(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await harness.store.change_job(ChangeJob("job", "remove"))
        await harness.advance(10)
        await harness.define("job", every(minutes=1))
        assert (await harness.job("job")).paused_at(await harness.now() + timedelta(hours=1)) is None

    async def test_a_fire_that_was_due_is_not_lost_below_the_mark(self, harness: Harness) -> None:
        """F1 found no room, F2 fell into a pause and was closed; the clock steps back, the trigger changes."""
        await harness.join("a")
        await harness.define("job", every(seconds=10))
        anchor = await harness.now()
        await harness.fall_due(15)
        await harness.pause("job")
        await harness.fall_due(10)
        await harness.ask("a", room=0)
        assert harness.step_back is not None
        await harness.step_back(20)
        await harness.define("job", every(seconds=10, anchor=anchor))
        await harness.plan(horizon=30)
        due = {fire.due_at for fire in await harness.fires("job")}
        assert set(steps(anchor + timedelta(seconds=10), 10, 3)) <= due

    async def test_all_runs_a_hundred_of_any_long_backlog(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=1), misfire="all", overlap="allow(500)")
        await harness.advance(STEPS + 7)
        await harness.plan()
        assert len(await harness.claims("a", room=500)) == 100
