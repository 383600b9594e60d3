"""`make demo` without a terminal: the leader is killed in mid-pipeline, another goes on, and the audit is clean."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "stop_sync"


def test_a_killed_leader_costs_nothing_that_was_done(tmp_path: Path) -> None:
    """Without a pace: a look takes longer than a phase. In a narrow place: lines are whole all the same."""
    done = subprocess.run(
        [sys.executable, "-m", "stop_sync.demo", "--seconds", "10", "--pace", "0"],
        env={**os.environ, "PYTHONPATH": str(EXAMPLE), "TMPDIR": str(tmp_path), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"kill -9 for (r\d), which leads, in matching\. Done: (.*)\.", done.stdout)
    assert killed, done.stdout
    assert killed[2].split(", ")[:2] == ["source_probe", "atlas_download"]
    heir = re.search(r"(r\d) goes on with matching [\d.]+ s after kill -9, with token 2 after 1", done.stdout)
    assert heir, done.stdout
    assert heir[1] != killed[1]
    assert f"in the place of {killed[1]}" in done.stdout
    assert "The run has succeeded" in done.stdout
    assert done.stdout.endswith("\nEvery fire that was due is accounted for once.\n")
    assert not list(tmp_path.iterdir()), "nothing is left behind"
