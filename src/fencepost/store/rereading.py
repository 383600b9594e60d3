"""What could not be read is read again now and then: somebody may have restored a row, or removed it."""

from __future__ import annotations

from fencepost.store.base import FireQuery, Store
from fencepost.triggers import EARLIEST

READ_AGAIN = 30.0
"""Seconds between two readings of what could not be read."""
FIRES_AGAIN = 50
"""Fires that are read again at a time."""


async def read_again(store: Store) -> None:
    """Afterwards only what still cannot be read is noted. One caller at a time for each store."""
    rows = store.unreadable.begin_check()
    fires = [row for row in rows if row.kind == "fire"][:FIRES_AGAIN]
    others = [row for row in rows if row.kind != "fire"]
    await store.jobs(sorted({row.job_id for row in others if row.job_id}))
    await store.roster()
    for row in fires:
        await store.find_fires(FireQuery(key=row.key))
    if any(row.kind == "event" for row in others):
        await store.history_since(EARLIEST)
    if any(row.kind == "target" for row in others):
        await store.jobs()
    store.unreadable.end_check([*others, *fires])
