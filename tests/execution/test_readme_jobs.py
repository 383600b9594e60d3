"""The job file of the README, as somebody new would try it: save it, run it, look at what it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.scheduler.jobfile import scheduler_from

pytestmark = pytest.mark.cluster

README = Path(__file__).parents[2] / "README.md"
ENV = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    [text] = [block.partition("```")[0] for block in README.read_text().split("```toml")[1:]]
    (tmp_path / "fencepost.toml").write_text(text)
    return tmp_path


def fencepost(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fencepost", *words]
    return subprocess.run(
        command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, check=False
    )


def test_it_is_complete(folder: Path) -> None:
    assert set(scheduler_from(folder / "fencepost.toml").jobs) == {"usage", "greet"}


def test_two_replicas_run_it_and_show_what_it_printed(folder: Path) -> None:
    run = [sys.executable, "-m", "fencepost", "run", "fencepost.toml"]
    replicas = [
        subprocess.Popen(run, cwd=folder, env=ENV, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        deadline = time.monotonic() + 60
        while (done := fencepost(folder, "trigger", "greet", "--wait", "--json")).returncode:
            assert time.monotonic() < deadline, done.stderr  # until a replica has declared it
        [fire] = json.loads(
            fencepost(folder, "fires", "--job", "greet", "--state", "succeeded", "--json").stdout
        )
        shown = fencepost(folder, "show", fire["key"]).stdout
        assert shown.endswith("output\n  hello\n")
        assert json.loads(fencepost(folder, "show", fire["key"], "--json").stdout)["output"] == "hello"
        for replica in replicas:
            replica.terminate()
        assert [replica.wait(120) for replica in replicas] == [0, 0]
        assert fencepost(folder, "audit").returncode == 0
    finally:
        for replica in replicas:
            replica.kill()
            replica.wait()
