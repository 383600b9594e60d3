"""A backfill by real processes on every store, while the leader is killed with `kill -9`.

`FENCEPOST_TEST_FIRES=10000` makes it long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.model import Backfill, State
from tests.cluster.harness import Cluster

APP = Path(__file__).parent / "apps" / "backfilled.py"
FIRES = int(os.environ.get("FENCEPOST_TEST_FIRES", "200"))
BEGIN = datetime(2026, 2, 1, tzinfo=UTC)
PATIENCE = 60.0 + FIRES / 10

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(PATIENCE + 60)]


def test_each_due_time_ends_once_although_the_leader_is_killed(url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    env = {"FENCEPOST_STORE": url, "NOTES": str(notes)}
    with Cluster(url, tmp_path, env=env) as cluster:
        cluster.start(3, APP)
        cluster.wait_for(lambda: _is_declared(cluster), 30, "the job is declared")
        end = BEGIN + timedelta(minutes=FIRES)
        asked = ["--from", BEGIN.isoformat(), "--to", end.isoformat(), "--limit", "4", "--name", "b"]
        assert command(url, "backfill", "report", *asked, "--json")["total"] == FIRES
        cluster.wait_for(lambda: _lines(notes) > FIRES / 4, PATIENCE, "a quarter has run")
        cluster.kill(cluster.leader())
        cluster.spawn(1, APP)
        cluster.wait_for(lambda: _lines(notes) >= FIRES, PATIENCE, "all have run")
        cluster.wait_for(lambda: backfill(cluster).state == "done", 60, "the backfill is done")
        assert sum(backfill(cluster).ended.values()) == backfill(cluster).added == FIRES

        everything = cluster.reader.fires(datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC))
        fires = [fire for fire in everything if fire.backfill == "b"]
        due = Counter(fire.nominal_due_at for fire in fires)
        assert due == Counter(BEGIN + timedelta(minutes=number) for number in range(FIRES))
        assert {fire.state for fire in fires} == {State.SUCCEEDED}
        crashed = {fire.key for fire in fires if fire.crashes}
        runs = Counter(line.split()[1] for line in notes.read_text().splitlines())
        assert {fire.key for fire in fires} <= runs.keys()
        twice = {key for key, number in runs.items() if number > 1}
        assert twice <= crashed, "only a run that was cut off is repeated"


def command(url: str, *words: str) -> Any:
    env = {**os.environ, "FENCEPOST_STORE": url}
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *words], env=env, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def backfill(cluster: Cluster) -> Backfill:
    [record] = cluster.reader.ask(lambda store: store.jobs(["report"]))
    found = record.backfill("b")
    assert found is not None
    return found


def _is_declared(cluster: Cluster) -> bool:
    return bool(cluster.reader.ask(lambda store: store.jobs(["report"])))


def _lines(notes: Path) -> int:
    return notes.read_text().count("\n")
