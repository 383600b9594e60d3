"""What the walk's store holds before its replicas start: more than an hour of a ledger, and rows that are damaged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fencepost.model.triggers import every
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import HandClock, Harness
from tests.store.unreadable import foreign
from tests.web.test_unreadable import damage

STEP = timedelta(minutes=5)
STEPS = 14
"""A task that no replica has known for an hour is given up."""
KNOWN = "ping"
"""A task that the replicas of the walk know; so they decide what is due of its jobs when they start."""
UNKNOWN = "forgotten"


def write_past(path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:  # on this one Playwright's loop may be running
        thread.submit(lambda: asyncio.run(_write_ledger(path))).result()
    damage(path, "torn")
    _move_to_mars(path, "martian")


async def _write_ledger(path: Path) -> None:
    clock = HandClock(datetime.now(UTC) - STEPS * STEP)
    store = SqliteStore(path, clock=clock)
    await store.open()
    try:
        await _lead(Harness.with_clock(store, clock))
    finally:
        await store.close()


async def _lead(harness: Harness) -> None:
    """A replica leads, and runs nothing."""
    term = await harness.elect("earlier", KNOWN)
    await harness.define("strict", every(minutes=10), target=KNOWN, misfire="skip")
    await harness.define("patient", every(minutes=10), target=KNOWN, misfire="latest")
    await harness.define("forsaken", every(minutes=10), target=UNKNOWN)
    for id in ("torn", "martian"):
        await harness.define(id, every(hours=24), target=KNOWN)
    await harness.define("withdrawn", target=KNOWN)
    await harness.trigger("withdrawn")
    await harness.remove("withdrawn")
    for _ in range(STEPS):
        await harness.store.sweep("earlier", term, ())
        await harness.plan()
        await harness.advance(STEP.total_seconds())
    await harness.store.sweep("earlier", term, ())
    await harness.store.leave("earlier")


def _move_to_mars(path: Path, id: str) -> None:
    """Its schedule names a time zone that no host knows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        row = db.execute("select definition, rest from fencepost_jobs where id = ?", [id]).fetchone()
        assert all(json.loads(text) for text in row)
        texts = [foreign(text, "zone") for text in row]
        db.execute("update fencepost_jobs set definition = ?, rest = ? where id = ?", [*texts, id])
