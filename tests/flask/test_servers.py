"""Flask as its users serve it: every fire once, also when a worker is killed, and no old code after a reload."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.guard.running import JOBS, Application, _read

pytestmark = pytest.mark.cluster

SITE = "tests.flask.apps.site:app"
SECONDS = float(os.environ.get("FLASK_SITE_SECONDS", "4"))
"""Of steady work before and after the kill."""
WAYS = {
    "sync": [],
    "gthread": ["-k", "gthread", "--threads", "2"],
    "gevent": ["-k", "gevent"],
    "sync-preload": ["--preload"],
    "gevent-preload": ["-k", "gevent", "--preload"],
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_fire_runs_once_under_gunicorn_also_when_a_worker_is_killed(way: str, tmp_path: Path) -> None:
    workers = 4
    with Application(tmp_path, f"sqlite:///{tmp_path}/shared.db") as application:
        application.under_gunicorn(workers, SITE, WAYS[way])
        application.all_here(workers)
        masters = {group.pid for group in application._groups}
        assert not masters & application.pids(), "the master takes no part"
        before = len(application.notes())
        application.wait_for(
            lambda: len(application.notes()) >= before + SECONDS / 2 * len(JOBS), 4 * SECONDS + 30, "jobs run"
        )
        if "gevent" not in way:
            with httpx2.Client(base_url=application.url, trust_env=False, timeout=20) as client:
                assert client.get("/fencepost/readyz").json() == {"ready": True}
                assert client.post("/poll").status_code == 200
        killed = application.kill_one()
        after = len(application.notes())
        application.wait_for(
            lambda: len(application.notes()) >= after + SECONDS * len(JOBS),
            4 * SECONDS + 30,
            "the others go on",
        )
        application.all_here(workers, without=killed.pid)
        application.settled()
        application.stop()
        report = application.judged(killed)
        assert report.jobs == len(JOBS)
        assert set(Counter(note.job for note in application.notes())) == set(JOBS)


@pytest.mark.slow
def test_a_killed_worker_of_gevent_takes_its_companion_along(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shared.db"
    with Application(tmp_path, store) as application:
        application.under_gunicorn(1, SITE, WAYS["gevent"])
        application.all_here(1)
        [companion] = application.pids()
        worker = int(Path(f"/proc/{companion}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(worker, signal.SIGKILL)
        application.wait_for(lambda: not Path(f"/proc/{companion}").exists(), 30, "its companion has left")
        application.all_here(1, without=companion)
        before = len(application.notes())
        application.wait_for(lambda: len(application.notes()) > before, 30, "jobs run")
        application.stop()
        assert max(Counter(note.key for note in application.notes()).values()) == 1
        report, _ = asyncio.run(_read(store))
        assert report.clean, report.findings


EDITED = """
from flask import Flask
from fencepost import every
from fencepost.flask import Fencepost
from tests.guard.apps.notes import note

app = Flask(__name__)
fencepost = Fencepost(app)

@fencepost.job(every(seconds=1), id="poll", overlap="allow(9)")
def poll():
    note("VERSION")

@app.get("/")
def home():
    return "VERSION"
"""


def test_the_reloaders_parent_takes_no_part_and_no_old_code_runs_after_a_reload(tmp_path: Path) -> None:
    edited = tmp_path / "edited.py"
    edited.write_text(EDITED.replace("VERSION", "old"))
    store = f"sqlite:///{tmp_path}/shared.db"
    with Application(tmp_path, store) as application:
        application.under_flask("edited", ["--debug"])
        application.wait_for(lambda: len(application.notes()) >= 2, 60, "the job runs")
        [parent] = application._groups
        [old] = application.pids()
        assert old != parent.pid
        edited.write_text(EDITED.replace("VERSION", "new"))
        application.wait_for(
            lambda: {note.job for note in application.notes()} >= {"new"}, 60, "new code runs"
        )
        application.wait_for(lambda: len(application.notes()) >= 5, 30, "it goes on")
        ran = [note.job for note in application.notes()]
        assert ran == sorted(ran, reverse=True), "old code ran after the reload"
        assert old not in application.pids()
        assert max(Counter(note.key for note in application.notes()).values()) == 1
        report, _ = asyncio.run(_read(store))
        assert report.clean, report.findings


@pytest.mark.slow
def test_other_commands_take_no_part(tmp_path: Path) -> None:
    with Application(tmp_path, f"sqlite:///{tmp_path}/shared.db") as application:
        application._spawn([sys.executable, "-m", "flask", "--app", SITE, "routes"])
        application._spawn([sys.executable, "-m", "flask", "--app", SITE, "fencepost", "preview", "poll"])
        assert [process.wait(60) for process in application._groups] == [0, 0], application.told()
        assert not (tmp_path / "shared.db").exists()
        assert application.notes() == []
