"""`fencepost trigger JOB --mode … --wait`: by a service, or here; progress, refusals and exit codes."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import pytest
from rich.console import Console

from fencepost.cli.progress import Bars, ProgressLines
from fencepost.model import FireRecord, State
from fencepost.pipeline.status import read_status
from tests.cluster.harness import Reader

pytestmark = pytest.mark.cluster

APP = """
import asyncio, os, time
from fencepost import Pipeline, Scheduler, every

scheduler = Scheduler(store="sqlite:///stops.db", leader_ttl="2s", run_ttl="2s", heartbeat="0.5s", ready_delay="0s")
stops = Pipeline("stops", modes=("full", "match-import"))

@stops.phase("download", modes=["full"])
async def download(run):
    await asyncio.sleep(0.1)

@stops.phase("import", message="Importing rows", blocking=True)
def import_(run):
    while os.path.exists("hold"):
        run.report(done=3, total=4)
        time.sleep(0.02)
    if run.force:
        raise ValueError("forced to fail")

scheduler.job(every(days=300))(stops)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def arguments(*words):
    return [sys.executable, "-m", "fencepost", *words]


def fencepost(folder, *words, seconds=60):
    return subprocess.run(arguments(*words), cwd=folder, capture_output=True, text=True, timeout=seconds)


@contextmanager
def background(folder, *words):
    popen = subprocess.Popen(
        arguments(*words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield popen
    finally:
        popen.terminate()
        popen.communicate(timeout=120)


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_here_with_a_mode_and_its_progress(folder):
    done = fencepost(folder, "trigger", "app:scheduler", "stops", "--mode", "match-import", "--here")
    assert done.returncode == 0, done.stderr
    assert "download: skipped" in done.stderr
    assert "import: done" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("succeeded after")
    failed = fencepost(folder, "trigger", "app:scheduler", "stops", "--force", "--here")
    assert failed.returncode == 1
    assert "import: failed" in failed.stderr
    assert failed.stderr.count("Traceback") == 1
    assert "ValueError: forced to fail" in failed.stderr.splitlines()[-1]
    unknown = fencepost(folder, "trigger", "app:scheduler", "stops", "--mode", "ful", "--here")
    assert unknown.returncode == 64
    assert "no mode 'ful'; it has full, match-import" in unknown.stderr


def test_while_a_run_is_active_another_is_refused(folder):
    hold, store = folder / "hold", ("--store", "sqlite:///stops.db")
    hold.touch()
    with (
        background(folder, "run", "app:scheduler"),
        closing(Reader(f"sqlite:///{folder}/stops.db")) as reader,
    ):
        eventually(lambda: (folder / "stops.db").exists() and reader.ask(lambda store: store.jobs(["stops"])))
        first = fencepost(folder, "trigger", *store, "stops")
        assert first.returncode == 0
        key = first.stdout.strip()
        eventually(lambda: reader.fire(key).progress)
        by_service = fencepost(folder, "trigger", *store, "stops")
        assert by_service.returncode == 2
        assert f"Another pipeline run is already active: {key}" in by_service.stderr
        here = fencepost(folder, "trigger", "app:scheduler", "stops", "--here")
        assert here.returncode == 2
        assert f"Another pipeline run is already active: {key}" in here.stderr
        hold.unlink()
        eventually(lambda: reader.fire(key).state.final)
        named = ("--mode", "full", "--trigger", "release", "--wait", "--json")
        done = fencepost(folder, "trigger", *store, "stops", *named)
        assert done.returncode == 0
        assert json.loads(done.stdout)["args"] == {"mode": "full", "trigger": "release"}
        assert reader.ask(lambda store: read_status(store, "stops"))["trigger"] == "release"
        badly = fencepost(folder, "trigger", "app:scheduler", "stops", "--trigger", "a release")
        assert badly.returncode == 64
        assert "trigger" in badly.stderr


def test_on_a_terminal_there_is_a_bar_for_each_phase(folder):
    """Drawn by the command itself, on a terminal of its own."""
    hold = folder / "hold"
    hold.touch()
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    popen = subprocess.Popen(
        arguments("trigger", "app:scheduler", "stops", "--here"),
        cwd=folder,
        stdout=theirs,
        stderr=theirs,
        env=env,
    )
    os.close(theirs)
    drawn = b""
    while piece := _read(ours):
        drawn += piece
        if b"3/4" in drawn:
            hold.unlink(missing_ok=True)
    os.close(ours)
    assert popen.wait(120) == 0
    text = drawn.decode(errors="replace")
    assert "✓" in text
    assert "download" in text
    assert "import: Importing rows" in text


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other side has closed
        return b""


def fire(phase, passed=(), state=State.RUNNING, **told):
    progress = {**told, "pipeline": {"phase": phase, "phases": [{"seconds": 0.2, **each} for each in passed]}}
    return FireRecord("stops!1", "stops", datetime(2026, 11, 16, tzinfo=UTC), state=state, progress=progress)


STORY = [
    FireRecord("stops!1", "stops", datetime(2026, 11, 16, tzinfo=UTC)),
    fire("download", message="Downloading", done=5, total=10),
    fire("import", [{"name": "download", "outcome": "done"}], message="\x1b[31mImporting", done=3, total=4),
    fire(
        "import",
        [{"name": "download", "outcome": "done"}, {"name": "import", "outcome": "failed"}],
        State.FAILED,
    ),
]


def test_bars():
    out = io.StringIO()
    with Bars(Console(file=out, width=90, force_terminal=False)) as bars:
        for each in STORY:
            bars.show(each)
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["✓", "✗"]
    assert "10/10" in lines[0]
    assert "3/4" in lines[1]
    assert "\x1b" not in lines[1]


def test_lines(capsys):
    lines = ProgressLines()
    for each in [*STORY, STORY[-1]]:
        lines.show(each)
    assert capsys.readouterr().err.splitlines() == [
        "download …",
        "download: done after 0.2 s",
        "import …",
        "import: failed after 0.2 s",
    ]
