"""Jobs that run once, and a `next_run_time` set by hand, in four guarded processes of which one is killed (`kill -9`):
they run as in one process without the guard. Each scene is played in both at once, and the runs are compared."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from fencepost.insight.audit import audit
from fencepost.store.urls import store_from_url
from tests.guard.apps.worker import long, once
from tests.guard.crew import Crew, job
from tests.servers import Proxy

pytestmark = pytest.mark.cluster

BOTH = ("memory", "sqlalchemy")
STORES = ("sqlite", "valkey", "postgres")


@dataclass(frozen=True)
class Scene:
    play: Callable[[Crew], None]
    job_stores: tuple[str, ...] = BOTH
    differs: str = ""
    """Why the guarded processes run something else, namely `instead`."""
    instead: tuple[tuple[str, str], ...] = ()


SCENES: dict[str, Scene] = {}


def scene(job_stores=BOTH, differs="", instead=()):
    def add(play):
        SCENES[play.__name__] = Scene(play, job_stores, differs, instead)
        return play

    return add


# Due when the store takes them: `add_job(f, id="x")`, `run_date=now`, a past date, a reschedule to now, an outage


@scene()
def at_once_added_as_all_start_and_the_one_that_runs_it_dies(crew):
    crew.now()
    crew.start(job(func=long))
    crew.kill_the_one_that_runs()


@scene()
def at_once_added_as_all_start_and_again_by_a_successor(crew):
    crew.now()
    crew.start(job())
    crew.ran(1)
    crew.kill(replace=True)


@scene()
def a_date_that_is_now_added_by_all(crew):
    crew.start()
    crew.takes_no_runs()
    crew.add(**job(trigger="date", run_date=crew.now()))
    crew.kill()


@scene()
def a_past_date_within_its_grace(crew):
    crew.start(job(trigger="date", run_date=crew.at("past", -10), misfire_grace_time=300))
    crew.ran(1)
    crew.kill(replace=True)


@scene()
def a_past_date_beyond_its_grace(crew):
    crew.start(job(trigger="date", run_date=crew.at("past", -3600)))
    crew.kill(replace=True)


@scene()
def rescheduled_to_now(crew):
    crew.start(job(trigger="date", run_date=crew.at("never", 3600)))
    crew.takes_no_runs()
    crew.ask("reschedule_job", "x", trigger="date", run_date=crew.now())
    crew.kill()


@scene(["sqlalchemy"])
def without_an_id_in_a_shared_job_store(crew):
    crew.start()
    crew.takes_no_runs()
    crew.now()
    crew.ask("add_job", once, misfire_grace_time=30)
    crew.kill()


@scene(
    ["memory"],
    differs="a job in the memory of one process is gone with that process",
)
def added_in_one_process_alone(crew):
    crew.start()
    crew.takes_no_runs()
    crew.now()
    crew.ask("add_job", **job())
    crew.kill()


@scene()
def added_during_an_outage(crew):
    crew.start()
    crew.takes_no_runs()
    with crew.outage():
        crew.now()
        crew.everyone("add_job", **job())
    crew.kill()


# Another `next_run_time`


@scene()
def run_now_instead_of_at_its_date(crew):
    crew.start()
    crew.add(**job(trigger="date", run_date=crew.at("date", 5)))
    crew.takes_no_runs()
    crew.ask("modify_job", "x", next_run_time=crew.now())
    crew.kill()


@scene()
def run_earlier_than_its_date(crew):
    crew.start()
    crew.add(**job(trigger="date", run_date=crew.at("date", 7)))
    crew.ask("modify_job", "x", next_run_time=crew.at("earlier", 3))
    crew.kill(replace=True)


@scene()
def run_later_than_its_date(crew):
    crew.start()
    crew.add(**job(trigger="date", run_date=crew.at("date", 4)))
    crew.ask("modify_job", "x", next_run_time=crew.at("later", 6))
    crew.kill(replace=True)


@scene()
def a_recurring_job_at_a_time_of_its_own(crew):
    crew.start(job(trigger="interval", hours=1))
    crew.ask("modify_job", "x", next_run_time=crew.at("extra", 3))
    crew.kill(replace=True)


@scene()
def a_recurring_job_now(crew):
    crew.start(job(trigger="interval", hours=1))
    crew.takes_no_runs()
    crew.ask("modify_job", "x", next_run_time=crew.now())
    crew.kill()


@scene(
    differs="a next_run_time is kept in the store; the code that adds the job at every start does not undo it",
    instead=(("x", "extra"),),
)
def a_next_run_time_and_a_restart_of_all(crew):
    crew.start(job(trigger="interval", hours=1))
    crew.ask("modify_job", "x", next_run_time=crew.at("extra", 4))
    crew.kill()
    crew.restart()


# Restarts, removals, pauses


@scene()
def added_at_every_start_and_restarted_twice(crew):
    crew.start()
    crew.add(**job(trigger="date", run_date=crew.at("date", 7)))
    crew.restart()
    crew.kill(replace=True)
    crew.restart()


@scene(["sqlalchemy"])
def a_row_that_outlives_two_restarts(crew):
    crew.start()
    crew.ask("add_job", **job(trigger="date", run_date=crew.at("date", 7)))
    crew.restart()
    crew.kill()
    crew.restart()


@scene(["sqlalchemy"])
def a_row_that_is_due_when_all_start(crew):
    crew.start()
    date = crew.at("date", 3)
    crew.ask("add_job", **job(trigger="date", run_date=date))
    crew.restart(after=date)


@scene()
def removed_before_its_date(crew):
    crew.start()
    crew.add(**job(trigger="date", run_date=crew.at("date", 4)))
    crew.ask("remove_job", "x")
    crew.kill()


@scene()
def paused_past_its_date_and_resumed(crew):
    crew.start()
    date = crew.at("date", 3)
    crew.add(**job(trigger="date", run_date=date))
    crew.ask("pause_job", "x")
    crew.kill()
    crew.passed(date)
    crew.ask("resume_job", "x")


@scene()
def paused_past_its_date_and_rescheduled(crew):
    crew.start()
    date = crew.at("date", 3)
    crew.add(**job(trigger="date", run_date=date))
    crew.ask("pause_job", "x")
    crew.kill()
    crew.passed(date, 2)
    crew.ask("reschedule_job", "x", trigger="date", run_date=crew.now())


# How they are played


QUICK = {
    ("a_date_that_is_now_added_by_all", "sqlite", "memory"),
    ("rescheduled_to_now", "postgres", "sqlalchemy"),
    ("a_recurring_job_now", "valkey", "memory"),
}
"""What `make test` plays: those that wait for no date, each on another store. `make test-all` has all others."""
CAST = [
    pytest.param(name, store, job_store, marks=() if (name, store, job_store) in QUICK else pytest.mark.slow)
    for name, each in SCENES.items()
    for store in STORES
    for job_store in each.job_stores
]


@pytest.fixture
def store(request, tmp_path):
    """The URL for the workers, and what begins an outage and what ends it."""
    if request.param == "sqlite":
        file = tmp_path / "shared.db"
        with sqlite3.connect(file, timeout=30, isolation_level=None) as other:
            yield (
                f"sqlite:///{file}",
                lambda: other.execute("BEGIN EXCLUSIVE"),
                lambda: other.execute("COMMIT"),
            )
        return
    with Proxy(request.getfixturevalue(f"{request.param}_url")) as proxy:
        yield proxy.url, proxy.hold, proxy.release


@pytest.mark.timeout(400)  # the dates are farther away on a busy machine
@pytest.mark.parametrize(("name", "store", "job_store"), CAST, indirect=["store"])
def test_four_guarded_processes_run_what_one_without_the_guard_does(name, store, job_store, tmp_path):
    def rows(who):
        return f"sqlite:///{tmp_path}/{who}.db" if job_store == "sqlalchemy" else None

    played, (url, *outage) = SCENES[name], store
    with (
        Crew(tmp_path / "one", 1, None, rows("one-rows")) as alone,
        Crew(tmp_path / "four", 4, url, rows("four-rows"), *outage) as four,
        ThreadPoolExecutor(1) as beside,
    ):
        expected = beside.submit(runs_of, played, alone)
        found = runs_of(played, four, lambda: len(played.instead if played.differs else expected.result()))
        if played.differs:
            assert found == list(played.instead) != expected.result(), played.differs
        else:
            assert found == expected.result(), four.told()
    report = asyncio.run(audited(url))
    assert report.clean, report.findings


def runs_of(played, crew, number=lambda: 0):
    played.play(crew)
    crew.over()
    crew.ran(number())
    crew.over()
    return crew.runs()


async def audited(url):
    store = store_from_url(url)
    await store.open()
    try:
        return await audit(store)
    finally:
        await store.close()
