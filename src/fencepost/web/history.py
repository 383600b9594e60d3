"""Who did what: changes of jobs, and fires that were asked for or cancelled by hand, of all jobs, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from fencepost.insight.views.shapes import Shape, event_shape
from fencepost.insight.views.times import ago
from fencepost.insight.visible import VisibleStore
from fencepost.model import FireRecord
from fencepost.model.triggers import iso
from fencepost.store.base import FireQuery
from fencepost.web import models
from fencepost.web.endpoint import Call

MOST_FIRES = 1_000
"""Rows of the ledger that are read for one answer. Most of them are scheduled fires, which are not shown."""


async def history(call: Call) -> Shape:
    """Who changed, triggered, retried and cancelled what, newest first."""
    asked: models.HistoryAsked = call.query
    return await call.read(lambda store: _read(store, asked))


async def _read(store: VisibleStore, asked: models.HistoryAsked) -> Shape:
    now = (await store.roster()).now
    since = ago(asked.since, now, "since")
    changes = await store.history_since(since)
    query = FireQuery(job_id=asked.job, since=since, until=now + datetime.resolution, limit=MOST_FIRES)
    fires, next = await store.page_of_fires(query)
    items = [{"job_id": event.job_id, "fire": None, **event_shape(event)} for event in changes]
    items += [item for fire in fires for item in _actions(fire)]
    chosen = [
        item
        for item in items
        if (asked.job is None or item["job_id"] == asked.job) and (asked.by is None or item["by"] == asked.by)
    ]
    chosen.sort(key=lambda item: str(item["at"]), reverse=True)
    # Before the oldest row that was read there may be more fires triggered by hand.
    return {
        "items": chosen[: asked.limit],
        "more": len(chosen) > asked.limit or next is not None,
        "fires_since": iso(since if next is None else next[0]),
    }


def _actions(fire: FireRecord) -> Iterator[Shape]:
    if not fire.scheduled:
        kind = "retried" if fire.retry_of else "triggered"
        yield _action(fire, kind, fire.due_at, fire.by, fire.retry_of or "")
    if fire.cancelled_by:
        yield _action(fire, "cancelled", fire.finished_at or fire.due_at, fire.cancelled_by, "")


def _action(fire: FireRecord, kind: str, at: datetime, by: str, note: str) -> Shape:
    return {
        "job_id": fire.job_id,
        "fire": fire.key,
        "at": iso(at),
        "kind": kind,
        "since": iso(at),
        "until": None,
        "trigger": None,
        "note": note,
        "by": by,
    }
