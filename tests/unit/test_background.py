"""A scheduler in a host without an event loop: started, forked, stopped, and left alone at exit."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost import ConfigurationError, Scheduler, State, UsageError, every
from fencepost.scheduler.handle import Handle, SyncHandle
from fencepost.scheduler.sync import SyncScheduler
from tests.unit.test_forks import in_child

QUICK: dict[str, Any] = {"heartbeat": 0.2, "leader_ttl": 1, "run_ttl": 1, "ready_delay": 0}


def eventually(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


BEFORE: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _remember_the_threads_of_other_tests() -> None:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def ours() -> set[str]:
    began = set(threading.enumerate()) - BEFORE
    return {thread.name for thread in began if thread.name.startswith("fencepost-")}


def test_jobs_of_both_kinds_run_and_nothing_is_left_behind() -> None:
    scheduler = Scheduler(store="memory://", **QUICK)
    ran: list[str] = []

    @scheduler.job(every(seconds=1), id="coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0)
        ran.append(threading.current_thread().name)

    @scheduler.job(every(seconds=1), id="function")
    def function() -> None:
        ran.append(threading.current_thread().name)

    with scheduler.background() as same:
        assert same is scheduler
        eventually(lambda: {"fencepost-host", "fencepost-job-1"} <= set(ran))
    eventually(lambda: not ours())


def test_starting_and_stopping_twice_is_once_and_it_starts_again() -> None:
    scheduler = Scheduler(store="memory://", **QUICK)
    scheduler.stop_in_background()
    for _ in range(2):
        scheduler.start_in_background()
        replica = scheduler.replica
        scheduler.start_in_background()
        assert scheduler.replica is replica is not None
        scheduler.stop_in_background()
        scheduler.stop_in_background()
        assert scheduler.replica is None
    eventually(lambda: not ours())


def test_several_threads_start_one_replica() -> None:
    scheduler = Scheduler(store="memory://", **QUICK)
    seen: set[object] = set()

    def start() -> None:
        scheduler.start_in_background()
        seen.add(scheduler.replica)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {scheduler.replica}
    scheduler.stop_in_background()


def test_what_keeps_it_from_starting_is_raised_and_leaves_nothing() -> None:
    scheduler = Scheduler(store="memory://", single_instance=True, **QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEB_CONCURRENCY", "4")
        with pytest.raises(ConfigurationError, match="WEB_CONCURRENCY"):
            scheduler.start_in_background()
    eventually(lambda: not ours())
    with scheduler.background():
        assert scheduler.replica is not None


def test_a_coroutine_job_cannot_stop_the_loop_it_runs_on() -> None:
    scheduler = Scheduler(store="memory://", **QUICK)

    @scheduler.task(id="stop")
    async def stop() -> None:
        scheduler.stop_in_background()

    with scheduler.background():
        fire = scheduler.sync.trigger("stop").wait(60)
        assert fire.state is State.FAILED
        assert "cannot stop it" in (fire.error or "")


def test_a_forked_child_starts_its_own_when_it_is_first_used(tmp_path: Path) -> None:
    scheduler = Scheduler(store=f"sqlite:///{tmp_path}/jobs.db", **QUICK)

    @scheduler.task(id="who")
    def who() -> int:
        return os.getpid()

    def untouched() -> bool:
        return scheduler.replica is None and not ours()

    def used() -> bool:
        """The child's own replica is in the store beside its parent's, until it stops."""
        scheduler.sync.find_fires()
        if scheduler.replica is None:
            return False
        eventually(lambda: scheduler.sync.trigger(who).result(60) == os.getpid())
        scheduler.stop_in_background()
        eventually(lambda: not ours())  # a thread has done its work a moment before it has ended
        return True

    with scheduler.background():
        mine = scheduler.replica
        assert in_child(untouched)
        assert in_child(used)
        assert scheduler.replica is mine
        assert scheduler.sync.trigger(who).result(60) == os.getpid()
    assert in_child(lambda: scheduler.sync.find_fires() != () and scheduler.replica is None), "was stopped"


SCRIPT = """
import sys, threading, time
from fencepost import Scheduler

scheduler = Scheduler(store="sqlite:///jobs.db", heartbeat=0.2, leader_ttl=1, run_ttl=1)
begun = threading.Event()

@scheduler.task(id="slow")
def slow():
    begun.set()
    time.sleep(0.5)
    open("ended", "w").close()

scheduler.start_in_background()
scheduler.sync.trigger(slow)
assert begun.wait(60)
{end}
"""


@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
def test_at_exit_it_drains(end: str, tmp_path: Path) -> None:
    script = textwrap.dedent(SCRIPT).format(end=end)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "ended").exists()
    [fire] = Scheduler(store=f"sqlite:///{tmp_path}/jobs.db").sync.find_fires()
    assert fire.state is State.SUCCEEDED


def test_draining_needs_a_start_and_claims_no_more() -> None:
    scheduler = Scheduler(store="memory://", **QUICK)
    with pytest.raises(UsageError, match="start_in_background"):
        scheduler.sync.drain()
    with scheduler.background():
        replica = scheduler.replica
        scheduler.sync.drain()
        assert scheduler.shutdown.draining
        eventually(lambda: replica is not None and replica.draining)


# --- the same operations for blocking code --------------------------------------------------------------

WIRING = {"ask"}


def public(face: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(each)
        for name, each in inspect.getmembers(face, inspect.isfunction)
        if not name.startswith(("_", "do_")) and name not in WIRING
    }


def coroutines(face: type) -> set[str]:
    return {name for name in public(face) if inspect.iscoroutinefunction(getattr(face, name))}


@pytest.mark.parametrize(("face", "blocking"), [(Scheduler, SyncScheduler), (Handle, SyncHandle)])
def test_whatever_can_be_awaited_can_be_called(face: type, blocking: type) -> None:
    assert coroutines(face) == public(blocking).keys()
    for name in coroutines(face):
        awaited, called = public(face)[name].parameters, public(blocking)[name].parameters
        assert list(awaited.values()) == list(called.values()), name
