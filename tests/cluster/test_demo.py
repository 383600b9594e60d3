"""`fencepost demo` as a newcomer runs it: in a process of its own, without a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencepost.cli.demo.stage import wrongly_started
from fencepost.model import Attempt, FireRecord, State

pytestmark = pytest.mark.cluster

DEMO = [sys.executable, "-m", "fencepost", "demo"]
DEADLINE = 50.0
VERDICT = "Every fire that was due is accounted for once."


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
    """Of the audit, which leaves out states that no fire is in."""
    found = re.search(rf"^{name} +(\d+)\b", output, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.slow
def test_everything_is_accounted_for_although_the_leader_is_killed(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*DEMO, "--seconds", "8"], env=environment, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    assert "3 processes share one SQLite file" in done.stdout.splitlines()[0]

    killed = re.search(r"kill -9 for (r\d), which leads, in report", done.stdout)
    heir = re.search(r"(r\d) leads after [\d.]+ s, in term 2", done.stdout)
    resumed = re.search(
        r"(r\d) goes on with report [\d.]+ s after kill -9, with token (\d+) after (\d+)", done.stdout
    )
    assert killed
    assert heir
    assert resumed
    assert killed[1] != heir[1] == resumed[1]
    assert int(resumed[2]) > int(resumed[3])
    assert f"r4 has joined in the place of {killed[1]}" in done.stdout
    assert re.search(r"SIGTERM for (r\d), which leads, in report", done.stdout)
    assert "r5 has joined" in done.stdout
    assert done.stdout.count("The run has succeeded") == 2

    due = figure("due", done.stdout)
    assert due >= 15
    assert sum(figure(state, done.stdout) for state in ("ran", "skipped", "missed", "lost")) == due
    assert figure("skipped", done.stdout) > 0
    assert done.stdout.endswith(f"\n{VERDICT}\n")
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
    assert found["expected"] == sum(found[name] for name in ("ran", "skipped", "missed", "lost", "cancelled"))
    assert len(found["takeover_seconds"]) == 1

    [folder] = tmp_path.iterdir()
    assert str(folder) in done.stderr
    assert {"fencepost.db", "starts.log", "r1.log"} <= {path.name for path in folder.iterdir()}
    for words in (["audit"], ["why", "report"]):
        asked = subprocess.run(
            [sys.executable, "-m", "fencepost", *words, "--store", found["store"]],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout


def test_a_replica_that_ends_by_itself_fails_the_demo(environment: dict[str, str], tmp_path: Path) -> None:
    demo = subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_line(demo, "All have joined")
        os.kill(replicas_in(tmp_path)[0], signal.SIGKILL)
        _, errors = demo.communicate(timeout=DEADLINE)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 1
    assert re.search(r"The demo failed: (r\d|dashboard) ended with code -9", errors)
    [folder] = tmp_path.iterdir()
    assert f"The database and the logs are in {folder}" in errors


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
    assert output.endswith(f"\n{VERDICT}\n")
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
    due = datetime(2026, 11, 15, 12, tzinfo=UTC)
    lost = Attempt(1, "r1", due, due, "lost")
    fire = FireRecord("report@x", "report", due, state=State.SUCCEEDED, token=2, attempts=(lost,))
    assert wrongly_started(["report@x 1", "report@x 2"], [fire]) == []
    assert wrongly_started(["report@x 2"], [fire]) == [], "killed before it noted its start"
    assert wrongly_started(["report@x 2", "report@x 2"], [fire]) == ["report@x 2: started 2 times"]
    assert wrongly_started(["report@x 2", "report@x 3"], [fire]) == [
        "report@x 3: started, and not in the ledger"
    ]
    assert wrongly_started(["report@x 1"], [fire]) == ["report@x 2: succeeded, and not started"]


def wait_for_line(demo: subprocess.Popen[str], text: str) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}")
