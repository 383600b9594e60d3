"""Whether jobs that are only stored cost anything: ten fires a second, first alone, then beside a million others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.places import Place

from fencepost import at
from fencepost.model import Job
from fencepost.store.base import PutJob
from tests.cluster.harness import Cluster, quantile

RATE = 10
PERIOD = 10.0
BATCH = 1000
FAR_AHEAD = timedelta(days=3650)
PATIENCE = 900.0


@dataclass(frozen=True)
class Growth:
    jobs: int
    p50_ms: float
    p99_ms: float


def measure(place: Place, jobs: int, seconds: float, told: Callable[[str], None]) -> list[Growth]:
    with Cluster(
        place.url, place.folder, jobs=round(RATE * PERIOD), period=PERIOD, buffered=False
    ) as cluster:
        cluster.start(3)
        time.sleep(2)
        alone = _lateness(cluster, round(RATE * PERIOD), seconds)
        trigger = at(datetime.now(UTC) + FAR_AHEAD)
        begun = time.monotonic()
        for first in range(0, jobs, BATCH):
            puts = [
                PutJob(Job(f"other{number:07}", "quick", trigger)) for number in range(first, first + BATCH)
            ]
            cluster.reader.ask(lambda store, puts=puts: store.put_jobs(puts))  # type: ignore[misc]
            if first % 50_000 == 0:
                told(f"{first + BATCH} jobs stored after {time.monotonic() - begun:.0f} s")
        cluster.wait_for(lambda: _all_planned(cluster), PATIENCE, "all are planned")
        told(f"all {jobs} jobs stored and planned after {time.monotonic() - begun:.0f} s")
        return [alone, _lateness(cluster, jobs, seconds)]


def _all_planned(cluster: Cluster) -> bool:
    time.sleep(0.5)
    due = cluster.reader.ask(lambda store: store.due_jobs(0.0, 1))
    return not due.jobs


def _lateness(cluster: Cluster, jobs: int, seconds: float) -> Growth:
    since = time.time()
    time.sleep(seconds + 0.5)
    late = started_within(cluster, since, seconds)
    assert len(late) >= RATE * seconds * 0.95, f"only {len(late)} fires started"
    return Growth(jobs, quantile(late, 0.5) * 1000, quantile(late, 0.99) * 1000)


def started_within(cluster: Cluster, since: float, seconds: float) -> list[float]:
    """How late each fire was that was due then, and has started."""
    return [
        mark.wall - due
        for mark in cluster.marks()
        if mark.what == "start"
        and since
        <= (due := datetime.fromisoformat(mark.key.rpartition("@")[2]).timestamp())
        < since + seconds
    ]
