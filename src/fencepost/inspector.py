"""The inspector: tells of rows that cannot be read, once each, and sees whether they can be by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.service import Service
from fencepost.store.base import FireQuery
from fencepost.store.unreadable import Unreadable
from fencepost.triggers import EARLIEST

if TYPE_CHECKING:
    from fencepost.replica import Replica

Told = dict[tuple[str, str], Unreadable]

READ_AGAIN = 30.0
"""Seconds between two readings of what could not be read."""
FIRES_AGAIN = 50
"""Fires that are read again at a time."""


class Inspector(Service):
    shortest = 0.3

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._told: Told = {}
        self._read_at: float | None = None

    async def step(self) -> float | None:
        registry, now = self.replica.store.unreadable, self.replica.clock.steady()
        if self._read_at is None:
            self._read_at = now
        if registry and now - self._read_at >= READ_AGAIN:
            self._read_at = now
            await self._read_again()
        self._tell()
        return READ_AGAIN if registry else None  # the heart wakes it when there is something to tell

    @property
    def has_news(self) -> bool:
        return bool(self.replica.store.unreadable) or bool(self._told)

    async def _read_again(self) -> None:
        """Somebody may have restored a row, or removed it. What can be read once more is claimed and planned again."""
        store = self.replica.store
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

    def _tell(self) -> None:
        found: Told = {(row.kind, row.key): row for row in self.replica.store.unreadable.rows}
        for where, row in found.items():
            if where not in self._told:
                self.replica.tell("row.unreadable", detail=f"{row.told}; {row.remedy}")
        for where, row in self._told.items():
            if where not in found:
                self.replica.tell("row.readable", detail=f"{row.kind} {row.key}")
        self._told = found
