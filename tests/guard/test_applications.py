"""Applications as their users run them: with the line every fire runs once, without it once per process."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.guard.running import JOBS, Application

pytestmark = pytest.mark.cluster

STARTED = {
    "uvicorn": lambda application: application.under_uvicorn(4),
    "gunicorn": lambda application: application.under_gunicorn(4),
    "service": lambda application: application.as_service(3),
}
PROCESSES = {"uvicorn": 4, "gunicorn": 4, "service": 3}


QUICK = {("uvicorn", "postgres"), ("gunicorn", "sqlite"), ("service", "valkey")}
"""Each way and each store once; `make test-all` runs the other pairs."""
PAIRS = [
    pytest.param(way, store, marks=() if (way, store) in QUICK else pytest.mark.slow)
    for way in STARTED
    for store in ("sqlite", "valkey", "postgres")
]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.mark.parametrize(("way", "store"), PAIRS, indirect=["store"])
def test_with_the_line_every_fire_runs_once_also_when_a_worker_is_killed(
    way: str, store: str, tmp_path: Path
) -> None:
    with Application(tmp_path, store) as application:
        STARTED[way](application)
        application.all_here(PROCESSES[way])
        time.sleep(1.2)
        before = len(application.notes())
        killed = application.kill_one()
        application.wait_for(
            lambda: len(application.notes()) >= before + 2 * len(JOBS), 30, "the others go on"
        )
        application.settled()
        if way != "service":  # a server replaces its workers; uvicorn hears nothing while one is starting
            application.all_here(PROCESSES[way], without=killed.pid)
        application.stop()
        report = application.judged(killed)
        ran = Counter(note.job for note in application.notes())
        assert set(ran) == set(JOBS)
        assert report.jobs == len(JOBS)


@pytest.mark.parametrize(
    "way", ["service", *(pytest.param(way, marks=pytest.mark.slow) for way in STARTED if way != "service")]
)
def test_without_it_every_process_runs_them_all(way: str, tmp_path: Path) -> None:
    with Application(tmp_path, None) as application:
        STARTED[way](application)

        def all_run_all() -> bool:
            runs = Counter((note.job, note.pid) for note in application.notes())
            return len(runs) == PROCESSES[way] * len(JOBS) and min(runs.values()) >= 2

        application.wait_for(all_run_all, 120, "every process has run every job twice")
        application.stop()
