"""Pages of what is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fencepost.insight.board import Entry, hidden, in_order
from fencepost.store.base import JobPage, Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader


async def page_of_jobs(
    reader: Reader, store: Store, page: JobPage, wanted: Callable[[Entry], bool] | None = None
) -> tuple[list[Entry], str | None]:
    """On the reading thread. With the cursor of the next page, if there is one.

    `wanted`: more conditions. Which jobs they hold for is known when all have been read; that is shared by all who
    ask."""
    if wanted is None:
        records = await store.jobs(page=replace(page, limit=page.limit + 1))
        found = await reader.board.entries(store, await reader.cluster(), records)
        unread = hidden(store, found, page)
        if len(found) > page.limit:  # those behind the last one belong to the pages that follow
            unread = [entry for entry in unread if entry.id < found[-1].id]
        found = in_order(found, unread)
    else:
        entries = (await reader.everything()).entries
        found = [entry for entry in entries if page.has(entry.id) and wanted(entry)]
    some = found[: page.limit]
    return some, some[-1].id if len(found) > len(some) else None
