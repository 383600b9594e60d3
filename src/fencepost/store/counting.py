"""Counting and sampling fires in the database: a picture of an hour may be of a hundred thousand of them.

Not every store must do it. Of one that does not, the fires themselves are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from fencepost.model import FireRecord, State, changed
from fencepost.store.codec import micros, moment, when

MICROSECOND = timedelta(microseconds=1)
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


@dataclass(frozen=True, slots=True)
class SlimQuery:
    """Final fires with since <= due < until, newest first; without `every` also the one before them."""

    since: datetime
    until: datetime
    limit: int
    job_id: str
    every: timedelta | None = None
    """At most one for each bucket of this width, the newest. Costs follow the buckets."""
    unsuccessful: bool = False
    """Only those that did not succeed; together with `every`."""


SLIM = (
    "job_id, due_at, state, reason, refers_to, count, last_due_at, replica, attempt, started_at, finished_at"
)
"""Columns of a slim fire, beside its key."""
_BLANK = FireRecord("", "", datetime(1970, 1, 1, tzinfo=UTC))


def slim_fire(key: str, scheduled: bool, row: Sequence[Any]) -> FireRecord:
    """Of `SLIM`: without attempts, errors, arguments, results and outputs."""
    job_id, due, state, reason, refers_to, count, last_due, replica, attempt, started, finished = row
    return changed(
        _BLANK,
        key=key,
        job_id=job_id,
        due_at=moment(due),
        scheduled=scheduled,
        state=State(state),
        reason=reason,
        refers_to=refers_to,
        count=count,
        last_due_at=when(last_due),
        replica=replica,
        attempt=attempt,
        started_at=when(started),
        finished_at=when(finished),
    )


def slim_values(query: SlimQuery) -> dict[str, Any]:
    """A slim query as the named parameters of a statement."""
    return {
        "job": query.job_id,
        "since": micros(query.since),
        "until": micros(query.until),
        "limit": query.limit,
        "width": query.every // MICROSECOND if query.every else 1,
    }


class CountsFires(Protocol):
    async def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        """Where a bucket begins, a state, and how many rows there are of it. Without stretches."""

    async def stretches(self, query: CountQuery) -> list[Stretch]:
        """Those that reach into the window, in no particular order; no more than `MOST_STRETCHES`."""

    async def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        """As `slim_fire` makes them."""
