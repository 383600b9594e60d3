"""Two applications that call a job the same, on one store: each in a process of its own, found out by both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

SHOP = """
from fencepost import Scheduler, every

scheduler = Scheduler()

@scheduler.job(every(minutes=10))
def cleanup(): ...
"""
BILLING = SHOP.replace("minutes=10", "minutes=20")
DEADLINE = 60.0


class Folder:
    """A folder with an application or a job file, and the environment of its processes."""

    def __init__(self, path: Path, url: str, files: Mapping[str, str]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name).write_text(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        fast = {"HEARTBEAT": "300ms", "LEADER_TTL": "3s", "RUN_TTL": "3s"}
        self.env = {**kept, "FENCEPOST_STORE": url, "COLUMNS": "200"}
        self.env |= {f"FENCEPOST_{name}": value for name, value in fast.items()}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fencepost", *words]
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    def job(self, id: str) -> Any:
        shown = self("jobs", "show", id, "--json")
        return json.loads(shown.stdout) if shown.returncode == 0 else None

    @contextmanager
    def running(self, target: str = "app:scheduler", name: str = "log") -> Iterator[Replica]:
        log = self.path / name
        with log.open("w") as stderr:
            command = [sys.executable, "-m", "fencepost", "run", target]
            popen = subprocess.Popen(command, cwd=self.path, env=self.env, stderr=stderr)
        try:
            replica = Replica(popen, log)
            replica.says("replica.joined")
            yield replica
        finally:
            popen.kill()
            popen.wait()


class Replica:
    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.log = log

    def says(self, text: str) -> str:
        """Wait for a line of its log."""
        return eventually(
            lambda: next((line for line in self.log.read_text().splitlines() if text in line), ""),
            lambda: f"no {text!r} in:\n{self.log.read_text()}",
        )

    def stop(self) -> None:
        self.popen.send_signal(signal.SIGTERM)
        assert self.popen.wait(DEADLINE) == 0

    def hang_up(self) -> None:
        self.popen.send_signal(signal.SIGHUP)


def eventually(look: Callable[[], Any], why: Callable[[], str] = lambda: "not in time") -> Any:
    deadline = time.monotonic() + DEADLINE
    while not (found := look()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("server", ["valkey_url", "postgres_url"])
def test_two_applications_with_a_job_of_one_name(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(server)
    shop, billing = (
        Folder(tmp_path / name, url, {"app.py": text})
        for name, text in (("shop", SHOP), ("billing", BILLING))
    )
    with shop.running() as first, billing.running() as second:
        for replica in (first, second):
            line = replica.says("job.conflict")
            assert "cleanup: two applications declare it" in line
            assert str(shop.path / "app.py") in line
            assert str(billing.path / "app.py") in line
            assert "namespace" in line
        shown = shop.job("cleanup")
        assert shown["schedule"] == "every 10 minutes"  # which the second one has not replaced
        assert (shown["source"], shown["origin"]["file"]) == ("code", str(shop.path / "app.py"))
        assert [each["origin"]["file"] for each in shown["conflicts"]] == [str(billing.path / "app.py")]
        assert "conflict" in shown["states"]
        assert "conflict: " in shop("status").stdout
        doctor = shop("doctor")
        assert doctor.returncode == 1
        assert "cleanup is declared by two applications" in doctor.stdout
        assert "FENCEPOST_NAMESPACE" in doctor.stdout
        first.stop()
        moved = second.says("job.moved")
        assert f"from {shop.path / 'app.py'} to {billing.path / 'app.py'}" in moved
        eventually(lambda: billing.job("cleanup")["schedule"] == "every 20 minutes")
        assert "two applications" not in billing("doctor").stdout


@pytest.mark.slow
def test_a_deploy_moves_a_job_to_another_module(tmp_path: Path) -> None:
    """New replicas start before the old one stops; nothing is stuck afterwards, and another replica is welcome."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    old = Folder(tmp_path / "app", url, {"old.py": SHOP, "new.py": BILLING})
    with old.running("old:scheduler", "old") as before, old.running("new:scheduler", "new") as after:
        before.says("job.conflict")
        before.stop()
        after.says("job.moved")
        with old.running("new:scheduler", "more") as another:
            another.says("jobs on")
            shown = old.job("cleanup")
            assert (shown["schedule"], shown["conflicts"]) == ("every 20 minutes", [])
            assert "job.conflict" not in another.log.read_text()


FILE = """
[jobs.backup]
command = ["sh", "-c", "true", "--password", "hunter2"]
every = "10m"

[jobs.report]
command = ["true"]
every = "1h"
"""
REPORT = FILE.index("[jobs.report]")


def test_a_job_file_is_read_again_and_deleted_jobs_are_removed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    folder = Folder(tmp_path / "one", url, {"fencepost.toml": FILE})
    with folder.running("fencepost.toml") as replica:
        eventually(lambda: folder.job("report"))
        shown = folder.job("backup")
        assert shown["origin"]["command"] == "sh -c true --password ***"
        assert "hunter2" not in json.dumps(shown)
        assert "sh -c true --password ***" in folder("jobs", "show", "backup").stdout
        changed = FILE[:REPORT].replace("10m", "20m") + '[jobs.new]\ncommand = ["true"]\nevery = "1d"\n'
        (folder.path / "fencepost.toml").write_text(changed)
        replica.hang_up()
        replica.says("1 new (new), 1 changed (backup), 1 deleted (report)")
        assert "report: deleted from the job file" in replica.says("job.removed")
        eventually(lambda: folder.job("report") is None)
        eventually(lambda: folder.job("backup")["schedule"] == "every 20 minutes")
        assert folder.job("new")["schedule"] == "every day"
        (folder.path / "fencepost.toml").write_text("[jobs.backup]\n")
        replica.hang_up()
        assert "lacks a command" in replica.says("the jobs go on as they are")
        replica.stop()


@pytest.mark.slow
def test_machines_with_different_job_files(tmp_path: Path) -> None:
    """A job that one of them has lost stays while the other declares it; a command that differs is noticed by both."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    one = Folder(tmp_path / "one", url, {"fencepost.toml": FILE})
    two = Folder(tmp_path / "two", url, {"fencepost.toml": FILE})
    with one.running("fencepost.toml") as first, two.running("fencepost.toml") as second:
        eventually(lambda: one.job("report"))
        (one.path / "fencepost.toml").write_text(FILE[:REPORT].replace('"true"', '"false"'))
        first.hang_up()
        for replica in (first, second):
            line = replica.says("job.conflict")
            assert '"sh -c true --password ***"' in line
            assert '"sh -c false --password ***"' in line
        assert one("doctor").returncode == 1
        assert one.job("report") is not None
        (two.path / "fencepost.toml").write_text(FILE[:REPORT].replace('"true"', '"false"'))
        second.hang_up()
        eventually(lambda: one.job("report") is None)
        eventually(lambda: "false" in one.job("backup")["origin"]["command"])
        eventually(lambda: not one.job("backup")["conflicts"])
        assert one("doctor").returncode == 0
