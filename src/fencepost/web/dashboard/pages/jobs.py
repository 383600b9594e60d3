"""All jobs: found, sorted, a strip of outcomes each, and forms that act on several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from fencepost.insight.board import Entry
from fencepost.insight.pages import page_of_jobs
from fencepost.insight.views.standing import described
from fencepost.model.triggers import from_iso
from fencepost.store.base import FireQuery, JobPage, Store
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pictures.strip import MOST, strip
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.dashboard.zones import zone_of

ROWS = 50
STATES = ("idle", "running", "waiting", "queued", "paused", "failing", "orphaned", "conflict", "unreadable")
SORTS = ("name", "next", "late", "failures", "last")
LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    id: str
    job: dict[str, Any]
    standing: str
    strip: Markup
    zone: str | None


async def show(view: View, store: Store) -> Page:
    reader = view.web.scheduler.reader
    sort, states, q = view.choice("sort", SORTS), view.several("state"), view.asked("q")
    states = [state for state in states if state in STATES]
    tag = view.asked("tag")
    if sort == "name" and not states and not tag and not view.caller.jobs:
        entries, next = await page_of_jobs(reader, store, JobPage(ROWS, view.asked("after"), q))
        counts, more = None, view.same(after=next, page=None) if next else None
        total = None
    else:
        whole = (await reader.everything()).entries
        seen = [entry for entry in whole if view.caller.sees(entry.id) and q.lower() in entry.id.lower()]
        found = sorted((entry for entry in seen if fits(entry, states, tag)), key=lambda entry: order(entry, sort))
        number = max(1, int(view.asked("page", "1"))) if view.asked("page", "1").isdigit() else 1
        entries = found[(number - 1) * ROWS : number * ROWS]
        more = view.same(page=number + 1, after=None) if len(found) > number * ROWS else None
        counts, total = None, len(found)
    now = (await reader.cluster()).now
    rows = await rows_of(store, entries)
    main = rendered(
        "jobs.html",
        view,
        now,
        rows=rows,
        more=more,
        total=total,
        counts=counts,
        sort=sort,
        states=states,
        known=STATES,
        q=q,
        tag=tag,
        done=view.asked("done"),
        first=not view.asked("after") and view.asked("page", "1") == "1",
    )
    return Page("Jobs", main, "Jobs")


async def rows_of(store: Store, entries: Sequence[Entry]) -> list[Row]:
    rows = []
    for entry in entries:
        fires = await store.find_fires(_last(entry.id)) if entry.record is not None else ()
        trigger = entry.record.job.trigger if entry.record else None
        standing = ", ".join(described(state, entry.shape) for state in entry.states)
        rows.append(Row(entry.id, entry.shape, standing, strip(fires), zone_of(trigger)))
    return rows


def _last(id: str) -> FireQuery:
    from fencepost.model import State

    states = tuple(state for state in State if state not in (State.PENDING, State.QUEUED))
    return FireQuery(job_id=id, states=states, limit=MOST)


def fits(entry: Entry, states: Sequence[str], tag: str) -> bool:
    if tag and tag not in entry.shape.get("tags", ()):
        return False
    if not states:
        return True
    failing = "failing" in states and bool(entry.shape["failures_in_a_row"])
    return failing or not set(states).isdisjoint(entry.states)


def order(entry: Entry, sort: str) -> tuple[Any, ...]:
    job, last = entry.shape, entry.shape["last_run"]
    if sort == "next":
        return (_moment(job["next_run_at"]), entry.id)
    if sort == "late":
        return (-(last["late_seconds"] if last else -1.0), entry.id)
    if sort == "failures":
        return (-job["failures_in_a_row"], entry.id)
    if sort == "last":
        return (-_moment(last["finished_at"]).timestamp() if last else 0.0, entry.id)
    return (entry.id,)


def _moment(text: str | None) -> datetime:
    return LATEST if text is None else from_iso(text)
