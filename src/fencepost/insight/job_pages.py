"""Pages of the jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fencepost.insight.board import BoardEntry, hidden, in_order
from fencepost.insight.visible import VisibleStore, visible
from fencepost.model import JobRecord
from fencepost.store.base import JobPage
from fencepost.store.rereading import readable_job

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader


async def page_of_jobs(
    reader: Reader, store: VisibleStore, page: JobPage, wanted: Callable[[BoardEntry], bool] | None = None
) -> tuple[list[BoardEntry], str | None]:
    """On the reading thread. With the cursor of the next page, if there is one.

    `wanted`: more conditions. Which jobs they hold for, or which a caller sees, is known when all have been read; that
    is shared by all who ask."""
    if wanted is None and store.sight.is_whole:
        records = await store.whole.jobs(page=replace(page, limit=page.limit + 1))
        found = await reader.board.entries(store.whole, await reader.cluster(), records)
        unread = hidden(store.whole, found, page)
        if len(found) > page.limit:  # those behind the last one belong to the pages that follow
            unread = [entry for entry in unread if entry.id < found[-1].id]
        found = in_order(found, unread)
    else:
        entries = visible(await reader.everything(), store.sight.sees_only).entries
        found = [entry for entry in entries if page.has(entry.id) and (wanted is None or wanted(entry))]
    some = found[: page.limit]
    return some, some[-1].id if len(found) > len(some) else None


async def entry_of_job(reader: Reader, store: VisibleStore, id: str) -> tuple[BoardEntry, JobRecord] | None:
    """None: there is no such job. With its record, as far as the caller sees it."""
    record = await readable_job(store.whole, id) if store.sight.sees(id) else None
    if record is None:
        return None
    cluster = await reader.cluster()
    [entry] = await reader.board.entries(store.whole, cluster, [record])
    return store.sight.entry(entry, cluster), store.sight.job(record)
