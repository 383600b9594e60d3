"""`fencepost demo` as a newcomer runs it: in a process of its own, without a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fencepost.demo.account import ran_twice
from fencepost.demo.diary import Entry

pytestmark = pytest.mark.cluster

DEMO = [sys.executable, "-m", "fencepost", "demo"]
DEADLINE = 50.0


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Its temporary folder is ours to look into; whatever the demo started is gone afterwards."""
    yield {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    assert not replicas_in(tmp_path)


def replicas_in(folder: Path) -> list[int]:
    """Processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(folder):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def figure(name: str, output: str) -> int:
    found = re.search(rf"^  {name} +(\d+)\b", output, re.MULTILINE)
    assert found, output
    return int(found[1])


@pytest.mark.slow
def test_everything_is_accounted_for_although_the_leader_is_killed(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "8"], env=environment, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    assert "Three processes share one SQLite file" in done.stdout.splitlines()[1]

    killed = re.search(r"kill -9: (r\d), the leader of term 1, is dead", done.stdout)
    heir = re.search(r"(r\d) took over after [\d.]+ s and leads in term 2", done.stdout)
    assert killed
    assert heir
    assert killed[1] != heir[1]
    assert f"in the place of {killed[1]}" in done.stdout
    assert re.search(r"SIGTERM: (r\d) claims nothing more", done.stdout)
    assert re.search(r"has left after [\d.]+ s, exit code 0", done.stdout)
    assert "r5 has joined" in done.stdout

    due = figure("due", done.stdout)
    assert due >= 15
    assert sum(figure(state, done.stdout) for state in ("ran", "skipped", "missed", "lost")) == due
    assert figure("unaccounted", done.stdout) == 0
    assert figure("doubled", done.stdout) == 0
    assert figure("skipped", done.stdout) > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_json_and_a_kept_folder_that_can_be_asked(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "6", "--replicas", "2", "--json", "--keep"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["unaccounted"] == found["doubled"] == found["problems"] == []
    assert found["due"] == sum(found[name] for name in ("ran", "skipped", "missed", "lost", "cancelled"))
    assert len(found["replicas"]["killed"]) == len(found["takeover_seconds"]) == 1

    [folder] = tmp_path.iterdir()
    assert str(folder) in done.stderr
    assert {"demo.db", "starts.log", "r1.log"} <= {path.name for path in folder.iterdir()}
    _, *words = shlex.split(found["why"].replace(f"{sys.executable} -m ", ""))
    asked = subprocess.run(
        [sys.executable, "-m", "fencepost", *words], capture_output=True, text=True, timeout=DEADLINE
    )
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 0)]
)
def test_a_signal_ends_it_cleanly_and_with_a_summary(
    environment: dict[str, str], tmp_path: Path, number: int, code: int
) -> None:
    demo = subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        wait_for_line(demo, "All have joined")
        time.sleep(1.5)
        demo.send_signal(number)
        output, _ = demo.communicate(timeout=DEADLINE)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == code
    assert figure("unaccounted", output) == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_demo_leaves_no_replica_behind(environment: dict[str, str], tmp_path: Path) -> None:
    demo = subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        wait_for_line(demo, "All have joined")
    finally:
        demo.kill()
        demo.communicate(timeout=DEADLINE)
    deadline = time.monotonic() + 20
    while replicas_in(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_second_start_is_noticed_whatever_the_store_says() -> None:
    def start(pid: int, wall: float) -> Entry:
        return Entry("start", "ping@x", 1, pid, wall)

    killed = SimpleNamespace(ended_at=5.0)
    assert not ran_twice([start(1, 1.0)], {})
    assert ran_twice([start(1, 1.0), start(2, 6.0)], {})
    assert not ran_twice([start(1, 1.0), Entry("raised", "ping@x", 1, 1, 2.0), start(2, 6.0)], {})
    assert not ran_twice([start(1, 1.0), start(2, 6.0)], {1: killed})
    assert ran_twice([start(1, 1.0), start(2, 4.0)], {1: killed})
    assert ran_twice([start(1, 1.0), Entry("end", "ping@x", 1, 1, 2.0), start(2, 6.0)], {})


def wait_for_line(demo: subprocess.Popen[str], text: str) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}")
