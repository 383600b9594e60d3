"""Counting fires in the database, where it can: a picture of an hour may be of a hundred thousand of them.

No method that every store must have. Of a store without it, those who count read the fires themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

MOST_STRETCHES = 2_000


@dataclass(frozen=True, slots=True)
class CountQuery:
    """Fires with since <= due < until, by buckets of this width counted from 1970."""

    since: datetime
    until: datetime
    width: timedelta
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A row that stands for several fires."""

    due_at: datetime
    last_due_at: datetime
    count: int
    state: str


@runtime_checkable
class CountsFires(Protocol):
    async def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        """Where a bucket begins, a state, and how many rows there are of it. Without stretches."""

    async def stretches(self, query: CountQuery) -> list[Stretch]:
        """Those that reach into the window, in no particular order; no more than `MOST_STRETCHES`."""
