"""All jobs: found, sorted, a strip of outcomes each, and forms that act on several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fencepost.insight.board import Entry
from fencepost.insight.pages import page_of_jobs
from fencepost.insight.pictures.strips import strips
from fencepost.insight.views.cron_words import schedule_in_words
from fencepost.insight.views.standing import described
from fencepost.model.triggers import from_iso
from fencepost.store.base import JobPage, Store
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pictures.strip import strip
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.dashboard.zones import zone_of

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

ROWS = 50
STATES = ("idle", "running", "waiting", "queued", "paused", "failing", "orphaned", "conflict", "unreadable")
SORTS = ("name", "next", "late", "failures", "last")
LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    id: str
    job: dict[str, Any]
    reasons: list[str]
    """For the states that do not say all by themselves."""
    words: str
    strip: Markup
    zone: str | None


async def show(view: View, store: Store) -> Page:
    reader = view.web.scheduler.reader
    sort, q, tag = view.choice("sort", SORTS), view.asked("q"), view.asked("tag")
    states = [state for state in view.several("state") if state in STATES]
    total: int | None = None
    if sort == "name" and not states and not tag and not view.caller.jobs:
        entries, next = await page_of_jobs(reader, store, JobPage(ROWS, view.asked("after"), q))
        more = view.same(after=next, page=None) if next else None
    else:
        found = [
            entry
            for entry in (await reader.recent()).entries
            if view.caller.sees(entry.id) and q.lower() in entry.id.lower() and fits(entry, states, tag)
        ]
        number, total = page_number(view), len(found)
        found.sort(key=lambda entry: order(entry, sort))
        entries = found[(number - 1) * ROWS : number * ROWS]
        more = view.same(page=number + 1, after=None) if total > number * ROWS else None
    now = (await reader.cluster()).now
    rows = await rows_of(reader, store, entries)
    main = rendered(
        "jobs.html",
        view,
        now,
        rows=rows,
        more=more,
        total=total,
        sort=sort,
        states=states,
        known=STATES,
        q=q,
        tag=tag,
        done=view.asked("done"),
        first=not view.asked("after") and page_number(view) == 1,
    )
    return Page("Jobs", main, "Jobs")


async def rows_of(reader: Reader, store: Store, entries: Sequence[Entry]) -> list[Row]:
    outcomes = await strips(reader, store, entries)
    return [row_of(entry, strip(outcomes.get(entry.id, ()))) for entry in entries]


def row_of(entry: Entry, picture: Markup) -> Row:
    trigger = entry.record.job.trigger if entry.record else None
    words = schedule_in_words(trigger) if entry.record else ""
    reasons = [reason for state in entry.states if (reason := reason_of(state, entry.shape))]
    return Row(entry.id, entry.shape, reasons, words, picture, zone_of(trigger))


def reason_of(state: str, job: dict[str, Any]) -> str:
    """What is to be said of a state beside its name: `no live replica knows its task`."""
    if state == "unreadable":
        return str(job["unreadable"]["why"])
    return described(state, job).removeprefix(state).lstrip(":, ")


def page_number(view: View) -> int:
    given = view.asked("page", "1")
    return max(1, int(given)) if given.isascii() and given.isdigit() and len(given) < 6 else 1


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
