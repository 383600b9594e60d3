"""A scheduler that is stopped and started again, and a store that is not there yet."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from operator import le

import pytest
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from fencepost.apscheduler import guard
from fencepost.apscheduler.host import ExecutorHost
from fencepost.apscheduler.mirror import JobMirror
from fencepost.apscheduler.registry import GuardedJobs
from fencepost.replica.replica import Replica
from tests.guard.kit import PATIENCE, QUICK, eventually, guarded
from tests.servers import valkey

OFTEN = {"trigger": "interval", "seconds": 1, "misfire_grace_time": 30, "id": "tick"}


async def until(condition, seconds=PATIENCE, what=str):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.01)


def started(scheduler):
    """How long the start took: the first one shows how busy this machine is."""
    begun = time.monotonic()
    scheduler.start()
    return time.monotonic() - begun


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_every_round_of_an_asyncio_scheduler_runs_its_jobs(url, kind):
    runs = []

    async def coroutine():
        runs.append(1)

    def function():
        runs.append(1)

    scheduler = AsyncIOScheduler(timezone="UTC")
    guard(scheduler, url, **QUICK)
    first = None
    for _ in range(4):
        runs.clear()
        scheduler.add_job(coroutine if kind == "coroutine" else function, **OFTEN)
        took = started(scheduler)
        first = first or took
        assert took < 2 + first
        await until(lambda: len(runs) >= 2)
        scheduler.shutdown()
        await asyncio.sleep(0.05)


async def test_a_start_does_not_wait_for_what_still_runs(url):
    began, go_on = asyncio.Event(), asyncio.Event()
    ended = []

    async def long():
        began.set()
        await go_on.wait()
        ended.append(1)

    scheduler = AsyncIOScheduler(timezone="UTC")
    guard(scheduler, url, **QUICK)
    scheduler.add_job(long, **OFTEN)
    first = started(scheduler)
    await asyncio.wait_for(began.wait(), PATIENCE)
    scheduler.shutdown()
    await asyncio.sleep(0.05)
    assert started(scheduler) < 2 + first
    go_on.set()
    await until(lambda: ended)
    scheduler.shutdown()


MADE_ANEW = (ExecutorHost, JobMirror, Replica, GuardedJobs)


def footprint():
    """Threads, descriptors, what every start makes anew, and all objects."""
    gc.collect()
    objects = gc.get_objects()
    anew = sum(type(each) in MADE_ANEW for each in objects)
    return threading.active_count(), len(os.listdir("/proc/self/fd")), anew, len(objects)


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (AsyncIOScheduler, 30),
        pytest.param(AsyncIOScheduler, 220, marks=pytest.mark.slow),
        pytest.param(BackgroundScheduler, 220, marks=pytest.mark.slow),
    ],
)
async def test_starting_and_stopping_leaks_nothing(url, kind, number):
    scheduler = kind(timezone="UTC")
    guard(scheduler, url, **QUICK)
    await cycles(scheduler, 10)
    await asyncio.sleep(2)
    threads, descriptors, anew, objects = footprint()
    allowed = (threads + 2, descriptors + 2, anew + 4, objects + 300 + 5 * number)
    for _ in range(number // 10 - 1):
        await cycles(scheduler, 10)
        # Leaving takes its time, beside the event loop.
        await until(lambda: all(map(le, footprint(), allowed)), what=lambda: (footprint(), allowed))


async def cycles(scheduler, number):
    for _ in range(number):
        scheduler.add_job(print, **OFTEN)
        scheduler.start()
        scheduler.shutdown()
        await asyncio.sleep(0)


def test_a_store_that_is_misconfigured_at_the_start_is_taken_into_use_when_it_is_mended(tmp_path, caplog):
    folder, runs = tmp_path / "missing", []
    job = (lambda: runs.append(1), OFTEN)
    with guarded(f"sqlite:///{folder}/shared.db", job):
        eventually(lambda: "the store is tried again" in caplog.text, 60)
        time.sleep(1.5)
        assert caplog.text.count("the store is tried again") == 1
        folder.mkdir()
        eventually(lambda: runs, 60)
    assert "the store answers now" in caplog.text


def test_what_is_configured_after_the_guard_counts(url):
    scheduler = BackgroundScheduler(timezone="UTC")
    watch = guard(scheduler, url, **QUICK)
    scheduler.configure(
        timezone="UTC", job_defaults={"max_instances": 7}, executors={"default": ThreadPoolExecutor(3)}
    )
    scheduler.add_executor(ThreadPoolExecutor(2), "other")
    scheduler.add_job(print, **OFTEN)
    scheduler.start()
    try:
        assert watch.host.room(time.monotonic()) == 3
        assert str(watch.registry.named("tick").native.overlap) == "allow(7)"
    finally:
        scheduler.shutdown()


def test_after_a_restart_of_the_server_the_log_says_what_is_waited_for(caplog):
    runs = []
    with (
        valkey(appendonly=True) as server,
        guarded(server.url, (lambda: runs.append(1), OFTEN), run_ttl=2, leader_ttl=2),
    ):
        eventually(lambda: runs, 60)
        server.stop()
        server.start()
        eventually(lambda: "claims nothing for 1 s: the store's server has restarted" in caplog.text, 60)
        before = len(runs)
        eventually(lambda: len(runs) > before, 60)


@pytest.mark.slow
@pytest.mark.parametrize("keeps_its_data", [True, False])
def test_after_ten_seconds_without_the_server_starts_resume_within_one_ttl(keeps_its_data, caplog):
    ttl, trusted, runs = 10, 7, []
    with (
        valkey(appendonly=keeps_its_data) as server,
        guarded(
            server.url,
            (lambda: runs.append(time.monotonic()), OFTEN),
            run_ttl=ttl,
            leader_ttl=ttl,
            heartbeat=3,
        ),
    ):
        eventually(lambda: runs, 60)
        server.stop()
        time.sleep(10)
        server.start()
        back = time.monotonic()
        eventually(lambda: runs[-1] > back, 2 * ttl)
        assert next(each for each in runs if each > back) - back < ttl
    assert f"claims nothing for {trusted} s: the store's server has restarted" in caplog.text


def test_a_run_that_waits_for_a_thread_beyond_its_grace_is_missed(url, ledger):
    ran, free = [], threading.Event()
    slow = (lambda: free.wait(120), {"id": "slow", "trigger": "date", "misfire_grace_time": 30})
    configuration = {"executors": {"default": ThreadPoolExecutor(1)}}
    with guarded(url, configuration=configuration, slots=5) as (scheduler, _):
        scheduler.add_job(slow[0], **slow[1])
        eventually(lambda: scheduler._lookup_executor("default")._instances)
        date = datetime.now(UTC) + timedelta(seconds=1)
        scheduler.add_job(lambda: ran.append(1), "date", id="late", misfire_grace_time=2, run_date=date)
        time.sleep((date - datetime.now(UTC)).total_seconds() + 2.5)
        free.set()
        eventually(lambda: ledger.outcomes("late") == [("missed", "misfire")])
    assert not ran
