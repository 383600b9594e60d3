"""The traps of running APScheduler several times, one by one: two schedulers in this process share a store."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    EVENT_JOB_SUBMITTED,
)
from apscheduler.executors.pool import ProcessPoolExecutor
from apscheduler.schedulers import SchedulerAlreadyRunningError, SchedulerNotRunningError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from fencepost import ConfigurationError, UsageError, current_fire
from fencepost.apscheduler import guard
from tests.guard.kit import QUICK, Ledger, Pace, eventually, guarded
from tests.servers import valkey

OFTEN = {"trigger": "interval", "seconds": 1, "misfire_grace_time": 30}
RARELY = {"trigger": "interval", "hours": 1}


class Diary:
    """What a job did: the keys of its fires, and how many ran at once."""

    def __init__(self, seconds=0.0, error=None):
        self.seconds = seconds
        self.error = error
        self.keys = []
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, *args):
        with self._lock:
            self.keys.append(current_fire().key)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        if self.error:
            raise self.error


@contextlib.contextmanager
def two(url, *jobs, **options):
    with guarded(url, *jobs, **options) as (one, _), guarded(url, *jobs, **options) as (other, _):
        yield one, other


def heard(scheduler, mask):
    events = []
    scheduler.add_listener(events.append, mask)
    return events


def test_two_schedulers_run_each_fire_once_on_one_grid(url, ledger):
    diary = Diary()
    with two(url, (diary, {**OFTEN, "id": "tick"})) as (one, other):
        listened = [heard(each, EVENT_JOB_SUBMITTED | EVENT_JOB_EXECUTED) for each in (one, other)]
        eventually(lambda: len(diary.keys) >= 3)
        shown = [each.get_job("tick").next_run_time for each in (one, other)]
        # Where a fire has just been due one of them may have looked a moment earlier.
        assert abs(shown[0] - shown[1]) in (timedelta(0), timedelta(seconds=1))
        assert {moment.microsecond for moment in shown} == {0}
        assert ledger.jobs()["tick"].segments[-1].trigger.next_after(datetime.now(UTC)).microsecond == 0
    assert max(Counter(diary.keys).values()) == 1
    assert [fire.key for fire in ledger.of("tick") if fire.state == "succeeded"] == sorted(diary.keys)
    submitted = [event for events in listened for event in events if event.code == EVENT_JOB_SUBMITTED]
    executed = [event for events in listened for event in events if event.code == EVENT_JOB_EXECUTED]
    assert len(submitted) == len(executed) == len(diary.keys)  # on the one that ran it alone
    assert {type(event.job_id) for event in executed} == {str}


def test_the_grid_outlives_all_processes(url):
    with guarded(url, (Diary(), {**RARELY, "id": "hourly"})) as (scheduler, watch):
        eventually(lambda: watch.registry.named("hourly").calendar)
        first = eventually(lambda: whole(scheduler.get_job("hourly").next_run_time))
    time.sleep(1.1)
    with guarded(url, (Diary(), {**RARELY, "id": "hourly"})) as (scheduler, watch):
        eventually(lambda: scheduler.get_job("hourly").next_run_time == first)


def whole(moment):
    """Once it is the grid's: APScheduler's own guess has a fraction of a second."""
    return moment if moment.microsecond == 0 else None


def test_fires_later_than_the_grace_time_are_accounted_for_and_told(url, ledger):
    diary = Diary()
    with guarded(url, (diary, {"trigger": "interval", "seconds": 0.5, "id": "strict"})) as (scheduler, _):
        missed = heard(scheduler, EVENT_JOB_MISSED)
        eventually(lambda: diary.keys)
        scheduler.pause()
        eventually(lambda: ("missed", "misfire") in ledger.outcomes("strict"))
        eventually(lambda: missed)
        scheduler.resume()
        before = len(diary.keys)
        eventually(lambda: len(diary.keys) > before)
    assert missed[0].job_id == "strict"
    assert max(Counter(diary.keys).values()) == 1


def test_late_fires_are_run_if_asked_for(url, ledger):
    diary = Diary()
    options = {"trigger": "interval", "seconds": 0.5, "id": "kept"}
    with guarded(url, (diary, options), misfire="all") as (scheduler, _):
        eventually(lambda: diary.keys)
        scheduler.pause()
        time.sleep(2)
        scheduler.resume()
        eventually(lambda: len(diary.keys) >= 5)
    assert "missed" not in {state for state, _ in ledger.outcomes("kept")}


def test_max_instances_counts_in_all_processes(url, ledger):
    diary = Diary(seconds=1.2)
    job = (diary, {"trigger": "interval", "seconds": 0.5, "id": "slow", "misfire_grace_time": 30})
    with two(url, job) as schedulers:
        full = [heard(each, EVENT_JOB_MAX_INSTANCES) for each in schedulers]
        eventually(lambda: len(diary.keys) >= 3)
        eventually(lambda: full[0] + full[1])
    assert diary.most_at_once == 1
    assert ("skipped", "overlap") in ledger.outcomes("slow")


def test_more_instances_run_if_the_job_allows_them(url):
    diary = Diary(seconds=1.2)
    job = (diary, {"trigger": "interval", "seconds": 0.5, "id": "slow", "max_instances": 2})
    with two(url, job):
        eventually(lambda: len(diary.keys) >= 4)
    assert diary.most_at_once == 2


def test_a_job_that_raises_is_recorded_and_told(url, ledger):
    diary = Diary(error=ValueError("no such device"))
    with guarded(url, (diary, {**OFTEN, "id": "broken"})) as (scheduler, _):
        errors = heard(scheduler, EVENT_JOB_ERROR)
        eventually(lambda: ledger.of("broken"))
    [fire, *_] = ledger.of("broken")
    assert (fire.state, fire.reason) == ("failed", "raised an exception")
    assert "in __call__" in fire.error
    assert "ValueError: no such device" in fire.error
    assert isinstance(errors[0].exception, ValueError)


def test_what_a_job_logs_is_kept_with_its_fire(url, ledger):
    def talkative():
        logging.getLogger("shop").warning("halfway through")

    with guarded(url, (talkative, {**OFTEN, "id": "talk"})):
        eventually(lambda: ledger.of("talk"))
    assert "halfway through" in ledger.of("talk")[0].output


async def test_it_is_apscheduler_that_starts(url):
    watch = guard(AsyncIOScheduler(), url)
    with pytest.raises(UsageError, match=r"asgi\(replica=False\)"):
        await watch.native.start()


def test_a_run_that_cannot_be_handed_over_is_not_forgotten(url, ledger):
    with guarded(url, (Diary(), {**OFTEN, "id": "stray", "executor": "nowhere"})) as (scheduler, _):
        fire = eventually(lambda: next((fire for fire in ledger.of("stray") if fire.state == "failed"), None))
        assert scheduler.get_job("stray") is not None  # APScheduler would have removed it
    assert "No such executor: nowhere" in fire.error


def test_what_an_executor_refuses_is_run_by_another_process(url, ledger):
    diary = Diary()
    with two(url, (diary, {**OFTEN, "id": "tick"})) as (one, _):
        eventually(lambda: diary.keys)
        one._lookup_executor("default")._pool.shutdown()  # as at the end of an interpreter
        before = len(diary.keys)
        eventually(lambda: len(diary.keys) >= before + 3)
    assert {"failed", "lost", "missed"}.isdisjoint(state for state, _ in ledger.outcomes("tick"))
    assert max(Counter(diary.keys).values()) == 1


def in_another_process(number):
    if number == 2:
        raise ValueError(f"not {number}")


def test_jobs_in_a_process_pool(url, ledger):
    pool = {"executors": {"default": ProcessPoolExecutor(1)}}
    jobs = [(in_another_process, {**OFTEN, "id": f"number-{number}", "args": [number]}) for number in (1, 2)]
    with guarded(url, *jobs, configuration=pool) as (_, watch):
        assert watch.host.room(time.monotonic()) <= 1
        eventually(lambda: ("succeeded", None) in ledger.outcomes("number-1"), 40)
        eventually(lambda: ("failed", "raised an exception") in ledger.outcomes("number-2"), 40)
    failed = next(fire for fire in ledger.of("number-2") if fire.state == "failed")
    assert "in in_another_process" in failed.error
    assert "ValueError: not 2" in failed.error


def test_one_off_work_of_a_request_runs_here_at_once(url, ledger):
    ran = threading.Event()
    with guarded(url) as (scheduler, _):
        scheduler.add_job(ran.set)
        assert ran.wait(60)
    assert ledger.jobs() == {}


def test_a_guarded_job_is_triggered_by_hand_with_the_arguments_it_has(url, ledger):
    diary = Diary()
    with guarded(url, (diary, {**RARELY, "id": "report", "args": ["ch"]})) as (_, watch):
        watch.native.sync.trigger("report").wait(60)
        refused = watch.native.sync.trigger("report", args={"region": "de"}).wait(60)
    assert len(diary.keys) == 1
    assert refused.state == "failed"
    assert "trigger it without arguments" in refused.error


def test_a_date_with_an_id_runs_once_and_is_over(url, ledger):
    diary, pace = Diary(), Pace()
    with two(url):
        eventually(lambda: len(ledger.roster().replicas) == 2)
    job = (diary, {"trigger": "date", "run_date": pace.ahead(2), "id": "launch"})
    with two(url, job) as (one, other):
        eventually(lambda: diary.keys)
        eventually(lambda: not one.get_jobs() and not other.get_jobs())
        eventually(lambda: "launch" not in ledger.jobs())
    assert len(diary.keys) == 1
    with guarded(url, job):  # a restart, long after: it would run once more under APScheduler alone
        time.sleep(0.5)
    assert len(diary.keys) == 1


@pytest.mark.parametrize(
    ("late", "grace", "state"),
    [(0, 30, "succeeded"), (20, 30, "succeeded"), (20, None, "succeeded"), (20, 1, "missed")],
)
def test_a_date_that_has_passed_runs_within_its_grace_or_is_on_record(url, ledger, late, grace, state):
    diary, moment = Diary(), datetime.now(UTC) - timedelta(seconds=late)
    job = (diary, {"trigger": "date", "run_date": moment, "id": "now", "misfire_grace_time": grace})
    with guarded(url, job):
        eventually(lambda: [fire.state for fire in ledger.of("now")] == [state])
    assert len(diary.keys) == (state == "succeeded")


def test_a_first_run_at_once_happens_once_for_all_processes(url, ledger):
    diary = Diary()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            job = (diary, {**RARELY, "id": "warm", "next_run_time": datetime.now(UTC)})
            stack.enter_context(guarded(url, job))
        eventually(lambda: diary.keys)
        time.sleep(0.5)
    assert len(diary.keys) == 1
    assert diary.keys[0].startswith("warm!at-")


def test_run_now_by_next_run_time(url):
    diary = Diary()
    with two(url, (diary, {**RARELY, "id": "report"})) as (one, other):
        eventually(lambda: one.get_job("report"))
        other.modify_job("report", next_run_time=datetime.now(UTC))
        eventually(lambda: diary.keys)
        time.sleep(0.3)
        assert len(diary.keys) == 1
        eventually(lambda: other.get_job("report").next_run_time > datetime.now(UTC))


def test_a_run_put_off_by_next_run_time(url, ledger):
    diary, pace = Diary(), Pace()
    with guarded(url, (diary, {**OFTEN, "id": "tick"})) as (scheduler, _):
        eventually(lambda: diary.keys)
        later = pace.ahead(2.5)
        scheduler.modify_job("tick", next_run_time=later)
        eventually(lambda: ("skipped", "paused") in ledger.outcomes("tick"))
        eventually(lambda: any("!at-" in key for key in diary.keys))
        assert datetime.now(UTC) >= later


def test_pause_and_resume_hold_for_all_processes(url, ledger):
    diary = Diary()
    with two(url, (diary, {**OFTEN, "id": "tick"})) as (one, other):
        eventually(lambda: diary.keys)
        one.pause_job("tick")
        assert one.get_job("tick").next_run_time is None
        eventually(lambda: ("skipped", "paused") in ledger.outcomes("tick"))
        before = len(diary.keys)
        other.resume_job("tick")  # any of them
        eventually(lambda: len(diary.keys) > before)
    assert max(Counter(diary.keys).values()) == 1


def test_a_job_that_is_added_paused_waits(url, ledger):
    diary = Diary()
    with guarded(url, (diary, {**OFTEN, "id": "tick", "next_run_time": None})) as (scheduler, _):
        eventually(lambda: ("skipped", "paused") in ledger.outcomes("tick"))
        assert not diary.keys
        scheduler.get_job("tick").resume()
        eventually(lambda: diary.keys)


def test_a_changed_trigger_holds_for_all_processes(url, ledger):
    diary = Diary()
    with two(url, (diary, {**RARELY, "id": "poll"})) as (one, other):
        eventually(lambda: "poll" in ledger.jobs())
        one.reschedule_job("poll", trigger="interval", seconds=1)
        eventually(lambda: len(diary.keys) >= 2)
        other.modify_job("poll", max_instances=3)
        eventually(lambda: str(ledger.jobs()["poll"].job.overlap) == "allow(3)")
    assert max(Counter(diary.keys).values()) == 1


def test_a_trigger_that_cannot_be_guarded_changes_nothing(url):
    class Odd(IntervalTrigger):
        pass

    with guarded(url, (Diary(), {**RARELY, "id": "poll"})) as (scheduler, _):
        with pytest.raises(ConfigurationError, match="'poll' cannot be guarded"):
            scheduler.reschedule_job("poll", trigger=Odd(seconds=5))
        assert type(scheduler.get_job("poll").trigger) is IntervalTrigger
        with pytest.raises(ConfigurationError, match="cannot be guarded"):
            scheduler.add_job(print, Odd(seconds=5), id="odd")
        assert scheduler.get_job("odd") is None


def test_a_removed_job_is_removed_for_all_processes(url, ledger):
    diary = Diary()
    jobs = [(diary, {**OFTEN, "id": "tick"}), (Diary(), {**RARELY, "id": "other"})]
    with two(url, *jobs) as (one, other):
        eventually(lambda: diary.keys)
        one.remove_job("tick")
        eventually(lambda: "tick" not in ledger.jobs())
        time.sleep(0.2)
        before = len(diary.keys)
        time.sleep(1.2)
        assert len(diary.keys) == before
        other.remove_all_jobs()
        eventually(lambda: not ledger.jobs())


def test_unguarded_jobs_run_in_every_process_as_they_did(url, ledger):
    runs = []
    job = (lambda: runs.append(threading.current_thread()), {**OFTEN, "id": "refresh"})
    with two(url, job, unguarded=["refresh"]):
        eventually(lambda: len(runs) >= 4)
    assert ledger.jobs() == {}


def test_on_the_leader_alone(url, ledger):
    diary = Diary()
    with two(url, (diary, {**OFTEN, "id": "tick"}), execute_on="leader"):
        eventually(lambda: len(diary.keys) >= 3)
    assert len({fire.replica for fire in ledger.of("tick")}) == 1


@pytest.mark.parametrize("running", [False, True])
def test_one_instance_does_not_start_where_several_are_declared(running, url, ledger, monkeypatch):
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    scheduler = BackgroundScheduler(timezone="UTC")
    try:
        if running:
            scheduler.start()
        with pytest.raises(ConfigurationError, match="WEB_CONCURRENCY is '4'"):
            guard(scheduler, url, single_instance=True, **QUICK).scheduler.start()
        assert scheduler.running == running
        assert not ledger.roster().replicas
    finally:
        if running:
            scheduler.shutdown()


def test_a_long_job_keeps_its_claim(url, ledger):
    diary = Diary(seconds=2.5)
    with two(url, (diary, {**RARELY, "id": "long"})) as (one, _):
        one.modify_job("long", next_run_time=datetime.now(UTC))
        eventually(lambda: ledger.of("long"))
    assert ledger.outcomes("long") == [("succeeded", None)]
    assert len(diary.keys) == 1


async def test_a_scheduler_can_be_stopped_and_started_again(url):
    runs = []

    async def tick():
        runs.append(current_fire().key)

    scheduler, _ = asyncio_scheduler(url, tick)
    scheduler.start()
    with pytest.raises(SchedulerAlreadyRunningError):
        scheduler.start()
    await until(lambda: runs)
    scheduler.shutdown()
    await asyncio.sleep(0)
    with pytest.raises(SchedulerNotRunningError):
        scheduler.shutdown()
    before = len(runs)
    scheduler.add_job(tick, **OFTEN, id="tick")
    scheduler.start()
    await until(lambda: len(runs) > before)
    scheduler.shutdown()


def test_shutdown_waits_for_what_runs_and_has_it_on_record(url, ledger):
    diary = Diary(seconds=1)
    with guarded(url, (diary, {**RARELY, "id": "long"})) as (scheduler, _):
        scheduler.modify_job("long", next_run_time=datetime.now(UTC))
        eventually(lambda: diary.keys)
        scheduler.shutdown()
    assert ledger.outcomes("long") == [("succeeded", None)]
    assert not ledger.roster().replicas


def test_while_the_store_is_down_nothing_runs_and_it_is_said_once(caplog):
    caplog.set_level(logging.INFO, logger="fencepost")
    diary = Diary()
    with (
        valkey() as server,
        guarded(server.url, (diary, {**OFTEN, "id": "tick"}), run_ttl=2, leader_ttl=2, heartbeat=0.5),
    ):
        eventually(lambda: diary.keys)
        server.stop()
        eventually(lambda: said(caplog, "store.degraded"))
        before = len(diary.keys)
        time.sleep(1.5)
        assert len(diary.keys) == before
        assert said(caplog, "store.degraded") == 1
        server.start()
        eventually(lambda: said(caplog, "store.recovered"), 10)
        eventually(lambda: len(diary.keys) > before, 10)
    assert max(Counter(diary.keys).values()) == 1


def said(caplog, words):
    return sum(words in record.getMessage() for record in caplog.records)


def test_a_store_that_is_down_at_the_start_holds_up_nothing_but_the_jobs(caplog):
    diary = Diary()
    with valkey() as server:
        server.stop()
        begun = time.monotonic()
        with guarded(server.url, (diary, {**OFTEN, "id": "tick"})) as (scheduler, _):
            assert time.monotonic() - begun < 2
            eventually(lambda: said(caplog, "store.degraded"))
            assert scheduler.get_job("tick").next_run_time is not None
            server.start()
            eventually(lambda: diary.keys, 60)


# On an event loop


def asyncio_scheduler(url, function, **options):
    scheduler = AsyncIOScheduler(timezone="UTC")
    watch = guard(scheduler, url, **QUICK)
    scheduler.add_job(function, **{**OFTEN, "id": "tick", **options})
    return scheduler, watch


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_coroutines_run_on_the_loop_and_know_their_fire(url, ledger):
    keys = []

    async def tick():
        await asyncio.sleep(0)
        keys.append((current_fire().key, asyncio.get_running_loop()))

    scheduler, watch = asyncio_scheduler(url, tick)
    scheduler.start()
    await until(lambda: len(keys) >= 2)
    await watch.drain()
    scheduler.shutdown()
    assert {loop for _, loop in keys} == {asyncio.get_running_loop()}
    assert [fire.key for fire in await asyncio.to_thread(ledger_of, url)] == [key for key, _ in keys]


def ledger_of(url, job_id="tick"):
    ledger = Ledger(url)
    try:
        return ledger.of(job_id)
    finally:
        ledger.close()


async def test_a_drain_lets_coroutines_end(url):
    begun, ended = [], []

    async def slow():
        begun.append(1)
        await asyncio.sleep(1)
        ended.append(1)

    scheduler, watch = asyncio_scheduler(url, slow)
    scheduler.start()
    await until(lambda: begun)
    await watch.drain()
    scheduler.shutdown()
    assert begun == ended
    assert [fire.state for fire in await asyncio.to_thread(ledger_of, url)] == ["succeeded"]


def test_a_shutdown_without_a_drain_is_no_failure_of_the_job(url):
    began = threading.Event()
    errors = []

    async def endless():
        began.set()
        await asyncio.sleep(60)

    async def application():
        scheduler, watch = asyncio_scheduler(url, endless)
        scheduler.add_listener(errors.append, EVENT_JOB_ERROR)
        scheduler.start()
        await asyncio.to_thread(began.wait, 6)
        scheduler.shutdown()
        await asyncio.sleep(0.3)
        assert not errors  # it goes on as long as the application does
        return watch

    watch = asyncio.run(application())
    watch._at_exit()  # as the interpreter does
    [fire] = ledger_of(url)
    assert (fire.state, fire.reason) == ("cancelled", "drain limit")


async def test_a_lost_claim_cancels_the_coroutine(url):
    cancelled = []

    async def endless():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(current_fire().fenced_out)
            raise

    scheduler, watch = asyncio_scheduler(url, endless)
    scheduler.start()
    await until(lambda: watch.native.replica and watch.native.replica.runs)
    await watch.native.ask(watch.native.replica.store.leave(watch.native.replica.id))  # as if declared dead
    await until(lambda: cancelled)
    assert cancelled == [True]
    await watch.drain()
    scheduler.shutdown()


async def test_a_job_that_blocks_the_loop_keeps_its_claim(url):
    runs = []

    async def blocking():
        runs.append(1)
        if len(runs) == 1:
            time.sleep(2.5)

    scheduler, watch = asyncio_scheduler(url, blocking, max_instances=1)
    scheduler.start()
    await until(lambda: len(runs) >= 2, 8)
    await watch.drain()
    scheduler.shutdown()
    states = [(fire.state, fire.reason) for fire in await asyncio.to_thread(ledger_of, url)]
    assert states[0] == ("succeeded", None)
    assert "lost" not in {state for state, _ in states}


def test_a_scheduler_that_is_guarded_while_it_runs(url, ledger):
    diary = Diary()
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(diary, **OFTEN, id="before")
    scheduler.start()
    guard(scheduler, url, **QUICK)
    scheduler.add_job(diary, **OFTEN, id="after")
    try:
        eventually(lambda: {key.split("@")[0] for key in diary.keys} == {"before", "after"})
    finally:
        scheduler.shutdown()
    assert len(ledger.of("before")) >= 1
