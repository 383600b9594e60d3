"""Pages of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from fencepost.model import FireRecord
from fencepost.store.base import FireQuery, Store

INSTANT = datetime.resolution
BATCH = 1_000
"""Fires read in one step where only some of them are wanted."""
MOST_READ = 10_000
"""Fires read for one page."""

Cursor = tuple[datetime, int]
"""Where a page of fires begins: a due time, and how many wanted fires of that time earlier pages have had."""


async def page_of_fires(
    store: Store, query: FireQuery, skip: int = 0, wanted: Callable[[FireRecord], bool] | None = None
) -> tuple[Sequence[FireRecord], Cursor | None]:
    """`query.limit` of the fires, newest first, without the first `skip`; and where the next page begins, if there is
    one.

    `wanted`: more conditions. Fires for which they do not hold are passed over, some at a time; so the page is full,
    and the cursor is the due time of a fire that is wanted. Only where so many are passed over that the page ends
    early, it is the due time at which reading stopped."""
    until = query.until
    end = skip + query.limit
    batch = end + 1 if wanted is None else max(end + 1, BATCH)
    found: list[FireRecord] = []
    first: datetime | None = None
    passed = read = 0
    while True:
        rows = await store.find_fires(replace(query, until=until, limit=passed + batch))
        fresh = rows[passed:]
        found += fresh if wanted is None else filter(wanted, fresh)
        if len(found) > end:
            return found[skip:end], _behind(found[end - 1].due_at, found[:end])
        if len(fresh) < batch:
            return found[skip:], None
        last = rows[-1].due_at
        first, read = first or rows[0].due_at, read + len(fresh)
        if read >= MOST_READ and last < first:  # or the next page would begin where this one did
            return found[skip:], _behind(last, found)
        until, passed = last + INSTANT, sum(fire.due_at == last for fire in rows)


def _behind(moment: datetime, given: Sequence[FireRecord]) -> Cursor:
    return moment, sum(fire.due_at == moment for fire in given)
