"""Reading where a row may be unreadable; and again, now and then: a person may have restored it, or removed it."""

from __future__ import annotations

from fencepost.model import JobRecord
from fencepost.model.triggers import EARLIEST
from fencepost.store.base import FireQuery, Readable, Store
from fencepost.store.unreadable import RowUnreadable

READ_AGAIN = 30.0
"""Seconds between two readings of what could not be read."""
FIRES_AGAIN = 50
"""Fires that are read again at a time."""


async def readable_job(store: Readable, job_id: str) -> JobRecord | None:
    """None: there is none. Raises if there is one that cannot be read."""
    found = await store.jobs([job_id])
    if not found and (row := store.unreadable.holding(job_id)):
        raise RowUnreadable(f"{row.summary}; {row.remedy}")
    return found[0] if found else None


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
