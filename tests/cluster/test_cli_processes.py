"""The command line from one process, replicas in others, a SQLite file between them."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli import outcome
from fencepost.model.triggers import from_iso

pytestmark = pytest.mark.cluster

APP = """
import asyncio, os, sys, time
from fencepost import Scheduler, every

scheduler = Scheduler(heartbeat="200ms", leader_ttl="2s", run_ttl="2s")

@scheduler.job(every(hours=1))
def hourly(): ...

@scheduler.task
def greet(name: str = "world"):
    print("hello", name, os.getpid(), flush=True)

@scheduler.task
def breaks():
    raise RuntimeError("it is broken")

@scheduler.task
def blocks():
    open("blocks", "w").close()
    while os.path.exists("blocks"):
        time.sleep(0.01)

@scheduler.task
async def endless(fire):
    fire.report(done=1, total=2, message="half")
    await asyncio.sleep(600)
"""

PATIENT_APP = """
import os, time
from fencepost import Scheduler, every

scheduler = Scheduler()  # nobody is declared dead for half a minute

@scheduler.job(every(hours=1), after_crash="rerun")
def import_data():
    with open("begun", "a") as file:
        print(os.getpid(), file=file)
    while not os.path.exists(f"end-{os.getpid()}"):
        time.sleep(0.01)
"""

DEADLINE = 60.0
"""Far more than is needed: a busy machine is no failure."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fencepost", *arguments]


