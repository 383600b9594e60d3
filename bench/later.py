"""Whether fires that were asked for later cost anything: ten fires a second, first alone, then beside a million."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.growth import PERIOD, RATE, Growth, _lateness
from bench.places import Place
from bench.readers import given_priority

from fencepost.clock import Moment
from fencepost.model import FireRecord, Job, manual_key
from fencepost.store.base import PutJob
from fencepost.store.rows import Rows
from fencepost.store.rules.ledger import keep, stored_job
from tests.cluster.harness import Cluster

STORES = ("sqlite", "valkey", "postgres")
BATCH = 1000
A_YEAR = 365 * 24 * 3600
OTHER = "mail"


def measure(place: Place, number: int, seconds: float, told: Callable[[str], None]) -> list[Growth]:
    with Cluster(
        place.url, place.folder, jobs=round(RATE * PERIOD), period=PERIOD, buffered=False
    ) as cluster:
        if place.server is not None:
            given_priority(place.server.pid)
        for replica in cluster.start(3):
            for thread in Path(f"/proc/{replica.pid}/task").iterdir():
                given_priority(int(thread.name))
        time.sleep(2)
        alone = _lateness(cluster, 0, seconds)
        cluster.reader.ask(lambda store: store.put_jobs([PutJob(Job(OTHER, "quick"))]))
        begun = time.monotonic()
        for first in range(0, number, BATCH):
            names = [f"n{each}" for each in range(first, first + BATCH)]
            cluster.reader.ask(lambda store, names=names: _add(store, names))  # type: ignore[misc]
            if first % 100_000 == 0:
                told(f"{first + BATCH} fires added after {time.monotonic() - begun:.0f} s")
        told(f"all {number} added after {time.monotonic() - begun:.0f} s")
        time.sleep(10)
        return [alone, _lateness(cluster, number, seconds)]


async def _add(store: Any, names: Sequence[str]) -> None:
    """A thousand in one step: one by one it would take an hour."""
    await store._write(add_many, names)


def add_many(rows: Rows, at: Moment, names: Sequence[str]) -> None:
    rows.preload(at.wall, jobs=[OTHER])
    chance = random.Random(names[0])
    for name in names:
        due_at = at.wall + timedelta(seconds=chance.uniform(3600, A_YEAR))
        rows.fires.put(FireRecord(manual_key(OTHER, name), OTHER, due_at, scheduled=False))
    keep(rows, at, stored_job(rows, OTHER))
