"""Windows cannot be had here. Without anything that it lacks, memory, Valkey and PostgreSQL work all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).parent / "apps" / "windows.py"


@pytest.mark.cluster
@pytest.mark.parametrize("store", ["memory", "valkey", "postgres"])
def test_a_scheduler_runs_without_posix(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else request.getfixturevalue(f"{store}_url")
    done = subprocess.run(
        [sys.executable, APP, url], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ran"] == ["loop", "thread"]
    assert found["codes"] == ([] if store == "memory" else [0, 0, 0, 0])
    assert "process groups" in found["command"]
    assert "flock" in found["sqlite"]
    assert found["room"] == 1000
    assert done.stderr.count("Traceback") == 1  # of the command, as asserted above
