"""The history: fires and job events as they were, and how long they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    LEADERSHIP,
    FireRecord,
    JobEvent,
)
from fencepost.store.base import (
    FireQuery,
)
from fencepost.store.rows import MOST_EVENTS, Rows


def find_fires(rows: Rows, at: Moment, query: FireQuery) -> tuple[FireRecord, ...]:
    return tuple(rows.fires.find(query))


def history(rows: Rows, at: Moment, job_id: str) -> tuple[JobEvent, ...]:
    return tuple(rows.jobs.events(job_id))


def history_since(rows: Rows, at: Moment, since: datetime) -> tuple[JobEvent, ...]:
    events = rows.jobs.events_since(since)
    found = [event for event in events if event.at >= since and event.job_id != LEADERSHIP]
    found.sort(key=lambda event: (event.at, event.job_id))
    return tuple(found[-MOST_EVENTS:])


def prune(rows: Rows, at: Moment, keep_seconds: float) -> int:
    return rows.prune_before(at.wall - timedelta(seconds=keep_seconds))


def needed_events(events: Sequence[JobEvent], before: datetime) -> list[JobEvent]:
    """What is still needed to say what was due after `before`: the definition and the pause then in force,
    and everything since."""
    definition = pause = None
    for event in events:
        if event.at >= before:
            break
        if event.kind in ("defined", "removed"):
            definition = event
        elif event.kind == "paused" and (event.until is None or event.until > before):
            pause = event
        elif event.kind != "changed":
            pause = None
    return [event for event in events if event.at >= before or event is definition or event is pause]
