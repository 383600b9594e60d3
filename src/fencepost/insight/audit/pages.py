"""The ledger in the order of time, in pages. Each page is one short read, so replicas do not wait for an audit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from itertools import pairwise

from fencepost.model import FireRecord
from fencepost.model.periods import INSTANT
from fencepost.model.triggers import EARLIEST
from fencepost.store.base import FireQuery, Store

PAGE = 2_000

Progress = Callable[[str, int, int | None], None]
"""What is being done, rows done, rows in all if known."""
Rest = Callable[[], Awaitable[None]]
"""Awaited after each step."""


async def oldest_first(
    store: Store, since: datetime, until: datetime, progress: Progress, rest: Rest
) -> AsyncIterator[Sequence[FireRecord]]:
    """Rows with since <= due < until, page by page, each sorted by due time.

    A store answers the newest first, and calendars only run forward. So the ledger is gone through twice: once
    back in time, to learn where the pages end, then forth.
    """
    edges, rows = [until], 0
    while edges[-1] > since:
        page, edge = await page_before(store, edges[-1])
        edges.append(max(edge, since))
        rows += sum(fire.due_at >= since for fire in page)
        progress("reading the ledger", rows, None)
        await rest()
    done = 0
    for end, start in reversed(list(pairwise(edges))):
        page = await _between(store, start, end)
        yield page
        done += len(page)
        progress("comparing with the calendars", done, max(done, rows))
        await rest()


async def page_before(store: Store, until: datetime) -> tuple[Sequence[FireRecord], datetime]:
    """The newest rows due before `until`, and an edge: all rows due at the edge or later are among them.

    The query has only `until` and `limit`, which every store answers from its index of due times. With another
    condition, on the job or on the end of a row, the store might have to scan all older rows to fill a page.
    """
    limit = PAGE
    while True:
        page = await store.find_fires(FireQuery(until=until, limit=limit))
        if len(page) < limit:
            return page, EARLIEST
        # The page may end among fires that were due together: they belong to the next one, all of them.
        oldest = page[-1].due_at
        if whole := [fire for fire in page if fire.due_at > oldest]:
            return whole, oldest + INSTANT
        limit *= 2  # more were due together than fit on a page


async def _between(store: Store, since: datetime, until: datetime) -> list[FireRecord]:
    """One page again. Rows may have been joined or planned meanwhile, so it need not be as long as it was."""
    found: list[FireRecord] = []
    while until > since:
        page, until = await page_before(store, until)
        found += [fire for fire in page if fire.due_at >= since]
    return sorted(found, key=lambda fire: (fire.due_at, fire.key))
