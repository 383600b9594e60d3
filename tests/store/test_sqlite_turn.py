"""Who writes waits in line for it, who reads does not, and what gathers in line shares a transaction."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from fencepost.errors import StoreUnavailable
from fencepost.store import turn
from fencepost.store.base import NewFire
from fencepost.store.sqlite import SqliteStore
from fencepost.store.turn import Turn
from fencepost.testing.conformance import HandClock, Harness
from tests.unit.apps.waiting import eventually


@pytest.fixture
async def harness(tmp_path):
    clock = HandClock()
    store = SqliteStore(tmp_path / "app.db", namespace="turn", clock=clock)
    await store.open()
    harness = Harness.with_clock(store, clock)
    await harness.join("a")
    await harness.define("job")
    yield harness
    await store.close()


@pytest.fixture
def elsewhere(tmp_path):
    other = Turn(tmp_path / "app.db-fencepost.turn")
    yield other
    other.let_go()


async def test_who_writes_waits_and_who_reads_does_not(harness, elsewhere, monkeypatch):
    monkeypatch.setattr(turn, "PATIENCE", 0.05)
    with elsewhere.taken():
        assert [record.id for record in await harness.store.jobs()] == ["job"]
        with pytest.raises(StoreUnavailable, match="held the lock .* stopped"):
            await harness.trigger("job")
    assert (await harness.trigger("job")).outcome == "added"


async def test_what_gathers_in_line_shares_a_transaction(harness, elsewhere):
    store = harness.store
    with elsewhere.taken():
        first = asyncio.create_task(harness.trigger("job", "first"))
        await eventually(lambda: store._turn._queue is not None and store._turn._queue._stands)
        others = [asyncio.create_task(harness.trigger("job", f"n{n}")) for n in range(5)]
        await eventually(lambda: len(store._queue._waiting) == 5)
        told: list[str] = []
        store._connection.db.set_trace_callback(told.append)
    outcomes = [(await task).outcome for task in [first, *others]]
    assert outcomes == ["added"] * 6
    assert [line for line in told if line.lower() == "commit"] == ["commit"]


async def test_the_folder_of_beacons_may_be_gone(harness, tmp_path):
    shutil.rmtree(tmp_path / "app.db-fencepost")
    assert (await harness.store.add_fire(NewFire("job!by-hand", "job"))).outcome == "added"


async def test_a_line_that_cannot_be_joined_makes_it_unavailable(harness, tmp_path):
    line = tmp_path / "app.db-fencepost.turn"
    line.unlink()
    line.mkdir()
    with pytest.raises(StoreUnavailable, match=r"app.db-fencepost.turn: Is a directory"):
        await harness.trigger("job")
    line.rmdir()
    assert (await harness.trigger("job")).outcome == "added"
