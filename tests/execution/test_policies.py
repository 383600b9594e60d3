"""What the policies do to a run, in virtual time: one suite, on every store."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from fencepost import Retry, every
from tests.execution.places import PLACES, store_of, url_of
from tests.execution.worlds import HEARTBEAT, TTL, Replicas


@pytest.fixture(params=PLACES)
def world(request, tmp_path):
    url = url_of(request.param, tmp_path, request)
    world = Replicas(lambda clock: store_of(request.param, url, tmp_path, clock))
    yield world
    world.close()


class Work:
    """A job's body that keeps a diary: when it began, which attempt, and whether it came to its end."""

    def __init__(self, world, seconds=0.0, fails=(), **policies):
        self.world = world
        self.seconds = seconds
        self.fails = list(fails)
        self.policies = policies
        self.begun = []
        self.ended = []
        self.tokens = []
        self.most_at_once = 0

    def declare(self, scheduler):
        trigger = self.policies.pop("trigger", None) or every(seconds=10)
        self.policies["trigger"] = trigger
        options = {name: value for name, value in self.policies.items() if name != "trigger"}
        scheduler.job(trigger, id="work", **options)(self.body)

    async def body(self, fire):
        self.begun.append(self.world.world.now)
        self.tokens.append(fire.token)
        at_once = len(self.begun) - len(self.ended)
        self.most_at_once = max(self.most_at_once, at_once)
        try:
            await asyncio.sleep(self.seconds)
            if self.fails:
                raise self.fails.pop(0)
        finally:
            self.ended.append(self.world.world.now)


SELDOM = every(days=300)


# --- timeout and retry ------------------------------------------------------------------------------------


def test_a_run_is_ended_at_its_timeout(world):
    work = Work(world, seconds=100, timeout=5, trigger=SELDOM)
    member = world.start(work.declare)
    handle = member.do(member.scheduler.trigger("work"))
    fire = member.do(handle.wait())
    assert (fire.state, fire.reason) == ("failed", "timed out")
    assert fire.error == "timed out after 0:00:05"
    assert work.ended[0] - work.begun[0] == pytest.approx(5, abs=0.1)


def test_a_failure_is_tried_again_after_growing_pauses(world):
    retry = Retry(attempts=4, first=10, factor=3, cap=60, jitter=0)
    work = Work(world, fails=[OSError("one"), OSError("two")], retry=retry, trigger=SELDOM)
    member = world.start(work.declare)
    fire = member.do(member.do(member.scheduler.trigger("work")).wait())
    assert fire.state == "succeeded"
    assert [attempt.outcome for attempt in fire.attempts] == ["retry", "retry", "succeeded"]
    pauses = [later - earlier for earlier, later in pairwise(work.begun)]
    assert pauses == pytest.approx([10, 30], abs=1)
    assert work.tokens == sorted(set(work.tokens))


def test_it_is_given_up_after_the_last_attempt_and_for_other_exceptions(world):
    retry = Retry(attempts=2, first=1, jitter=0, on=(OSError,))
    work = Work(world, fails=[OSError("a"), OSError("b"), KeyError("c")], retry=retry, trigger=SELDOM)
    member = world.start(work.declare)
    worn_out = member.do(member.do(member.scheduler.trigger("work")).wait())
    assert (worn_out.state, worn_out.reason, worn_out.attempt) == ("failed", "raised an exception", 2)
    other = member.do(member.do(member.scheduler.trigger("work")).wait())
    assert (other.state, other.attempt) == ("failed", 1)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_retry_survives_the_end_of_its_replica(world, how):
    work = Work(world, fails=[OSError("one")], retry=Retry(attempts=2, first=30, jitter=0), trigger=SELDOM)
    first = world.start(work.declare)
    handle = first.do(first.scheduler.trigger("work"))
    world.until(lambda: world.fire(handle.key).state == "waiting")
    getattr(first, how)()
    world.advance(10)
    world.start(work.declare)
    world.until(lambda: world.fire(handle.key).state.final)
    fire = world.fire(handle.key)
    assert fire.state == "succeeded"
    assert [attempt.replica for attempt in fire.attempts] == ["r0", "r1"]
    assert work.begun[1] - work.begun[0] == pytest.approx(30, abs=1)


# --- overlap ----------------------------------------------------------------------------------------------


def test_overlap_skip_runs_one_at_a_time_in_the_whole_cluster(world):
    work = Work(world, seconds=25)
    for _ in range(2):
        world.start(work.declare)
    world.until(lambda: len(work.ended) == 2, 120)
    assert work.most_at_once == 1
    assert world.states("work")[:2] == ["succeeded", "skipped: overlap × 2"]


def test_overlap_queue_lets_so_many_wait(world):
    work = Work(world, seconds=35, overlap="queue(2)")
    for _ in range(2):
        world.start(work.declare)
    world.until(lambda: len(work.ended) == 3, 180)
    assert work.most_at_once == 1
    assert world.states("work")[:4] == ["succeeded", "succeeded", "succeeded", "skipped: queue full"]


