"""What the scheduler is asked about jobs and fires, as functions of a store. They run on the reading thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from fencepost.insight.fires import checked_limit, checked_moment, find_fires, states_of
from fencepost.insight.visible import VisibleStore
from fencepost.insight.why import Answer, answer
from fencepost.model import FireRecord
from fencepost.store.base import Store


def fires_of(
    job_id: str | None,
    state: str | Iterable[str] | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    planned: bool,
) -> Callable[[Store], Coroutine[Any, Any, tuple[FireRecord, ...]]]:
    return partial(
        find_fires,
        job=job_id,
        states=states_of(state),
        since=checked_moment(since, "since"),
        until=checked_moment(until, "until"),
        limit=checked_limit(limit),
        planned=planned,
    )


def answer_of(
    job_id: str, at: datetime | str | None, retention: timedelta
) -> Callable[[Store], Coroutine[Any, Any, Answer]]:
    if isinstance(at, datetime):
        checked_moment(at, "at")
    return lambda store: answer(VisibleStore(store), job_id, at, retention)
