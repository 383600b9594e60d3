"""What a look at the ledger costs: it follows the rows found, not the rows kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fencepost.model import State
from fencepost.store.base import FireQuery
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
    assert store._db is not None
    if not store._db.execute("select count(*) from fencepost_fires").fetchone()[0]:
        fill(store)
    yield store
    await store.close()


def fill(store: SqliteStore) -> None:
    """A second-by-second history of 100 jobs, and 5,000 fires planned ahead."""
    assert store._db is not None
    start = int(NOON.timestamp()) * 1_000_000
    row = "(?, ?, ?, 1, ?, null, null, 1, null, 1, 'a', 1, 1, 0, 1, null, ?, ?, 0, null)"
    rows: list[tuple[object, ...]] = []
    for number in range(ROWS):
        due = start + number * 1_000_000
        rows.append((f"job{number % 100}@{number}", f"job{number % 100}", due, "succeeded", due, due))
    for number in range(5_000):
        due = start + (ROWS + number) * 1_000_000
        rows.append((f"job{number % 100}@+{number}", f"job{number % 100}", due, "pending", None, None))
    store._db.execute("begin")
    store._db.executemany(f"insert into fencepost_fires values {row}", rows)
    store._db.execute("commit")


@pytest.mark.parametrize("what", LOOKS)
async def test_a_look_costs_what_it_finds(store: SqliteStore, what: str) -> None:
    """Counted in instructions of SQLite's machine. Before the ledger was read by index some of these took 300,000."""
    assert store._db is not None
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    store._db.set_progress_handler(count, 100)
    try:
        found = await store.find_fires(LOOKS[what])
    finally:
        store._db.set_progress_handler(None, 0)
    assert 100 * taken < 4_000 + 150 * len(found), f"{len(found)} fires found"
