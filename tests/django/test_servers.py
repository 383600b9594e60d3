"""The site under real servers, with one of their workers killed: every fire once, by what bodies wrote.

`FENCEPOST_TEST_SECONDS=60` makes each scene longer, with four workers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.site import JOBS, Site, gunicorn, is_clean, uvicorn, verdict
from tests.servers.ports import Port

SECONDS = int(os.environ.get("FENCEPOST_TEST_SECONDS", "4"))
JOBS_A_SECOND = 3
WORKERS = 4 if SECONDS >= 30 else 2

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


@pytest.fixture
def port() -> Iterator[int]:
    reserved = Port()
    yield reserved.number
    reserved.release()


def killed_in_mid_run(site: Site, command: list[str]) -> dict:
    """Half of the time, then a worker that runs jobs is killed, then the other half."""
    site.manage("migrate", "-v0")
    half = SECONDS * JOBS_A_SECOND // 2
    with site.running(*command) as server:
        site.wait_for(lambda: len(site.replicas()) == WORKERS, f"{WORKERS} replicas: {server.said()}", 60)
        assert server.popen.pid not in [replica.pid for replica in site.replicas()], (
            "the arbiter takes no part"
        )
        site.wait_for(lambda: len(site.runs()) >= half, f"{half} runs", SECONDS + 60)
        victim = site.runs()[-1]["pid"]
        os.kill(victim, signal.SIGKILL)
        seen = len(site.runs())
        site.wait_for(lambda: len(site.runs()) >= seen + half, f"{half} more runs", SECONDS + 60)
        site.wait_for(lambda: victim not in [each.pid for each in site.replicas()], "it is known to be dead")
        site.wait_for(lambda: len(site.replicas()) == WORKERS, "a new worker has taken its place", 60)
    found = verdict(site)
    found["pids"] = len({run["pid"] for run in site.runs()})
    print(found)
    return found


def judge(found: dict) -> None:
    assert is_clean(found), found
    assert found["succeeded"] >= SECONDS * JOBS_A_SECOND - JOBS_A_SECOND
    assert found["pids"] > 1, "several processes have run bodies"


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["plain", "preload"])
def test_gunicorn(tmp_path: Path, postgres_url: str, port: int, options: tuple[str, ...]) -> None:
    judge(killed_in_mid_run(Site(tmp_path, postgres_url), gunicorn(port, *options, workers=WORKERS)))


def test_gunicorn_on_sqlite(tmp_path: Path, port: int) -> None:
    judge(killed_in_mid_run(Site(tmp_path), gunicorn(port, "--preload", workers=WORKERS)))


def test_uvicorn_workers(tmp_path: Path, postgres_url: str, port: int) -> None:
    judge(killed_in_mid_run(Site(tmp_path, postgres_url), uvicorn(port, WORKERS)))


def test_runserver_runs_the_edited_code_only(tmp_path: Path, port: int) -> None:
    site = Site(tmp_path)
    site.manage("migrate", "-v0")
    half = SECONDS * JOBS_A_SECOND // 2
    with site.running(sys.executable, "manage.py", "runserver", str(port)) as server:
        site.wait_for(
            lambda: len(site.runs()) >= half, f"runs of the first code: {server.said()}", SECONDS + 60
        )
        site.write("shop/jobs.py", JOBS.replace('CODE = "first"', 'CODE = "second"'))
        site.wait_for(
            lambda: len([run for run in site.runs() if run["code"] == "second"]) >= half,
            "runs of the edited code",
            SECONDS + 60,
        )
    runs = site.runs()
    codes = [run["code"] for run in runs]
    assert codes == sorted(codes), "none of the old code after the reload"  # first, then second
    assert len({run["pid"] for run in runs}) == 2, "the parent of the reloader takes no part"
    found = verdict(site)
    print(found, Counter(codes))
    assert is_clean(found), found
