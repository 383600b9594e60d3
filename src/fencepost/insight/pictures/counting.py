"""How many fires ended in which state, by bucket: read one by one, for stores that cannot count, and for callers that
may not see all jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.insight.pages import BATCH, INSTANT
from fencepost.insight.pictures.window import floor
from fencepost.insight.visible import Sees
from fencepost.model import FireRecord
from fencepost.store.base import FireQuery, Store
from fencepost.store.counting import Stretch

MOST_COUNTED = 5_000
"""Rows of the ledger that are counted for one answer."""


@dataclass(frozen=True)
class Counted:
    by_bucket: dict[datetime, Counter[str]]
    """By the begin of a bucket: how many fires in which state."""
    since: datetime
    """From here on all are counted."""

    @property
    def total(self) -> Counter[str]:
        return sum(self.by_bucket.values(), Counter())


async def read_and_counted(
    store: Store,
    since: datetime,
    until: datetime,
    width: timedelta,
    job_id: str | None = None,
    sees: Sees | None = None,
    most: int = MOST_COUNTED,
) -> Counted:
    """The newest first, and no more rows than `most`."""
    found: dict[datetime, Counter[str]] = {}
    edge, read = until, 0
    while read < most:
        query = FireQuery(job_id=job_id, since=since, until=edge, limit=BATCH)
        rows = await store.find_fires(query)
        whole = len(rows) < BATCH
        # The page may end among fires that were due together: those are counted with the next one.
        last = since if whole else max(rows[-1].due_at, since)
        page = rows if whole else [row for row in rows if row.due_at > last]
        if not page and rows:
            page, last = rows, last - INSTANT
        for fire in page:
            if sees is None or sees(fire.job_id):
                _count(found, fire, since, until, width)
        read += len(rows)
        if whole or last < since:
            return Counted(found, since)
        edge = last + INSTANT
    return Counted(found, edge)


def _count(
    found: dict[datetime, Counter[str]], fire: FireRecord, since: datetime, until: datetime, width: timedelta
) -> None:
    for at, number in spread(fire, since, until, width):
        found.setdefault(at, Counter())[fire.state.value] += number


def spread(
    fire: FireRecord | Stretch, since: datetime, until: datetime, width: timedelta
) -> Iterator[tuple[datetime, int]]:
    """A row may stand for many fires: how many of them are in which bucket, as if they were evenly apart."""
    last_due = fire.last_due_at or fire.due_at
    length = last_due - fire.due_at
    if fire.count == 1 or not length:
        if since <= fire.due_at < until:
            yield floor(fire.due_at, width), fire.count
        return

    def before(moment: datetime) -> int:
        """Of its fires, those due before that moment."""
        if moment <= fire.due_at:
            return 0
        if moment > last_due:
            return fire.count
        return 1 + int((fire.count - 1) * ((moment - INSTANT - fire.due_at) / length))

    at = floor(max(since, fire.due_at), width)
    end = min(until, last_due + INSTANT)
    while at < end:
        if number := before(min(at + width, until)) - before(max(at, since)):
            yield at, number
        at += width