def test_overlap_allow_runs_so_many_at_once(world):
    work = Work(world, seconds=35, overlap="allow(2)")
    for _ in range(2):
        world.start(work.declare)
    world.until(lambda: len(work.ended) == 4, 180)
    assert work.most_at_once == 2
    assert world.states("work")[:3] == ["succeeded", "succeeded", "skipped: overlap × 2"]


# --- misfire ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        ("latest", ["succeeded", "missed: coalesced × 11", "succeeded"]),
        ("skip", ["succeeded", "missed: misfire × 12"]),
        ("all", ["succeeded"] * 13),
    ],
)
def test_what_fell_due_while_nobody_was_there(world, misfire, expected):
    work = Work(world, misfire=misfire, misfire_after=5)
    first = world.start(work.declare)
    world.until(lambda: work.ended)
    first.stop()
    world.advance(126)
    world.start(work.declare)
    world.until(lambda: all(fire.state.final for fire in world.fires("work")))
    assert world.states("work")[: len(expected)] == expected


# --- crashes ------------------------------------------------------------------------------------------------


def test_a_run_cut_off_by_a_crash_is_recorded(world):
    work = Work(world, seconds=100, trigger=SELDOM)
    first = world.start(work.declare)
    handle = first.do(first.scheduler.trigger("work"))
    world.until(lambda: work.begun)
    world.start(work.declare)
    first.kill()
    took = world.until(lambda: world.fire(handle.key).state.final)
    fire = world.fire(handle.key)
    assert (fire.state, fire.reason) == ("lost", "its replica died in mid-run")
    assert took < 2 * TTL + HEARTBEAT
    assert len(work.begun) == 1


def test_with_rerun_it_is_run_again_with_a_higher_token_until_it_has_crashed_three_times(world):
    work, well = Work(world, seconds=100, after_crash="rerun", trigger=SELDOM), Work(world)

    def declare(scheduler):
        work.declare(scheduler)
        scheduler.job(every(seconds=10), id="other")(well.body)

    member = world.start(declare)
    handle = member.do(member.scheduler.trigger("work"))
    for crash in range(1, 4):
        world.until(lambda crash=crash: len(work.begun) == crash)
        successor = world.start(declare)
        member.kill()
        member = successor
    world.until(lambda: world.fire(handle.key).state.final)
    fire = world.fire(handle.key)
    assert (fire.state, fire.reason, fire.crashes) == ("lost", "crashed 3 times", 3)
    assert work.tokens == sorted(set(work.tokens))
    ran = len(well.ended)
    world.advance(25)
    assert len(well.ended) >= ran + 2, "the others keep running"


# --- cancel and drain -----------------------------------------------------------------------------------------


def test_a_cancel_reaches_the_replica_that_runs_it(world):
    work = Work(world, seconds=1000, trigger=SELDOM)
    runs = world.start(work.declare)
    handle = runs.do(runs.scheduler.trigger("work"))
    world.until(lambda: work.begun)
    asks = world.start(work.declare)
    asks.do(asks.scheduler.fire_operations.cancel(handle.key, by="alice"))
    took = world.until(lambda: world.fire(handle.key).state.final)
    fire = world.fire(handle.key)
    assert (fire.state, fire.reason, fire.cancelled_by) == ("cancelled", "on request", "alice")
    assert took <= HEARTBEAT + 0.5
    assert len(work.ended) == 1


def test_what_waits_to_be_tried_again_is_cancelled_at_once(world):
    retry = Retry(attempts=5, first=100, cap=100, jitter=0)
    work = Work(world, fails=[OSError("one")], retry=retry, trigger=SELDOM)
    member = world.start(work.declare)
    handle = member.do(member.scheduler.trigger("work"))
    world.until(lambda: world.fire(handle.key).state == "waiting")
    fire = member.do(member.scheduler.fire_operations.cancel(handle.key, by="bob"))
    assert (fire.state, fire.reason, fire.cancelled_by) == ("cancelled", "on request", "bob")


def test_a_graceful_stop_gives_back_what_has_a_checkpoint_and_another_goes_on(world):
    seen = []

    def declare(scheduler):
        @scheduler.job(SELDOM, id="long")
        async def long(fire):
            seen.append(fire.checkpoint)
            if fire.checkpoint is None:
                await fire.save({"step": 1})
                await asyncio.sleep(1000)

        @scheduler.job(SELDOM, id="careless")
        async def careless():
            await asyncio.sleep(1000)

    first = world.start(declare, drain_timeout=3)
    handles = [first.do(first.scheduler.trigger(job)) for job in ("long", "careless")]
    world.until(lambda: world.fire(handles[0].key).checkpoint)
    world.start(declare)
    begun = world.world.now
    first.stop()
    assert world.world.now - begun == pytest.approx(3, abs=0.5)
    world.until(lambda: world.fire(handles[0].key).state.final)
    long, careless = (world.fire(handle.key) for handle in handles)
    assert (long.state, seen) == ("succeeded", [None, {"step": 1}])
    assert [attempt.outcome for attempt in long.attempts] == ["given back", "succeeded"]
    assert (careless.state, careless.reason) == ("cancelled", "drain limit")
    assert first.told("replica.left")
