"""The public face in real time, over the memory store."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

import fencepost
from fencepost import (
    AnotherRunIsActive,
    ConfigurationError,
    FencedOut,
    Fire,
    Retry,
    RunCancelled,
    Scheduler,
    State,
    UsageError,
    at,
    current_fire,
    every,
)
from fencepost.store.memory import MemoryStore
from tests.unit.apps.waiting import PATIENCE, ask, eventually, fire_of, fires_of

FAR = at(datetime(2100, 1, 1, tzinfo=UTC))
"""For jobs that only run when triggered."""

QUICK = {"heartbeat": 0.1, "leader_ttl": 0.5, "run_ttl": 5, "horizon": 1}
"""Polls twice a second, so that no case here depends on a hint of the store."""


def quick(store: MemoryStore | str = "memory://", **settings) -> Scheduler:
    return Scheduler(store, **{**QUICK, **settings})


def final(store: MemoryStore, job_id: str) -> list:
    return [fire for fire in fires_of(store, job_id) if fire.state.final]


# Where bodies run, and what they are given


async def test_a_coroutine_job_runs_on_the_loop_of_its_caller():
    scheduler, loops = quick(), []

    @scheduler.job(every(seconds=0.1))
    async def tick():
        loops.append((asyncio.get_running_loop(), threading.current_thread()))

    async with scheduler:
        await eventually(lambda: len(loops) >= 2)
    assert set(loops) == {(asyncio.get_running_loop(), threading.current_thread())}


async def test_a_function_job_runs_in_a_thread_that_is_neither_the_callers_nor_the_control_thread():
    scheduler, threads = quick(), []

    @scheduler.job(every(seconds=0.1))
    def tick():
        threads.append(threading.current_thread())

    async with scheduler:
        await eventually(lambda: threads)
    assert threads[0] is not threading.current_thread()
    assert threads[0].name.startswith("fencepost-job")


async def test_a_coroutine_job_is_started_on_the_callers_loop_although_its_function_is_a_callable_object():
    scheduler, loops = quick(), []

    class Job:
        async def __call__(self):
            loops.append(asyncio.get_running_loop())

    scheduler.job(FAR, id="object")(Job())
    async with scheduler:
        await (await scheduler.trigger("object")).wait(PATIENCE)
    assert loops == [asyncio.get_running_loop()]


def by_name(seen, fire):
    seen.append(fire)


def by_annotation(seen, run: Fire):
    seen.append(run)


def by_qualified_annotation(seen, run: fencepost.Fire):
    seen.append(run)


async def coroutine_by_annotation(seen, run: Fire):
    seen.append(run)


@pytest.mark.parametrize(
    "function", [by_name, by_annotation, by_qualified_annotation, coroutine_by_annotation]
)
async def test_the_fire_is_given_to_the_parameter_that_wants_it(function):
    scheduler, seen = quick(), []
    bound = _with_list(function, seen)
    scheduler.job(FAR, id="job")(bound)
    async with scheduler:
        handle = await scheduler.trigger("job")
        record = await handle.wait(PATIENCE)
    assert record.state is State.SUCCEEDED, record.error
    [fire] = seen
    assert isinstance(fire, Fire)
    assert (fire.key, fire.job_id, fire.scheduled) == (handle.key, "job", False)
    assert (fire.token, fire.attempt, fire.replica) == (record.token, 1, record.replica)
    assert fire.due_at == record.due_at


def _with_list(function, seen):
    """The same function without its first parameter."""
    import functools
    import inspect

    bound = functools.partial(function, seen)
    assert next(iter(inspect.signature(bound).parameters)) in ("fire", "run")
    return bound


async def test_a_scheduled_fire_says_when_it_was_due_and_has_the_derived_key():
    scheduler, seen = quick(), []

    @scheduler.job(every(seconds=0.1))
    async def tick(fire):
        seen.append(fire)

    async with scheduler:
        await eventually(lambda: seen)
    assert seen[0].scheduled
    assert seen[0].key == f"{seen[0].job_id}@{seen[0].due_at:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert seen[0].due_at.microsecond % 100_000 == 0


async def test_arguments_are_passed_by_name_and_a_trigger_may_replace_them():
    scheduler, seen = quick(), []

    @scheduler.job(FAR, id="report", args={"region": "ch", "pages": [1, 2]})
    def report(region: str, pages: list, fire, copies: int = 3):
        seen.append((region, pages, copies, dict(fire.args)))

    async with scheduler:
        await (await scheduler.trigger(report)).wait(PATIENCE)
        await (await scheduler.trigger(report, args={"region": "de", "pages": [], "copies": 1})).wait(
            PATIENCE
        )
    assert seen == [
        ("ch", [1, 2], 3, {"region": "ch", "pages": [1, 2]}),
        ("de", [], 1, {"region": "de", "pages": [], "copies": 1}),
    ]


async def test_current_fire_is_known_inside_a_function_and_in_what_it_calls():
    scheduler, keys = quick(), []

    def deep():
        keys.append(current_fire().key)

    @scheduler.job(FAR, id="job")
    def job():
        deep()

    async with scheduler:
        handle = await scheduler.trigger("job")
        assert (await handle.wait(PATIENCE)).state is State.SUCCEEDED
    assert keys == [handle.key]


def test_current_fire_outside_of_a_job_is_refused():
    with pytest.raises(ConfigurationError, match="only inside a job"):
        current_fire()


async def test_a_decorated_function_is_still_the_function_itself():
    scheduler = quick()

    def double(number):
        return 2 * number

    async def triple(number):
        return 3 * number

    assert scheduler.job(every(hours=1), args={"number": 1})(double) is double
    assert scheduler.task(triple) is triple
    assert double(4) == 8
    assert await triple(4) == 12


def test_the_default_job_id_is_the_qualified_name_without_the_module_and_its_brackets():
    scheduler = quick()

    @scheduler.job(every(hours=1))
    def nightly():
        pass

    expected = "test_the_default_job_id_is_the_qualified_name_without_the_module_and_its_brackets.nightly"
    assert list(scheduler.jobs) == [expected]


async def test_a_job_declared_while_the_scheduler_runs_is_run():
    scheduler, ran = quick(), []
    async with scheduler:

        @scheduler.job(every(seconds=0.1))
        async def late():
            ran.append(1)

        await eventually(lambda: ran)


# Triggering by hand


async def test_a_triggered_task_without_a_schedule_runs_once_and_its_handle_tells_the_outcome():
    scheduler, seen = quick(), []

    @scheduler.task(id="send")
    async def send(user: int):
        seen.append(user)

    async with scheduler:
        handle = await scheduler.trigger(send, args={"user": 42})
        record = await handle.wait(timeout=60)
        assert (record.key, record.state, record.attempt) == (handle.key, State.SUCCEEDED, 1)
        assert (await handle.record()).state is State.SUCCEEDED
    assert seen == [42]


async def test_waiting_for_a_fire_can_time_out_and_the_fire_goes_on():
    scheduler, gate = quick(), asyncio.Event()

    @scheduler.task(id="slow")
    async def slow():
        await gate.wait()

    async with scheduler:
        handle = await scheduler.trigger(slow)
        with pytest.raises(TimeoutError):
            await handle.wait(timeout=0.1)
        gate.set()
        assert (await handle.wait(PATIENCE)).state is State.SUCCEEDED


async def test_the_same_idempotency_key_adds_one_fire_however_often_it_is_sent():
    scheduler, ran = quick(), []

    @scheduler.task(id="send")
    async def send(fire):
        ran.append(fire.key)

    async with scheduler:
        handles = [await scheduler.trigger(send, idempotency_key="order-7") for _ in range(3)]
        await handles[0].wait(PATIENCE)
        handles.append(await scheduler.trigger(send, idempotency_key="order-7"))
        other = await scheduler.trigger(send, idempotency_key="order-8")
        await other.wait(PATIENCE)
    assert {handle.key for handle in handles} == {"send!order-7"}
    assert ran == ["send!order-7", "send!order-8"]


async def test_refuse_raises_while_a_run_is_active_and_queue_waits_for_its_turn():
    scheduler, gate, order = quick(), asyncio.Event(), []

    @scheduler.task(id="job")
    async def job(fire):
        order.append(("start", fire.key))
        await gate.wait()
        order.append(("end", fire.key))

    async with scheduler:
        first = await scheduler.trigger(job, if_active="refuse")
        await eventually(lambda: order)
        with pytest.raises(AnotherRunIsActive, match=first.key) as refused:
            await scheduler.trigger(job, if_active="refuse")
        assert refused.value.exit_code == 2
        second = await scheduler.trigger(job, if_active="queue")
        with pytest.raises(AnotherRunIsActive):
            await scheduler.trigger(job, if_active="refuse")
        gate.set()
        await second.wait(PATIENCE)
        third = await scheduler.trigger(job, if_active="refuse")
        await third.wait(PATIENCE)
    keys = [first.key, second.key, third.key]
    assert order == [(what, key) for key in keys for what in ("start", "end")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"usr": 1}, "lacks user; it takes copies, user"),
        ({"user": 1, "page": 2}, "has no parameter page; it takes copies, user"),
        (None, "lacks user"),
        ({"user": {1, 2}}, "cannot be stored as JSON"),
        ([1], "must be a dictionary"),
    ],
)
async def test_a_trigger_whose_arguments_do_not_fit_is_refused_before_anything_is_stored(args, message):
    store = MemoryStore()
    scheduler = quick(store)

    @scheduler.task(id="send")
    async def send(user, copies=1):
        pass

    async with scheduler:
        with pytest.raises(ConfigurationError, match=message):
            await scheduler.trigger(send, args=args)
    assert not fires_of(store)


async def test_a_trigger_of_an_unknown_job_suggests_the_one_that_was_meant():
    scheduler = quick()

    @scheduler.task(id="report")
    async def report():
        pass

    async with scheduler:
        with pytest.raises(UsageError, match="did you mean 'report'"):
            await scheduler.trigger("reprot")
        with pytest.raises(UsageError, match="decorate it, or give the job's id"):
            await scheduler.trigger(lambda: None)
        with pytest.raises(ConfigurationError, match='use "queue" or "refuse"'):
            await scheduler.trigger(report, if_active="wait")


async def test_a_fire_triggered_before_the_start_runs_after_it():
    store = MemoryStore()
    scheduler, other, ran = quick(store), quick(store), []

    @scheduler.task(id="job")
    async def job():
        ran.append(1)

    async with scheduler:
        pass
    handle = await other.trigger("job")
    assert not ran
    async with scheduler:
        assert (await handle.wait(PATIENCE)).state is State.SUCCEEDED
    await other.stop()
    assert ran == [1]


# Changing jobs at run time


async def test_an_added_job_runs_until_it_is_removed():
    store = MemoryStore()
    scheduler, users = quick(store), Counter()

    @scheduler.task(id="send")
    async def send(user: int):
        users[user] += 1

    async with scheduler:
        await scheduler.add(send, every(seconds=0.05), id="u42", args={"user": 42})
        await scheduler.add("send", every(seconds=0.05), id="u43", args={"user": 43})
        await eventually(lambda: users[42] >= 2 and users[43] >= 2)
        await scheduler.remove("u42")
        seen = users[43]
        before = users[42]
        await eventually(lambda: users[43] >= seen + 4)
        assert users[42] <= before + 1
        with pytest.raises(UsageError, match="there is no job 'u42'"):
            await scheduler.remove("u42")
        with pytest.raises(UsageError, match="there is no job 'u42'"):
            await scheduler.trigger("u42")
    assert all(fire.state.final for fire in fires_of(store, "u42"))


async def test_adding_over_a_different_job_needs_replace():
    scheduler, seen = quick(), []

    @scheduler.task(id="send")
    async def send(user: int):
        seen.append(user)

    async with scheduler:
        await scheduler.add(send, FAR, id="u1", args={"user": 1})
        await scheduler.add(send, FAR, id="u1", args={"user": 1})  # the same again: nothing to refuse
        with pytest.raises(UsageError, match="pass replace=True"):
            await scheduler.add(send, FAR, id="u1", args={"user": 2})
        await scheduler.add(send, FAR, id="u1", args={"user": 3}, replace=True)
        await (await scheduler.trigger("u1")).wait(PATIENCE)
        with pytest.raises(UsageError, match="decorate it with @scheduler.task"):
            await scheduler.add(lambda: None, FAR, id="u2")
    assert seen == [3]


async def test_a_paused_job_does_not_run_and_says_so_and_runs_again_when_resumed():
    store = MemoryStore()
    scheduler, ran, other = quick(store), [], []

    @scheduler.job(every(seconds=0.05), id="job")
    async def job(fire):
        ran.append(fire.key)

    @scheduler.job(every(seconds=0.05), id="other")
    async def unpaused():
        other.append(1)

    async with scheduler:
        await eventually(lambda: ran)
        await scheduler.pause(job, reason="maintenance")
        await eventually(lambda: all(fire.state is not State.RUNNING for fire in fires_of(store, "job")))
        before, seen = len(ran), len(other)
        await eventually(lambda: len(other) >= seen + 5)
        assert len(ran) == before
        [skipped] = [fire for fire in final(store, "job") if fire.reason == "paused"]
        assert skipped.state is State.SKIPPED
        assert skipped.count >= 4
        await scheduler.resume(job)
        await eventually(lambda: len(ran) > before)
    history = [(event.kind, event.note) for event in ask(store.history("job"))]
    assert history == [("defined", ""), ("paused", "maintenance"), ("resumed", "")]


async def test_a_pause_with_an_end_ends_by_itself():
    store = MemoryStore()
    scheduler, ran = quick(store), []

    @scheduler.job(every(seconds=0.05), id="job")
    async def job():
        ran.append(datetime.now(UTC))

    until = datetime.now(UTC) + timedelta(seconds=0.6)
    async with scheduler:
        await scheduler.pause(job, until=until)
        before = len(ran)
        await eventually(lambda: len(ran) > before)
    assert ran[before] >= until
    with pytest.raises(ConfigurationError, match="has no time zone"):
        await scheduler.pause(job, until=datetime(2026, 1, 1))
    await scheduler.stop()


async def test_a_cancelled_run_ends_and_a_cancelled_waiting_fire_never_starts():
    scheduler, started, ended = quick(), [], []

    @scheduler.task(id="job")
    async def job(fire):
        started.append(fire.key)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            with suppress(RunCancelled):
                fire.check()
                ended.append("not told")
            ended.append(fire.key)
            raise

    async with scheduler:
        first = await scheduler.trigger(job)
        await eventually(lambda: started)
        second = await scheduler.trigger(job)
        assert (await scheduler.cancel(second.key)).state is State.CANCELLED
        await scheduler.cancel(first.key)
        record = await first.wait(PATIENCE)
        assert (record.state, record.reason) == (State.CANCELLED, "on request")
        with pytest.raises(UsageError, match="there is no fire 'job!nothing'"):
            await scheduler.cancel("job!nothing")
    assert started == ended == [first.key]


async def test_a_thread_that_is_cancelled_is_told_by_check():
    scheduler, started, told = quick(), threading.Event(), []

    @scheduler.task(id="job")
    def job(fire):
        started.set()
        deadline = time.monotonic() + 3
        try:
            while time.monotonic() < deadline:
                fire.check()
                time.sleep(0.005)
        except RunCancelled as error:
            told.append(error)
            raise

    async with scheduler:
        handle = await scheduler.trigger(job)
        await eventually(started.is_set)
        await scheduler.cancel(handle.key)
        assert (await handle.wait(PATIENCE)).state is State.CANCELLED
        await eventually(lambda: told)


async def test_the_sync_facade_does_the_same_from_another_thread():
    scheduler, seen = quick(), []

    @scheduler.task(id="send")
    async def send(user: int):
        seen.append(user)

    def blocking():
        handle = scheduler.sync.trigger(send, args={"user": 1}, idempotency_key="once")
        assert handle.wait(PATIENCE).state is State.SUCCEEDED
        assert handle.record().key == handle.key == "send!once"
        scheduler.sync.add(send, FAR, id="u2", args={"user": 2})
        scheduler.sync.pause("u2", reason="later")
        scheduler.sync.resume("u2")
        assert scheduler.sync.trigger("u2").wait(PATIENCE).state is State.SUCCEEDED
        assert scheduler.sync.cancel("send!once").state is State.SUCCEEDED  # final states never change
        scheduler.sync.remove("u2")
        with pytest.raises(UsageError, match="no job 'u2'"):
            scheduler.sync.trigger("u2")

    async with scheduler:
        await asyncio.to_thread(blocking)
    assert seen == [1, 2]


async def test_a_job_may_trigger_another_from_a_thread_and_from_a_coroutine():
    scheduler, seen = quick(), []

    @scheduler.task(id="leaf")
    async def leaf(who):
        seen.append(who)

    @scheduler.task(id="thread")
    def from_thread():
        scheduler.sync.trigger(leaf, args={"who": "thread"}).wait(PATIENCE)

    @scheduler.task(id="coroutine")
    async def from_coroutine():
        await (await scheduler.trigger(leaf, args={"who": "coroutine"})).wait(PATIENCE)

    async with scheduler:
        for name in ("thread", "coroutine"):
            assert (await (await scheduler.trigger(name)).wait(PATIENCE)).state is State.SUCCEEDED
    assert seen == ["thread", "coroutine"]


# Events


async def test_handlers_sync_and_async_get_the_events_they_asked_for_on_the_callers_loop():
    scheduler, heard = quick(), []

    @scheduler.on("succeeded", "failed")
    def plain(event):
        heard.append(("plain", event.kind, event.job_id, threading.current_thread()))

    @scheduler.on("failed")
    async def coroutine(event):
        await asyncio.sleep(0)
        heard.append(("coroutine", event.kind, event.fire.error, asyncio.get_running_loop()))

    @scheduler.on()
    def everything(event):
        heard.append(("all", event.kind))

    @scheduler.task(id="good")
    async def good():
        pass

    @scheduler.task(id="bad")
    async def bad():
        raise ValueError("no good")

    async with scheduler:
        await (await scheduler.trigger(good)).wait(PATIENCE)
        await (await scheduler.trigger(bad)).wait(PATIENCE)
        await eventually(lambda: any(each[0] == "coroutine" for each in heard))
    here = threading.current_thread()
    assert [each for each in heard if each[0] == "plain"] == [
        ("plain", "succeeded", "good", here),
        ("plain", "failed", "bad", here),
    ]
    [told] = [each for each in heard if each[0] == "coroutine"]
    assert told[1] == "failed"
    assert "ValueError: no good" in told[2]
    assert told[3] is asyncio.get_running_loop()
    kinds = [each[1] for each in heard if each[0] == "all"]
    assert kinds[:2] == ["replica.joined", "leader.elected"]
    assert [kind for kind in kinds if kind in ("started", "succeeded", "failed")] == [
        "started",
        "succeeded",
        "started",
        "failed",
    ]


async def test_a_failing_handler_harms_neither_the_others_nor_the_jobs(caplog):
    scheduler, heard = quick(), []

    @scheduler.on("succeeded")
    def broken(event):
        raise RuntimeError("broken handler")

    @scheduler.on("succeeded")
    async def broken_coroutine(event):
        raise RuntimeError("broken coroutine")

    @scheduler.on("succeeded")
    def sound(event):
        heard.append(event.key)

    @scheduler.task(id="job")
    async def job():
        pass

    async with scheduler:
        keys = []
        for _ in range(2):
            handle = await scheduler.trigger(job)
            assert (await handle.wait(PATIENCE)).state is State.SUCCEEDED
            keys.append(handle.key)
        await eventually(lambda: heard == keys)
        await eventually(lambda: "broken coroutine" in caplog.text)
    assert "broken handler" in caplog.text


# Starting and stopping


async def test_the_lifespan_serves_an_asgi_app():
    scheduler, ran = quick(), []

    @scheduler.job(every(seconds=0.05))
    async def tick():
        ran.append(1)

    app = object()
    async with scheduler.lifespan(app) as state:
        assert state is None
        await eventually(lambda: ran)
    after = len(ran)
    await asyncio.sleep(0.15)
    assert len(ran) == after


async def test_a_second_start_is_refused_and_a_stopped_scheduler_can_start_again():
    scheduler, ran = quick(), []

    @scheduler.task(id="job")
    async def job():
        ran.append(1)

    for round in (1, 2):
        async with scheduler:
            with pytest.raises(UsageError, match="stop it first"):
                await scheduler.start()
            await (await scheduler.trigger(job)).wait(PATIENCE)
            assert len(ran) == round
    await scheduler.stop()


async def test_stopping_leaves_no_thread_of_ours_behind():
    scheduler, before = quick(), set(threading.enumerate())

    @scheduler.task(id="job")
    def job():
        pass

    async with scheduler:
        await (await scheduler.trigger(job)).wait(PATIENCE)
    await eventually(
        lambda: not [t for t in threading.enumerate() if t not in before and t.name.startswith("fencepost")]
    )


async def test_stop_lets_a_running_job_finish_and_settles_it_and_leaves():
    store = MemoryStore()
    scheduler, started, ended = quick(store, drain_timeout=3), [], []

    @scheduler.task(id="coroutine")
    async def coroutine():
        started.append(1)
        await asyncio.sleep(0.3)
        ended.append("coroutine")

    @scheduler.task(id="thread")
    def thread():
        started.append(1)
        time.sleep(0.3)
        ended.append("thread")

    await scheduler.start()
    for name in ("coroutine", "thread"):
        await scheduler.trigger(name)
    await eventually(lambda: len(started) == 2)
    await scheduler.stop()
    assert sorted(ended) == ["coroutine", "thread"]
    assert [fire.state for fire in fires_of(store)] == [State.SUCCEEDED] * 2
    roster = ask(store.roster())
    assert not roster.replicas
    assert roster.leader.holder is None


async def test_the_drain_limit_cancels_a_coroutine():
    store = MemoryStore()
    scheduler, started, ended = quick(store, drain_timeout=0.1), [], []

    @scheduler.task(id="job")
    async def job():
        started.append(1)
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(1)

    await scheduler.start()
    await scheduler.trigger(job)
    await eventually(lambda: started)
    await scheduler.stop()
    assert ended
    [fire] = final(store, "job")
    assert (fire.state, fire.reason) == (State.CANCELLED, "drain limit")


async def test_the_drain_limit_gives_back_a_run_with_a_checkpoint_and_another_scheduler_goes_on():
    store, seen = MemoryStore(), []
    first, second = quick(store, drain_timeout=0.1), quick(store)

    async def job(fire):
        seen.append((fire.attempt, fire.checkpoint, fire.token))
        if fire.checkpoint is None:
            await fire.save({"page": 7})
            await asyncio.sleep(30)

    for scheduler in (first, second):
        scheduler.task(id="job")(job)
    await first.start()
    handle = await first.trigger("job")
    await eventually(lambda: any(fire.checkpoint for fire in fires_of(store)))
    await first.stop()
    assert fire_of(store, handle.key).state is State.WAITING
    async with second:
        await eventually(lambda: fire_of(store, handle.key).state is State.SUCCEEDED)
    assert seen == [(1, None, 1), (1, {"page": 7}, 2)]  # nobody failed: what is given back is no attempt
    assert [each.outcome for each in fire_of(store, handle.key).attempts] == ["given back", "succeeded"]


async def test_two_schedulers_that_share_a_store_run_every_fire_once():
    store, starts = MemoryStore(), Counter()
    where = Counter()
    schedulers = [quick(store, slots=2) for _ in range(2)]

    async def tick(fire):
        starts[fire.key] += 1
        where[fire.replica] += 1
        await asyncio.sleep(0.03)

    def tock(fire):
        starts[fire.key] += 1
        where[fire.replica] += 1
        time.sleep(0.03)

    for scheduler in schedulers:
        for number in range(3):
            scheduler.job(every(seconds=0.1), id=f"tick{number}")(_copy_of(tick))
            scheduler.job(every(seconds=0.1), id=f"tock{number}")(_copy_of(tock))
    async with schedulers[0], schedulers[1]:
        await eventually(lambda: len(starts) >= 30 and len(where) == 2)
    assert set(starts.values()) == {1}
    succeeded = {fire.key for fire in fires_of(store) if fire.state is State.SUCCEEDED}
    assert succeeded == set(starts)


def _copy_of(function):
    """Another function with the same body: a scheduler knows each function under one name."""
    if asyncio.iscoroutinefunction(function):

        async def coroutine(fire):
            await function(fire)

        return coroutine

    def plain(fire):
        function(fire)

    return plain


# Failure


async def test_a_job_that_raises_is_failed_with_its_traceback():
    scheduler = quick()

    def deep():
        raise ValueError("the disk is full")

    @scheduler.task(id="coroutine")
    async def coroutine():
        deep()

    @scheduler.task(id="thread")
    def thread():
        deep()

    async with scheduler:
        for name in ("coroutine", "thread"):
            record = await (await scheduler.trigger(name)).wait(PATIENCE)
            assert (record.state, record.reason) == (State.FAILED, "raised an exception")
            assert "Traceback" in record.error
            assert "in deep" in record.error
            assert record.error.strip().endswith("ValueError: the disk is full")


async def test_a_very_long_error_is_cut_at_its_beginning():
    scheduler = quick()

    @scheduler.task(id="job")
    async def job():
        raise ValueError("x" * 100_000 + "the end")

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert len(record.error) < 10_000
    assert record.error.strip().endswith("the end")


async def test_a_retry_runs_the_same_fire_again_after_its_backoff_and_keeps_every_attempt():
    store = MemoryStore()
    scheduler, tries = quick(store), []

    @scheduler.job(FAR, id="job", retry=Retry(attempts=3, first=0.1, factor=2, jitter=0))
    async def job(fire):
        tries.append((fire.key, fire.attempt, fire.token, time.monotonic()))
        if fire.attempt < 3:
            raise ConnectionError(f"try {fire.attempt}")

    async with scheduler:
        handle = await scheduler.trigger(job)
        await eventually(lambda: fire_of(store, handle.key).state is State.WAITING)
        waiting = fire_of(store, handle.key)
        assert waiting.not_before is not None  # the backoff is in the store, not in a process
        assert "try 1" in waiting.error
        record = await handle.wait(PATIENCE)
    assert record.state is State.SUCCEEDED
    assert [each[:3] for each in tries] == [(handle.key, n, n) for n in (1, 2, 3)]
    assert tries[1][3] - tries[0][3] >= 0.09
    assert tries[2][3] - tries[1][3] >= 0.19
    assert [each.outcome for each in record.attempts] == ["retry", "retry", "succeeded"]


async def test_a_retry_ends_after_its_attempts_and_covers_subclasses_of_what_it_names():
    scheduler, tries = quick(), Counter()

    @scheduler.job(FAR, id="exhausted", retry=Retry(attempts=2, first=0.01))
    async def exhausted():
        tries["exhausted"] += 1
        raise OSError("again")

    @scheduler.job(FAR, id="sub", retry=Retry(attempts=2, first=0.01, on=(OSError,)))
    async def sub():
        tries["sub"] += 1
        raise ConnectionResetError("a subclass")

    async with scheduler:
        for name in ("exhausted", "sub"):
            assert (await (await scheduler.trigger(name)).wait(PATIENCE)).state is State.FAILED
    assert tries == {"exhausted": 2, "sub": 2}


async def test_a_coroutine_past_its_timeout_is_cancelled_and_failed():
    scheduler, ended = quick(), []

    @scheduler.job(FAR, id="job", timeout=0.1)
    async def job():
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(1)

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert ended
    assert (record.state, record.reason) == (State.FAILED, "timed out")
    assert "0:00:00.1" in record.error


async def test_a_coroutine_that_ends_its_work_after_a_timeout_counts_as_running_until_it_has_ended():
    store = MemoryStore()
    scheduler, seen = quick(store), []

    @scheduler.job(FAR, id="job", timeout=0.1)
    async def job(fire):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)
            seen.append(fire_of(store, fire.key).state)
            raise

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert seen == [State.RUNNING]
    assert record.reason == "timed out"


async def test_a_thread_past_its_timeout_is_failed_and_told_and_keeps_its_slot_until_it_returns():
    scheduler, release, seen, other = quick(slots=1), threading.Event(), [], []

    @scheduler.job(FAR, id="stuck", timeout=0.1)
    def stuck(fire):
        seen.append(fire.fenced_out)
        release.wait(PATIENCE)
        seen.append(fire.fenced_out)
        with suppress(FencedOut):
            fire.check()
            seen.append("check said nothing")

    @scheduler.task(id="next")
    async def following():
        other.append(1)

    async with scheduler:
        record = await (await scheduler.trigger(stuck)).wait(PATIENCE)
        assert (record.state, record.reason) == (State.FAILED, "timed out")
        handle = await scheduler.trigger(following)
        await asyncio.sleep(0.2)
        assert not other
        assert (await handle.record()).state is State.PENDING
        release.set()
        assert (await handle.wait(PATIENCE)).state is State.SUCCEEDED
    assert seen == [False, True]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_no_exception_from_a_thread_ends_more_than_its_own_run(error):
    scheduler, ran = quick(), []

    @scheduler.task(id="bad")
    def bad():
        raise error

    @scheduler.task(id="good")
    def good():
        ran.append(1)

    async with scheduler:
        record = await (await scheduler.trigger(bad)).wait(PATIENCE)
        assert (record.state, record.reason) == (State.FAILED, "raised an exception")
        assert type(error).__name__ in record.error
        assert (await (await scheduler.trigger(good)).wait(PATIENCE)).state is State.SUCCEEDED
    assert ran == [1]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), StopIteration(), TimeoutError()])
async def test_no_exception_from_a_coroutine_ends_more_than_its_own_run(error):
    scheduler, ran = quick(), []

    @scheduler.job(FAR, id="bad", timeout=10)
    async def bad():
        raise error

    @scheduler.task(id="good")
    async def good():
        ran.append(1)

    async with scheduler:
        record = await (await scheduler.trigger(bad)).wait(PATIENCE)
        assert (record.state, record.reason) == (State.FAILED, "raised an exception")
        assert type(error).__name__ in record.error
        assert (await (await scheduler.trigger(good)).wait(PATIENCE)).state is State.SUCCEEDED
    assert ran == [1]


async def test_a_job_that_blocks_the_event_loop_delays_no_thread_and_loses_no_lease():
    store = MemoryStore()
    scheduler, starts, beats = quick(store, run_ttl=0.5), Counter(), []

    @scheduler.task(id="blocking")
    async def blocking(fire):
        starts[fire.key] += 1
        begun = time.monotonic()
        time.sleep(1.0)
        beats.append(("blocked", begun, time.monotonic()))

    @scheduler.job(every(seconds=0.1), id="thread")
    def thread():
        beats.append(("thread", time.monotonic(), 0.0))

    async with scheduler:
        await eventually(lambda: any(kind == "thread" for kind, _, _ in beats))
        handle = await scheduler.trigger(blocking)
        record = await handle.wait(PATIENCE)
    assert (record.state, record.attempt) == (State.SUCCEEDED, 1)
    assert starts == {handle.key: 1}
    [(_, begun, ended)] = [each for each in beats if each[0] == "blocked"]
    within = [moment for kind, moment, _ in beats if kind == "thread" and begun < moment < ended]
    assert len(within) >= 5
    assert not [fire for fire in fires_of(store) if fire.state is State.LOST]


# What a run can tell


async def test_progress_travels_and_a_checkpoint_is_kept_with_the_fire():
    store = MemoryStore()
    scheduler, gate = quick(store), asyncio.Event()

    @scheduler.task(id="job")
    async def job(fire):
        fire.check()
        for page in range(1, 4):
            fire.report(done=page, total=9, message="x" * 1000)
        await fire.save({"page": 3})
        assert fire.checkpoint == {"page": 3}
        await gate.wait()

    async with scheduler:
        handle = await scheduler.trigger(job)
        await eventually(lambda: fire_of(store, handle.key).checkpoint)
        record = await handle.record()
        assert record.progress == {"done": 3, "total": 9, "message": "x" * 500}
        assert record.checkpoint == {"page": 3}
        gate.set()
        assert (await handle.wait(PATIENCE)).state is State.SUCCEEDED


async def test_a_thread_saves_with_wait_and_a_retry_finds_the_checkpoint():
    scheduler, seen = quick(), []

    @scheduler.job(FAR, id="job", retry=Retry(attempts=2, first=0.01))
    def job(fire):
        seen.append(fire.checkpoint)
        fire.save({"page": 3}).wait(PATIENCE)
        if fire.attempt == 1:
            raise OSError("cut off")

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert (record.state, record.error) == (State.SUCCEEDED, None)
    assert seen == [None, {"page": 3}]


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ({1, 2}, "JSON"),
        ("x" * 70_000, "the limit is 65536"),
        (object(), "JSON"),
    ],
)
async def test_a_checkpoint_that_cannot_be_kept_is_refused_in_the_body(checkpoint, message):
    scheduler = quick()

    @scheduler.task(id="job")
    async def job(fire):
        with pytest.raises(ConfigurationError, match=message):
            await fire.save(checkpoint)

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert record.state is State.SUCCEEDED, record.error
