"""Limits and chains in real processes on every store, while the leader is killed with `kill -9`.

`FENCEPOST_TEST_SECONDS=120` makes it long.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost.model import FireRecord, State
from tests.cluster.harness import Cluster

APP = Path(__file__).parent / "apps" / "limited.py"
SECONDS = float(os.environ.get("FENCEPOST_TEST_SECONDS", "12"))
SIZE = 2
IDLE = 3.0
"""Seconds for which a place may be free beside a fire that waits: on a machine with other work."""
AFTERMATH = timedelta(seconds=8)
"""After the kill, in which the places of the dead replica are still its own."""

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]


def test_a_limit_holds_and_a_chain_runs_once_although_the_leader_is_killed(url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    with Cluster(url, tmp_path, env={"FENCEPOST_STORE": url, "NOTES": str(notes)}) as cluster:
        cluster.start(3, APP)
        cluster.wait_for(lambda: len(succeeded(cluster)) >= 6, 60, "jobs run")
        killed_at = cluster.roster().now
        cluster.kill(cluster.leader())
        cluster.spawn(1, APP)
        time.sleep(SECONDS)
        fires = everything(cluster)
    limited = [fire for fire in fires if fire.job_id.startswith("job") and fire.attempts]
    assert len(limited) > 10
    assert max(running for _, running, _ in moments(limited)) == SIZE
    assert longest_idle(limited, killed_at) < IDLE
    check_chain(fires, Counter(notes.read_text().split()))


def everything(cluster: Cluster) -> list[FireRecord]:
    return cluster.reader.fires(datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC))


def succeeded(cluster: Cluster) -> list[FireRecord]:
    return [fire for fire in everything(cluster) if fire.state is State.SUCCEEDED]


def moments(fires: Sequence[FireRecord]) -> Iterator[tuple[datetime, int, int]]:
    """By the attempts on record: whenever something changes, how many run from then on, and how many wait. An end and a
    start at one moment are one place handed on."""
    edges: list[tuple[datetime, int, int]] = []
    for fire in fires:
        edges += [(fire.due_at, 0, 1), (fire.attempts[0].started_at, 0, -1)]
        edges += [(each.started_at, 1, 0) for each in fire.attempts]
        edges += [(each.finished_at, -1, 0) for each in fire.attempts]
    running = waiting = 0
    for at, run, wait in sorted(edges):
        running, waiting = running + run, waiting + wait
        yield at, running, waiting


def idle(fires: Sequence[FireRecord]) -> Iterator[tuple[datetime, datetime]]:
    """When a place was free beside a fire that was due, and later ran."""
    since = None
    for at, running, waiting in moments(fires):
        if running < SIZE and waiting:
            since = since or at
        elif since is not None:
            yield since, at
            since = None


def longest_idle(fires: Sequence[FireRecord], killed_at: datetime) -> float:
    """Apart from the aftermath of the kill."""
    spans = [(begin, end) for begin, end in idle(fires) if end < killed_at or begin > killed_at + AFTERMATH]
    return max((end - begin).total_seconds() for begin, end in spans)


def check_chain(fires: Sequence[FireRecord], bodies: Counter[str]) -> None:
    rows = {fire.key: fire for fire in fires if fire.count == 1}
    done = [fire for fire in rows.values() if fire.job_id == "extract" and fire.state is State.SUCCEEDED]
    assert len(done) > SECONDS / 4
    for fire in done:
        child = rows["load" + fire.key[len("extract") :]]
        assert child.due_at == fire.due_at
        if child.state is State.SUCCEEDED:
            assert "report" + fire.key[len("extract") :] in rows
    assert max(bodies.values()) == 1, "no body of a chain has run twice"
