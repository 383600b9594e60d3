"""`fencepost init`, and what the shell completes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from fencepost import Scheduler, every
from fencepost.cli import cli, outcome
from fencepost.cli.target import load


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("FENCEPOST_", "KUBERNETES_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("words", [(), ("app.py",), ("fencepost.toml",)])
def test_init_writes_what_runs(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert outcome(["init", *words]) == 0
    target = "fencepost.toml" if words == ("fencepost.toml",) else "app:scheduler"
    assert f"fencepost run {target}" in capsys.readouterr().out
    sys.modules.pop("app", None)
    assert list(load(target).jobs) == ["hello"]
    if words:
        command = [sys.executable, "-m", "fencepost", "trigger", target, "hello", "--here", "--wait"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_init_overwrites_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine")
    assert outcome(["init"]) == 64
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "app.py").read_text() == "mine"
    for wrong in ("app", "my-app.py", "jobs.toml"):
        assert outcome(["init", wrong]) == 64
    assert outcome(["init", "no/such/folder/app.py"]) == 78


def completed(line: str) -> list[str]:
    """What the shell is told for this command line."""
    *words, incomplete = line.split(" ")
    complete = BashComplete(cli, {}, "fencepost", "_FENCEPOST_COMPLETE")
    return [item.value for item in complete.get_completions(words[1:], incomplete)]


def told_to_bash(line: str) -> list[str]:
    """The same from a process as bash starts it."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    env = {**os.environ, "_FENCEPOST_COMPLETE": "bash_complete", **words}
    command = [sys.executable, "-m", "fencepost"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.splitlines() if row]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    scheduler = Scheduler(store="sqlite:///jobs.db")

    @scheduler.job(every(hours=1), id="report")
    def report() -> None:
        pass

    @scheduler.job(every(hours=1), id="poll")
    def poll() -> None:
        pass

    async def once() -> None:
        async with scheduler:
            handle = await scheduler.trigger(report, idempotency_key="first")
            await handle.wait(timeout=60)

    asyncio.run(once())
    (tmp_path / "app.py").write_text(
        'raise SystemExit("imported")\nscheduler = Scheduler(\n    store="sqlite:///jobs.db",\n)\n'
        "other: Any = fencepost.Scheduler()\n"
    )
    return tmp_path / "jobs.db"


@pytest.mark.usefixtures("stored")
def test_ids_keys_states_and_targets(tmp_path: Path) -> None:
    assert told_to_bash("fencepost run ") == ["app:scheduler", "app:other"]
    assert completed("fencepost pause app:scheduler ") == ["poll", "report"]
    assert completed("fencepost pause app:scheduler re") == ["report"]
    assert completed("fencepost fires --state su") == ["succeeded"]
    (tmp_path / "fencepost.toml").write_text('store = "sqlite:///jobs.db"\n')
    assert completed("fencepost why r") == ["report"]
    assert completed("fencepost jobs show p") == ["poll"]
    assert completed("fencepost show ") == ["fencepost.toml", "app:scheduler", "app:other", "report!first"]
    assert completed("fencepost fires --job ") == ["poll", "report"]
    assert completed("fencepost preview app:scheduler p") == ["poll"]


def test_without_a_store_nothing_is_suggested_and_none_is_made(tmp_path: Path) -> None:
    assert completed("fencepost pause ") == []
    (tmp_path / "fencepost.toml").write_text("= not toml")
    assert completed("fencepost pause x") == []
    assert {path.name for path in tmp_path.iterdir()} == {"fencepost.toml"}


def test_a_store_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("FENCEPOST_STORE", f"redis://127.0.0.1:{server.getsockname()[1]}")
        began = time.monotonic()
        assert completed("fencepost pause ") == []
        assert time.monotonic() - began < 15, "one second to open it, and one to close it"
