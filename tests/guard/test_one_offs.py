"""Jobs that run once: each runs once under the guard, or is on record, as it would under one scheduler alone."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

from fencepost import ConfigurationError, at, current_fire
from fencepost.store.base import HeartbeatRequest, PutJob
from tests.guard.kit import PATIENCE, Ledger, Pace, eventually, guarded
from tests.servers import valkey

NOW = {"replace_existing": True, "misfire_grace_time": 30}
RUNS: list[str] = []
"""Keys of the fires that ran. At the top: job stores refer to functions by name."""


def once(*args):
    try:
        RUNS.append(current_fire().key)
    except ConfigurationError:  # not guarded
        RUNS.append("-")


def slow():
    once()
    time.sleep(1)


@pytest.fixture(autouse=True)
def _forget_runs():
    RUNS.clear()


@pytest.fixture(
    params=["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("redis", "postgres"))]
)
def url(request, tmp_path):
    """Of the store: one of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    return request.getfixturevalue("valkey_url" if request.param == "redis" else "postgres_url")


@pytest.fixture(params=["memory", "sqlalchemy"])
def kept(request, tmp_path):
    """The configuration of one more worker, with that kind of job store."""

    def configuration():
        if request.param == "memory":
            return {}
        return {"jobstores": {"default": SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")}}

    return configuration


@pytest.fixture
def ledger(url):
    opened = Ledger(url)
    yield opened
    opened.close()


@contextlib.contextmanager
def workers(url, configuration=dict, *jobs, number=4, **options):
    """Each does the same, as workers do."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(guarded(url, *jobs, configuration=configuration(), **options))[0]
            for _ in range(number)
        ]


def soon(seconds=0.0):
    return datetime.now(UTC) + timedelta(seconds=seconds)


def passed(moment, seconds=0.2):
    """Wait until this moment has passed, and so many seconds more."""
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds() + seconds))


def ran(times=1, settle=1.0):
    """So often, and not once more within a while."""
    eventually(lambda: len(RUNS) >= times, what=f"{times} runs, but {RUNS}")
    time.sleep(settle)
    assert len(RUNS) == times, RUNS


def declared(url, name, workers):
    """Until all of them know the job."""
    ledger = Ledger(url)
    eventually(lambda: sum(name in replica.targets for replica in ledger.roster().replicas) == workers)
    eventually(lambda: name in ledger.jobs())
    ledger.close()


def dated(url, kept, seconds, number=2):
    """Workers that have added a job with a date, and know of it. Another job comes first: how long that one takes them
    says how far away the date must be."""
    stack, pace = contextlib.ExitStack(), Pace()
    started = stack.enter_context(workers(url, kept, number=number))
    for each in started:
        each.add_job(once, "interval", hours=1, id="first", **NOW)
    declared(url, "first", number)
    date = pace.ahead(seconds)
    for each in started:
        each.add_job(once, "date", run_date=date, id="x", **NOW)
    declared(url, "x", number)
    assert soon() < date, "the machine has become slower meanwhile"
    return stack, started, date


def listed(*schedulers):
    return [job.id for scheduler in schedulers for job in scheduler.get_jobs() if job.id != "first"]


# Due when the store takes them


def test_at_once_added_by_all_workers_as_they_start(url, kept, ledger):
    with workers(url, kept, (once, {**NOW, "id": "x"})) as all_of_them:
        ran(1)
        eventually(lambda: not listed(*all_of_them))
        eventually(lambda: "x" not in ledger.jobs())
        with guarded(url, (once, {**NOW, "id": "x"}), configuration=kept()):
            ran(1)  # one that comes later, while others live


def test_at_once_although_a_worker_that_starts_as_well_knows_it_already(url, ledger):
    """It has joined, and not defined the job yet: whoever comes first does."""
    ledger.ask(
        lambda store: store.heartbeat(HeartbeatRequest("peer", 1, 60, 20, joining=True, targets=("x",)))
    )
    with guarded(url, (once, {**NOW, "id": "x"})):
        ran(1, settle=0.1)


def test_at_once_is_kept_until_all_have_started(url, kept, ledger):
    """One that is late with its put must not have it run again: it finds the job of the first."""
    job = (once, {**NOW, "id": "x"})
    with guarded(url, job, configuration=kept()):
        ran(1, settle=0.5)
        late = PutJob(replace(ledger.jobs()["x"].job, trigger=at(soon())), replace=False)
        [put] = ledger.ask(lambda store: store.put_jobs([late]))
        assert put.outcome == "exists"
        with guarded(url, job, configuration=kept()) as (other, _):
            eventually(lambda: not listed(other), 8)
            eventually(lambda: "x" not in ledger.jobs())
    assert len(RUNS) == 1


def test_at_once_added_by_all_workers_after_their_start(url, kept, ledger):
    with workers(url, kept) as all_of_them:
        for each in all_of_them:
            each.add_job(once, id="x", **NOW)
        ran(1)
        eventually(lambda: not listed(*all_of_them))


def test_at_once_again_and_again_under_one_id(url, kept):
    with workers(url, kept, number=2) as [one, other]:
        for times, each in enumerate([one, one, other, one], start=1):
            eventually(lambda: not listed(one, other))
            time.sleep(5.1 if times == 1 else 0)  # not as a part of the start any more
            each.add_job(once, id="mail", misfire_grace_time=30)
            ran(times, settle=0.1)


@pytest.mark.parametrize(("late", "grace"), [(0, 30), (20, 30), (20, None)])
def test_a_past_date_within_its_grace(url, late, grace):
    moment = soon(-late)
    with workers(
        url, dict, (once, {"id": "x", "run_date": moment, "trigger": "date", "misfire_grace_time": grace})
    ):
        ran(1)


def test_a_past_date_beyond_its_grace_is_on_record(url, ledger):
    with workers(url, dict, (once, {"id": "x", "run_date": soon(-20), "trigger": "date"})) as all_of_them:
        eventually(lambda: [fire.state for fire in ledger.of("x")] == ["missed"])
        eventually(lambda: not listed(*all_of_them))
    assert not RUNS


def test_rescheduled_to_now(url, kept):
    job = (once, {"id": "x", "trigger": "date", "run_date": soon(3600), **NOW})
    with workers(url, kept, job, number=2) as [one, other]:
        other.reschedule_job("x", trigger="date", run_date=soon())
        ran(1)
        eventually(lambda: not listed(one, other))


def test_without_an_id_in_a_shared_job_store(url, tmp_path, ledger):
    def shared():
        return {"jobstores": {"default": SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")}}

    with workers(url, shared) as all_of_them:
        all_of_them[0].add_job(once, misfire_grace_time=30)
        ran(1)
        eventually(lambda: not listed(*all_of_them))
        eventually(lambda: not ledger.jobs())


@pytest.mark.parametrize(("grace", "state"), [(60, "succeeded"), (1, "missed")])
def test_added_during_an_outage(grace, state):
    with valkey(appendonly=True) as server, workers(server.url, number=2) as [one, _]:
        server.stop()
        one.add_job(once, id="x", misfire_grace_time=grace, run_date=soon(-2 if state == "missed" else 0))
        time.sleep(1)
        server.start()
        ledger = Ledger(server.url)
        eventually(lambda: [fire.state for fire in ledger.of("x")] == [state])
        ledger.close()
    assert len(RUNS) == (state == "succeeded")


def test_it_may_add_itself_anew(url, kept, ledger):
    """As jobs do that choose their own next date."""
    with workers(url, kept, number=1) as [scheduler]:
        done = threading.Event()

        def again():
            if len(RUNS) < 3:
                scheduler.add_job(once_more, "date", run_date=soon(0.3), id="x", misfire_grace_time=30)
            else:
                done.set()

        global AGAIN
        AGAIN = again
        scheduler.add_job(once_more, id="x", misfire_grace_time=30)
        assert done.wait(PATIENCE)
        ran(3)
        eventually(lambda: "x" not in ledger.jobs())


def once_more():
    once()
    AGAIN()


AGAIN = None


# Another time


def test_run_now_instead_of_at_its_date(url, kept, ledger):
    stack, [one, other], date = dated(url, kept, 5)
    with stack:
        other.modify_job("x", next_run_time=soon())
        ran(1, settle=0.1)
        passed(date, 1.0)
        assert len(RUNS) == 1, RUNS
        eventually(lambda: not listed(one, other))


def test_another_date_outlives_the_process_that_set_it(url, ledger):
    job = (once, {"id": "x", "trigger": "date", "run_date": soon(3600), "misfire_grace_time": 30})
    rarely = {"heartbeat": 4, "leader_ttl": 8, "run_ttl": 8}  # looks what others have changed
    with workers(url, dict, job, number=1, **rarely) as [survivor]:
        pace = Pace()
        with guarded(url, job) as (one, _):
            declared(url, "x", workers=2)
            one.modify_job("x", next_run_time=pace.ahead(5))
        with guarded(url, job):  # a worker in its place, with the date of the code
            ran(1)
            eventually(lambda: not listed(survivor))


def test_a_next_run_time_outlives_the_process_that_set_it(url, ledger):
    job = (once, {"id": "x", "trigger": "interval", "hours": 1})
    with workers(url, dict, job, number=1):
        with guarded(url, job) as (one, _):
            eventually(lambda: "x" in ledger.jobs())
            one.modify_job("x", next_run_time=soon(2.5))
        ran(1, settle=0.3)
    assert RUNS[0].startswith("x!at-")


def test_a_next_run_time_outlives_all_processes(url, ledger):
    job = (once, {"id": "x", "trigger": "interval", "hours": 1})
    with guarded(url, job) as (one, _):
        eventually(lambda: "x" in ledger.jobs())
        one.modify_job("x", next_run_time=soon(1.5))
    with workers(url, dict, job):
        ran(1)


def test_a_next_run_time_that_is_taken_back_does_not_run(url, ledger):
    job = (once, {"id": "x", "trigger": "interval", "hours": 1})
    pace = Pace()
    with workers(url, dict, job, number=2) as [one, other]:
        declared(url, "x", workers=2)
        date = pace.ahead(2)
        one.modify_job("x", next_run_time=date)
        time.sleep(0.5)
        other.resume_job("x")
        passed(date, 1.0)
    assert not RUNS


# Restarts and removals


def test_rows_outlive_restarts(url, tmp_path, ledger):
    def shared():
        return {"jobstores": {"default": SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")}}

    pace = Pace()
    with guarded(url, configuration=shared()) as (scheduler, _):
        scheduler.add_job(once, "interval", hours=1, id="first")
        eventually(lambda: "first" in ledger.jobs())
        scheduler.add_job(once, "date", run_date=pace.ahead(8), id="x", misfire_grace_time=30)
        eventually(lambda: "x" in ledger.jobs())
    for _ in range(2):
        with guarded(url, configuration=shared()) as (scheduler, watch):
            eventually(lambda: watch.registry.named("x") and watch.registry.named("x").stored)
            time.sleep(0.3)
            assert listed(scheduler) == ["x"]
    with guarded(url, configuration=shared()):
        eventually(lambda: RUNS, 2 * PATIENCE)  # the date may be that far away
    assert len(RUNS) == 1


def test_one_that_will_still_run_can_be_removed(url, kept, ledger):
    stack, [one, other], _ = dated(url, kept, 5)
    with stack:
        eventually(lambda: ledger.jobs()["x"].segments == ())  # it is planned
        other.remove_job("x")
        with pytest.raises(JobLookupError):
            other.remove_job("x")
        eventually(lambda: "x" not in ledger.jobs())
        eventually(lambda: not listed(one, other))
        assert not ledger.of("x")
    assert not RUNS


def test_paused_past_its_date_it_runs_when_resumed(url, kept, ledger):
    stack, [one, other], date = dated(url, kept, 4)
    with stack:
        one.pause_job("x")
        eventually(lambda: ledger.jobs()["x"].job.trigger is None)
        passed(date)
        assert not RUNS
        one.resume_job("x")
        ran(1)
        eventually(lambda: not listed(one, other))


def test_paused_by_one_and_resumed_by_another(url, kept, ledger):
    stack, [one, other], date = dated(url, kept, 3)
    with stack:
        one.pause_job("x")
        eventually(lambda: ledger.jobs()["x"].job.trigger is None)
        passed(date)
        other.resume_job("x")
        ran(1)
        eventually(lambda: not listed(one, other))


def test_paused_past_its_date_it_runs_when_rescheduled(url, kept, ledger):
    stack, [one, other], date = dated(url, kept, 4)
    with stack:
        one.pause_job("x")
        eventually(lambda: ledger.jobs()["x"].job.trigger is None)
        passed(date)
        assert not RUNS
        one.reschedule_job("x", trigger="date", run_date=soon())
        ran(1)
        eventually(lambda: not listed(one, other))


def test_while_it_runs_it_is_not_taken_for_over(url, kept, ledger):
    with workers(url, kept, (slow, {**NOW, "id": "x"}), number=2):
        eventually(lambda: [fire.state for fire in ledger.of("x")] == ["succeeded"])
        eventually(lambda: "x" not in ledger.jobs())
