"""No process claims more than its executors can begin: other processes have room."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from fencepost import current_fire
from fencepost.apscheduler import guard
from fencepost.model import State
from fencepost.store.base import FireQuery
from tests.guard.kit import QUICK, eventually, guarded


class Gate:
    """A job that runs until it is told to end, and says which replica runs it."""

    def __init__(self):
        self.open = threading.Event()
        self.began = Counter()

    def __call__(self):
        self.began[current_fire().job_id] += 1
        self.open.wait(60)


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open.set()


def pools(**sizes):
    return {"executors": {name: ThreadPoolExecutor(size) for name, size in sizes.items()}}


def held(ledger):
    """How many fires each replica holds."""
    fires = ledger.ask(lambda store: store.find_fires(FireQuery(limit=1_000)))
    return Counter(fire.replica for fire in fires if fire.state is State.RUNNING)


def soon(seconds=1.5):
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_no_process_takes_more_than_its_pool_has_workers(url, ledger, gate):
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(guarded(url, configuration=pools(default=2, other=30))) for _ in range(4)
        ]
        stack.callback(gate.open.set)
        due = soon(2)
        for number in range(8):
            for scheduler, _ in workers:
                scheduler.add_job(gate, "date", id=f"job-{number}", run_date=due, misfire_grace_time=60)
        for scheduler, _ in workers:
            scheduler.add_job(print, "interval", seconds=1, id="tick", executor="other")
        eventually(lambda: len(gate.began) == 8, 60)
        assert set(held(ledger).values()) <= {2, 3}  # 3: the tick of this very moment
        gate.open.set()
        eventually(lambda: all(ledger.outcomes(f"job-{n}") == [("succeeded", None)] for n in range(8)), 60)


def test_a_full_pool_holds_up_no_other(url, ledger, gate):
    """Also with no other process to take what cannot begin."""
    ticks = []
    jobs = [(lambda: ticks.append(1), {"trigger": "interval", "seconds": 1, "id": "tick"})]
    with guarded(url, *jobs, configuration=pools(default=2, small=1)) as (scheduler, _):
        due = soon(0)
        for number in range(5):
            options = {"id": f"job-{number}", "run_date": due, "misfire_grace_time": 60}
            scheduler.add_job(gate, "date", executor="small", **options)
        eventually(lambda: gate.began, 60)
        before = len(ticks)
        eventually(lambda: len(ticks) >= before + 3, 60)
        assert len(gate.began) == 1
        gate.open.set()
        eventually(lambda: len(gate.began) == 5, 60)
        eventually(lambda: all(ledger.outcomes(f"job-{n}") == [("succeeded", None)] for n in range(5)), 60)


def test_what_waited_in_vain_for_a_full_pool_is_missed_when_its_grace_is_over(url, ledger, gate):
    with guarded(url, configuration=pools(default=2, small=1)) as (scheduler, _):
        scheduler.add_job(print, "interval", seconds=1, id="tick")
        scheduler.add_job(gate, "date", id="first", executor="small")
        eventually(lambda: gate.began, 60)
        scheduler.add_job(
            gate, "date", id="second", executor="small", run_date=soon(0.5), misfire_grace_time=1
        )
        time.sleep(2.5)
        gate.open.set()
        eventually(lambda: ledger.outcomes("second") == [("missed", "misfire")], 60)
    assert gate.began.keys() == {"first"}


def test_functions_on_an_event_loop_have_as_many_workers_as_it_has_threads(url, ledger, gate):
    stop = threading.Event()

    async def worker():
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(2))
        scheduler = AsyncIOScheduler(timezone="UTC")
        watch = guard(scheduler, url, **QUICK)
        for number in range(4):
            scheduler.add_job(gate, "date", id=f"job-{number}", run_date=due, misfire_grace_time=60)
        scheduler.start()
        while not stop.is_set():
            await asyncio.sleep(0.05)
        await watch.drain()
        scheduler.shutdown()

    due = soon(2)
    threads = [threading.Thread(target=asyncio.run, args=(worker(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(gate.began) == 4, 60)
        assert sorted(held(ledger).values()) == [2, 2]
    finally:
        gate.open.set()
        stop.set()
        for thread in threads:
            thread.join()
