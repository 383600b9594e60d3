"""What the reference model gets wrong as of now, each shown by a test that fails.

Strict: whoever mends one sees it here, and moves the test into `fencepost.testing.conformance`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fencepost.model import Reason, State
from fencepost.plan import STEPS
from fencepost.store.base import ChangeJob, FireQuery, GiveBack
from fencepost.store.memory import MemoryStore
from fencepost.testing.conformance import HandClock, Harness, job_of, steps
from fencepost.triggers import cron, every


def wrong(where: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=where, raises=AssertionError)


@pytest.fixture
def harness() -> Harness:
    clock = HandClock()
    return Harness.with_clock(MemoryStore(clock), clock)


@wrong("store/agenda.py: an entry set to an earlier value again is on the heap twice")
async def test_a_job_is_due_for_planning_once(harness: Harness) -> None:
    await harness.define("other", cron("0 14 * * *"))
    await harness.define("job", cron("0 15 * * *"))
    await harness.plan()
    await harness.define("job", cron("0 15 * * 0-6"))
    await harness.plan()
    due = await harness.store.due_jobs(4 * 3600, 10)
    assert [record.id for record in due.jobs] == ["other", "job"]


@wrong("plan.py: all of the newest hundred may lie in a gap, then a stretch is claimed")
async def test_latest_never_runs_a_stretch(harness: Harness) -> None:
    await harness.join("a")
    await harness.define("job", every(seconds=1))
    await harness.advance(1000.5)
    await harness.pause("job")
    await harness.advance(200)
    await harness.plan()
    reply = await harness.ask("a")
    (claim,) = reply.claims
    assert claim.fire.count == 1
    assert [(row.reason, row.count) for row in reply.closed] == [
        (Reason.COALESCED, 999),
        (Reason.PAUSED, 200),
    ]


@wrong("plan.py: of `all` the newest hundred outside of pauses should run")
async def test_all_runs_what_a_later_pause_does_not_cover(harness: Harness) -> None:
    await harness.join("a")
    await harness.define("job", every(seconds=1), misfire="all", overlap="allow(500)")
    await harness.advance(50.5)
    await harness.pause("job")
    await harness.advance(200)
    await harness.plan()
    assert len(await harness.claims("a", room=500)) == 50


@wrong("store/calendars.py: an unchanged definition lowers the revision")
async def test_a_revision_never_goes_down(harness: Harness) -> None:
    same, other = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
    await harness.put(same, revision=5)
    await harness.put(same, revision=3)
    assert (await harness.job("job")).revision == 5
    assert (await harness.put(other, revision=4)).outcome == "older revision"


@pytest.mark.xfail(
    reason="store/state.py: prune_before keeps the definition in force, not the pause in force"
)
async def test_the_pause_in_force_is_not_forgotten(harness: Harness) -> None:
    await harness.define("job", every(minutes=1))
    await harness.advance(10)
    await harness.pause("job")
    await harness.advance(10)
    await harness.define("job", every(minutes=2))
    await harness.advance(100)
    await harness.store.prune(50)
    assert "paused" in [event.kind for event in await harness.store.history("job")]


@pytest.mark.xfail(
    reason="store/state.py: prune_before stops at the first young row, also when order is broken"
)
async def test_pruning_does_not_depend_on_the_order_in_which_rows_were_closed(harness: Harness) -> None:
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


@wrong("store/operations.py: _crash names a reason that is not the reason")
async def test_a_crash_after_a_request_to_end_is_not_called_crashed_too_often(harness: Harness) -> None:
    term = await harness.elect("leader", "nothing")
    fire = await harness.running(after_crash="rerun")
    await harness.store.cancel_fire(fire.key)
    (done,) = (await harness.bury("leader", term, "a")).settled
    assert done.crashes == 1
    assert done.reason != Reason.CRASHED


@pytest.mark.xfail(
    reason="plan.py: a hundred per expansion, and the planner expands until the horizon is full"
)
async def test_no_more_than_a_hundred_fires_of_a_job_are_planned_ahead(harness: Harness) -> None:
    await harness.define("job", every(seconds=0.1))
    await harness.plan()
    assert len(await harness.fires("job", State.PENDING)) <= 100


@wrong("store/calendars.py: _orphan asks no pause; decide does, and asks it first")
async def test_a_pause_comes_before_an_unknown_task(harness: Harness) -> None:
    term = await harness.elect("a", "nothing")
    await harness.define("job", every(minutes=10))
    await harness.pause("job")
    for _ in range(13):
        await harness.store.sweep("a", term, [])
        await harness.plan()
        await harness.advance(300)
    assert {row.reason for row in await harness.fires("job") if row.state.final} == {Reason.PAUSED}


@wrong("store/operations.py: any update of a token that gave back is answered True")
async def test_a_result_after_giving_back_is_refused(harness: Harness) -> None:
    fire = await harness.running()
    assert await harness.update(GiveBack(fire.key, fire.token))
    assert not await harness.settle(fire)


@wrong("store/calendars.py: _withdraw takes a queued fire for a mere plan")
async def test_a_queued_fire_is_not_withdrawn(harness: Harness) -> None:
    await harness.running(overlap="queue")
    await harness.fall_due()
    await harness.ask("a")
    (queued,) = await harness.fires("job", State.QUEUED)
    assert harness.step_back is not None
    await harness.step_back(30)
    await harness.define("job", every(hours=1), overlap="queue")
    assert await harness.fires("job", State.QUEUED) == [queued]


@wrong("store/operations.py: leave hints only when it resigns")
async def test_what_a_leaving_replica_gives_back_is_a_hint(harness: Harness) -> None:
    await harness.running()
    waiting = asyncio.create_task(harness.store.wait(0.2))
    await asyncio.sleep(0.01)
    await harness.store.leave("a")
    assert await waiting is True


@wrong("store/state.py: select_fires by key asks nothing else")
async def test_a_key_is_one_condition_among_others(harness: Harness) -> None:
    fire = await harness.running()
    assert await harness.store.find_fires(FireQuery(key=fire.key, states=(State.PENDING,))) == ()
    assert await harness.store.find_fires(FireQuery(key=fire.key, job_id="another")) == ()


@wrong("store/calendars.py: what a removed job owed is run when it is added again in time")
async def test_what_a_removed_job_owed_is_cancelled_though_it_was_added_again(harness: Harness) -> None:
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


@wrong("store/calendars.py: a pause outlives the removal of its job")
async def test_a_job_added_again_is_not_paused(harness: Harness) -> None:
    await harness.define("job", every(minutes=1))
    await harness.pause("job")
    await harness.store.change_job(ChangeJob("job", "remove"))
    await harness.advance(10)
    await harness.define("job", every(minutes=1))
    assert (await harness.job("job")).paused_at(await harness.now() + timedelta(hours=1)) is None


@wrong("decide.py and store: a fire withdrawn below the mark is accounted for nowhere")
async def test_a_fire_that_was_due_is_not_lost_below_the_mark(harness: Harness) -> None:
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


@wrong("plan.py: a backlog of a few more than STEPS lists only those few, the rest is one stretch")
async def test_all_runs_a_hundred_of_any_long_backlog(harness: Harness) -> None:
    await harness.join("a")
    await harness.define("job", every(seconds=1), misfire="all", overlap="allow(500)")
    await harness.advance(STEPS + 7)
    await harness.plan()
    assert len(await harness.claims("a", room=500)) == 100
