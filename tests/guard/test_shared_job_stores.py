"""Job stores that several processes share: SQLAlchemy's, as the one most in use, and Redis'."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import contextlib
import sys
import time
import types
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

from fencepost import current_fire
from tests.guard.kit import eventually, guarded

KEYS: list[str] = []
"""Of the fires that ran. Jobs of a shared store are found by their names, so this must be at the top."""


def tick(*args):
    KEYS.append(current_fire().key)


@pytest.fixture(autouse=True)
def _forget_keys():
    KEYS.clear()


@pytest.fixture(params=["sqlalchemy", "redis"])
def shared(request, tmp_path):
    """Makes one more object for the same job store."""
    if request.param == "sqlalchemy":
        yield lambda: SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")
    else:
        port = int(request.getfixturevalue("valkey_url").split(":")[2].split("/")[0])
        yield lambda: RedisJobStore(host="127.0.0.1", port=port)


@contextlib.contextmanager
def newer_version():
    """Within this there is a module with a function that is not there outside."""
    module = types.ModuleType("newer_version")

    def feature():
        pass

    feature.__module__, feature.__qualname__ = module.__name__, "feature"
    module.feature = feature
    sys.modules[module.__name__] = module
    try:
        yield feature
    finally:
        del sys.modules[module.__name__]


OFTEN = {
    "trigger": "interval",
    "seconds": 1,
    "id": "tick",
    "misfire_grace_time": 30,
    "replace_existing": True,
}


@contextlib.contextmanager
def started(url, shared, *jobs, **options):
    with guarded(url, *jobs, configuration={"jobstores": {"default": shared()}}, **options) as (
        scheduler,
        watch,
    ):
        yield scheduler, watch


def test_each_fire_runs_once_and_everybody_stays_alive(url, shared, ledger):
    with started(url, shared, (tick, OFTEN)) as (one, _), started(url, shared, (tick, OFTEN)) as (other, _):
        eventually(lambda: len(KEYS) >= 3)
        assert all(each._thread.is_alive() for each in (one, other))
        assert [job.id for job in one.get_jobs()] == [job.id for job in other.get_jobs()] == ["tick"]
    assert max(Counter(KEYS).values()) == 1
    assert {"failed", "lost", "missed"}.isdisjoint(state for state, _ in ledger.outcomes("tick"))


def test_a_job_that_one_process_adds_is_run_by_the_others_too(url, shared, ledger):
    with started(url, shared) as (one, _), started(url, shared) as (other, watch):
        time.sleep(0.3)
        one.add_job(tick, **OFTEN)
        eventually(lambda: watch.registry.named("tick"))
        one.pause()  # runs nothing more itself
        before = len(KEYS)
        eventually(lambda: len(KEYS) >= before + 2)
        other.remove_job("tick")
        eventually(lambda: not one.get_jobs())
        before = len(KEYS)
        time.sleep(1.2)
        assert len(KEYS) <= before + 1
    assert max(Counter(KEYS).values()) == 1


def test_one_off_work_in_a_shared_store_runs_once(url, shared, ledger):
    with started(url, shared) as (one, _), started(url, shared) as (other, peer):
        job = one.add_job(tick, "date", run_date=datetime.now(UTC) + timedelta(seconds=1.5))
        eventually(lambda: peer.registry.named(job.id))
        eventually(lambda: KEYS)
        eventually(lambda: not one.get_jobs() and not other.get_jobs())
        time.sleep(0.3)
    assert len(KEYS) == 1


def test_a_row_that_cannot_be_read_here_is_left_alone(url, shared, caplog):
    """A replica of an older version lacks the function that a newer one has put there."""
    job = {"trigger": "interval", "hours": 1, "id": "new"}
    with newer_version() as feature, started(url, shared, (feature, job)):
        pass
    with started(url, shared, (tick, OFTEN)) as (scheduler, _):
        eventually(lambda: KEYS)
        assert [job.id for job in scheduler.get_jobs()] == ["tick"]
        assert scheduler.get_job("new") is None
    assert sum("cannot be read here" in record.getMessage() for record in caplog.records) == 1
    with newer_version(), started(url, shared) as (scheduler, _):
        assert {job.id for job in scheduler.get_jobs()} == {"new", "tick"}


def test_a_row_that_cannot_be_read_and_is_due_does_not_keep_the_scheduler_busy(url, shared):
    job = {"trigger": "interval", "seconds": 1, "id": "new"}
    with newer_version() as feature, started(url, shared, (feature, job)):
        pass
    time.sleep(1.2)  # it is due now
    looks = []
    with started(url, shared) as (scheduler, _):
        store = scheduler._jobstores["default"]
        look = store.get_due_jobs
        store.get_due_jobs = lambda now: looks.append(now) or look(now)
        time.sleep(1)
    assert len(looks) < 20


def test_what_is_not_shared_is_not_searched(url):
    with guarded(url, configuration={"jobstores": {"default": MemoryJobStore()}}) as (scheduler, _):
        assert scheduler._process_jobs() is None
