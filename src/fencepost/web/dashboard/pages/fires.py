"""The ledger: every fire, with what became of it and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.errors import UsageError
from fencepost.insight.pages import INSTANT
from fencepost.insight.views.shapes import fire_shape
from fencepost.insight.views.times import ago
from fencepost.insight.visible import VisibleStore
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.paging import cursor_of, from_cursor
from fencepost.web.problems import Problem

ROWS = 50
STATES = tuple(state.value for state in State)


@dataclass(frozen=True)
class FireRow:
    fire: dict[str, Any]
    took: float | None
    when: datetime


@dataclass(frozen=True)
class FireWindow:
    since: datetime | None
    until: datetime | None
    skip: int
    wrong: str = ""


async def show(view: View, store: VisibleStore) -> Page:
    cluster = await view.web.scheduler.reader.cluster()
    states = [State(state) for state in view.several("state") if state in STATES]
    job, replica = view.asked("job"), view.asked("replica")
    window = window_of(view, cluster.now, states)
    query = FireQuery(
        job_id=job or None,
        states=tuple(states),
        since=window.since,
        until=window.until,
        limit=ROWS,
    )

    def wanted(fire: FireRecord) -> bool:
        return fire.replica == replica

    found, next = await store.page_of_fires(query, window.skip, wanted if replica else None)
    main = rendered(
        "fires.html",
        view,
        cluster.now,
        rows=[row_of(fire, cluster.now) for fire in found],
        next=view.same(cursor=cursor_of(next)) if next else None,
        states=[state.value for state in states],
        known=STATES,
        wrong=window.wrong,
        asked={name: view.asked(name) for name in ("job", "since", "until", "replica")},
        planned=view.asked("planned") == "1",
        first=not view.asked("cursor"),
    )
    return Page("Fires", main, "Fires", 422 if window.wrong else 200)


def window_of(view: View, now: datetime, states: list[State]) -> FireWindow:
    """What is asked for, or what is wrong with it."""
    try:
        since = ago(view.asked("since"), now, "since") if view.asked("since") else None
        if view.asked("cursor"):
            until, skip = from_cursor(view.asked("cursor"))
            return FireWindow(since, until, skip)
        if view.asked("until"):
            return FireWindow(since, ago(view.asked("until"), now, "until"), 0)
    except (UsageError, Problem) as error:
        return FireWindow(None, now + INSTANT, 0, str(error))
    ahead = view.asked("planned") == "1" or states == [State.PENDING]
    return FireWindow(since, None if ahead else now + INSTANT, 0)


def row_of(fire: FireRecord, now: datetime) -> FireRow:
    took = None
    if fire.started_at is not None:
        took = max(0.0, ((fire.finished_at or now) - fire.started_at).total_seconds())
    return FireRow(fire_shape(fire), took, fire.finished_at or fire.started_at or fire.due_at)