class Shell:
    """Commands in a folder with an app and its database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        self.env = {**kept, "FENCEPOST_STORE": "sqlite:///app.db", "COLUMNS": "200"}
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )

    def json(self, *arguments: str) -> Any:
        """In this process, which is faster: for looking, and for looking again."""
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = outcome([*arguments, "--json", "--store", f"sqlite:///{self.folder / 'app.db'}"])
        assert code == 0, err.getvalue()
        return json.loads(out.getvalue())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                command(*arguments),
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.started.append(process)
        return process

    def run(self) -> subprocess.Popen[str]:
        """A replica, up and leading."""
        process = self.start("run", "app:scheduler")
        self.until((self.folder / "app.db-fencepost" / "default").exists, "replica")
        self.until(lambda: self.leader() == process.pid, "leader")
        return process

    def leader(self) -> int | None:
        leader = self.json("status")["leader"]
        return leader and leader["pid"]

    def job(self, id: str) -> Any:
        [job] = [job for job in self.json("status")["jobs"] if job["id"] == id]
        return job

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + DEADLINE
        while not (found := condition()):
            assert time.monotonic() < deadline, f"no {what}; log: {(self.folder / 'log').read_text()}"
            time.sleep(0.02)
        return found


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "app.py").write_text(APP)
    shell = Shell(tmp_path)
    yield shell
    for process in shell.started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_a_trigger_from_another_process_starts_at_once_and_waits_for_the_end(shell):
    runner = shell.run()
    done = shell("trigger", "greet", "--arg", "name=Ann", "--wait")
    assert done.returncode == 0, done.stderr
    key = done.stdout.removesuffix("\n")  # alone: `key=$(fencepost trigger … --wait)`
    assert done.stderr.startswith("succeeded after ")
    fire = shell.json("show", key)
    due, started = (time_of(fire[name]) for name in ("due_at", "started_at"))
    assert started - due < 1.0
    assert runner.stdout.readline() == f"hello Ann {runner.pid}\n"

    done = shell("trigger", "breaks", "--wait")
    assert done.returncode == 1
    assert "RuntimeError: it is broken" in done.stderr
    assert shell("retry", done.stdout.strip(), "--wait").returncode == 1
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(DEADLINE) == 0


def test_refuse_cancel_and_pause_across_processes(shell):
    shell.run()
    key = shell("trigger", "endless").stdout.strip()
    shell.until(lambda: shell.job("endless")["state"] == "running", "run")
    shell.until(lambda: shell.json("show", key)["progress"], "progress")
    refused = shell("trigger", "endless", "--if-active", "refuse")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"Another run is already active: {key}" in refused.stderr

    assert shell("cancel", key).returncode == 0
    shell.until(lambda: shell.json("show", key)["state"] == "cancelled", "end")

    assert shell("pause", "hourly", "--reason", "maintenance", "--until", "2h").returncode == 0
    paused = shell.job("hourly")["paused"]
    assert paused["reason"] == "maintenance"
    assert 7190 < time_of(paused["until"]) - time_of(paused["since"]) < 7210
    assert shell("resume", "hourly").returncode == 0
    assert shell.job("hourly")["paused"] is None


def test_a_function_in_a_thread_goes_on_after_a_cancel_and_status_shows_it(shell):
    shell.run()
    key = shell("trigger", "blocks").stdout.strip()
    shell.until((shell.folder / "blocks").exists, "run")
    done = shell("cancel", key)
    goes_on = "a thread cannot be stopped: the function goes on until it returns"
    assert (done.returncode, done.stdout) == (0, f"{key} is cancelled; {goes_on}\n")
    assert shell.json("show", key)["error"] == goes_on
    shell.until(
        lambda: [r["lingering"] for r in shell.json("status")["replicas"]] == [[key]], "lingering body"
    )
    assert f"{key} goes on in a thread" in " ".join(shell("status").stdout.split())
    (shell.folder / "blocks").unlink()
    shell.until(lambda: [r["lingering"] for r in shell.json("status")["replicas"]] == [[]], "end of the body")


def test_after_kill_9_status_tells_the_dead_and_the_next_replica_settles(shell):
    first = shell.run()
    key = shell("trigger", "endless").stdout.strip()
    shell.until(lambda: shell.job("endless")["state"] == "running", "run")
    first.kill()
    first.wait()

    status = shell.json("status")
    assert status["leader"] is None
    assert [(each["pid"], each["state"]) for each in status["replicas"]] == [(first.pid, "dead")]
    assert "running, but its replica is dead" in shell("status").stdout
    assert "no live replica knows" in shell("trigger", "greet").stderr

    second = shell.run()
    fire = shell.until(lambda: (f := shell.json("show", key))["state"] == "lost" and f, "settled run")
    assert fire["reason"] == "its replica died in mid-run"
    assert [each["pid"] for each in shell.json("status")["replicas"]] == [second.pid]
    assert "died in mid-run" in shell("why", "endless", fire["due_at"]).stdout
    assert second.stdout.readline() == f"hello world {second.pid}\n"
    second.send_signal(signal.SIGINT)
    assert second.wait(DEADLINE) == 130


def test_a_person_who_knows_that_a_replica_is_dead_need_not_wait_for_its_ttl(shell):
    """Here it is only stopped, and comes back: its token is worth nothing any more."""
    (shell.folder / "app.py").write_text(PATIENT_APP)
    begun = shell.folder / "begun"
    first = shell.run()
    key = shell("trigger", "import_data").stdout.strip()
    shell.until(begun.exists, "first run")
    first.send_signal(signal.SIGSTOP)
    second = shell.start("run", "app:scheduler")
    shell.until(lambda: len(shell.json("status")["replicas"]) == 2, "second replica")

    done = shell("cancel", key, "--owner-is-dead", "--yes")
    assert (done.returncode, done.stdout) == (0, f"{key} waits for a replica to run it again\n")
    assert f"pid {first.pid}, alive" in done.stderr
    shell.until(lambda: begun.read_text().split() == [str(first.pid), str(second.pid)], "second run")

    first.send_signal(signal.SIGCONT)
    (shell.folder / f"end-{first.pid}").touch()
    shell.until(lambda: f"fenced {key}" in (shell.folder / "log").read_text(), "fencing of the first run")
    assert shell.json("show", key)["state"] == "running"
    (shell.folder / f"end-{second.pid}").touch()
    fire = shell.until(lambda: (f := shell.json("show", key))["state"] == "succeeded" and f, "success")
    assert [attempt["outcome"] for attempt in fire["attempts"]] == ["lost", "succeeded"]
    assert "was declared dead by " in fire["attempts"][0]["error"]
    assert f"-{second.pid}-" in fire["replica"]


def test_here_runs_it_in_this_process_and_leaves_nothing_behind(shell):
    done = shell("trigger", "app:scheduler", "greet", "--arg", "name=me", "--here")
    assert done.returncode == 0, done.stderr
    key, said = done.stdout.splitlines()  # the job prints here, too
    assert said.startswith("hello me ")
    assert done.stderr.splitlines()[-1].startswith("succeeded")
    status = shell.json("status")
    assert (status["leader"], status["replicas"]) == (None, [])
    assert [job["id"] for job in status["jobs"]] == ["greet"]  # a replica for this one task
    assert shell.json("show", key)["state"] == "succeeded"

    assert shell("trigger", "app:scheduler", "breaks", "--here").returncode == 1
    shell.env["FENCEPOST_STORE"] = "memory://"
    assert shell("trigger", "app:scheduler", "greet", "--here").returncode == 0


def test_an_interrupted_wait_is_130_and_leaves_the_fire(shell):
    shell.run()
    waiting = shell.start("trigger", "endless", "--wait")
    key = waiting.stdout.readline().strip()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(DEADLINE) == 130
    assert shell.json("show", key)["state"] in ("pending", "running")
    assert "Traceback" not in (shell.folder / "log").read_text()


def test_a_reader_that_leaves_early_is_no_crash(shell):
    shell.run()
    process = shell.start("fires", "--limit", "1")
    process.stdout.close()
    assert process.wait(DEADLINE) in (0, 1)
    assert "BrokenPipe" not in (shell.folder / "log").read_text()


def time_of(text: str) -> float:
    return from_iso(text).timestamp()
