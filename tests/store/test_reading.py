"""What a look costs: it follows the rows found, not the rows kept, and no writer waits for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost import every
from fencepost.model import Job, State
from fencepost.store.base import FireQuery, JobPage, PutJob
from fencepost.store.sql import load as sql_load
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import NOON, HandClock

ROWS = 20_000
LIVE = tuple(state for state in State if not state.final)
FINAL = tuple(state for state in State if state.final)
SECOND = timedelta(seconds=1)
END = NOON + ROWS * SECOND

LOOKS = {
    "what fell due lately": FireQuery(since=END - 5 * SECOND, until=END, limit=500),
    "what is not final": FireQuery(states=LIVE, until=END, limit=500),
    "what is active": FireQuery(states=(State.RUNNING, State.WAITING, State.QUEUED), limit=500),
    "what failed": FireQuery(states=(State.FAILED,), until=END, limit=100),
    "the newest": FireQuery(until=END, limit=100),
    "the newest outcomes": FireQuery(states=FINAL, limit=100),
    "the newest of a job": FireQuery(job_id="job7", until=END, limit=100),
    "a job's last hour": FireQuery(job_id="job7", since=END - 100 * SECOND, limit=100),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "fencepost.db"


@pytest.fixture
async def store(database: Path):
    store = SqliteStore(database, clock=HandClock(END))
    await store.open()
    assert store._connection.db is not None
    if not store._connection.db.execute("select count(*) from fencepost_fires").fetchone()[0]:
        fill(store)
    yield store
    await store.close()


def fill(store: SqliteStore) -> None:
    """A second-by-second history of 100 jobs, and 5,000 fires planned ahead."""
    assert store._connection.db is not None
    start = int(NOON.timestamp()) * 1_000_000
    row = "(?, ?, ?, 1, ?, null, null, 1, null, 1, 'a', 1, 1, 0, 1, null, ?, ?, 0, null)"
    rows: list[tuple[object, ...]] = []
    for number in range(ROWS):
        due = start + number * 1_000_000
        rows.append((f"job{number % 100}@{number}", f"job{number % 100}", due, "succeeded", due, due))
    for number in range(5_000):
        due = start + (ROWS + number) * 1_000_000
        rows.append((f"job{number % 100}@+{number}", f"job{number % 100}", due, "pending", None, None))
    store._connection.db.execute("begin")
    store._connection.db.executemany(f"insert into fencepost_fires values {row}", rows)
    store._connection.db.execute("commit")


@pytest.mark.parametrize("what", LOOKS)
async def test_a_look_costs_what_it_finds(store: SqliteStore, what: str) -> None:
    """Counted in instructions of SQLite's machine. Before the ledger was read by index some of these took 300,000."""
    assert store._connection.db is not None
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    store._connection.db.set_progress_handler(count, 100)
    try:
        found = await store.find_fires(LOOKS[what])
    finally:
        store._connection.db.set_progress_handler(None, 0)
    assert 100 * taken < 4_000 + 150 * len(found), f"{len(found)} fires found"


async def test_no_writer_waits_while_a_reader_looks_at_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without WAL a commit needs all readers gone. Before, they stayed until the last row had become an object."""
    monkeypatch.setattr("fencepost.store.sqlite.connection.wal_is_sound", lambda version: False)
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    await store.put_jobs([PutJob(Job(f"job{number}", "task", every(hours=1))) for number in range(3)])
    reading = store.for_reading()
    await reading.open()
    fill_one(path)
    written = 0

    def writing(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def look(row: Any) -> Any:
            nonlocal written
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as db:
                db.execute("update fencepost_meta set value = value")
            written += 1
            return real(row)

        return look

    for name in ("job_of", "fire_of"):
        monkeypatch.setattr(sql_load, name, writing(getattr(sql_load, name)))
    assert len(await reading.jobs(page=JobPage(10))) == 3
    assert len(await reading.find_fires(FireQuery(limit=10))) == 1
    assert written == 4
    await reading.close()
    await store.close()


def fill_one(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        due = int(NOON.timestamp()) * 1_000_000
        row = "('job1@1', 'job1', ?, 1, 'succeeded', null, null, 1, null, 1, 'a', 1, 1, 0, 1, null, ?, ?, 0, null)"
        db.execute(f"insert into fencepost_fires values {row}", (due, due, due))
