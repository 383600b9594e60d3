"""All jobs: found, sorted, a strip of outcomes each, and forms that act on several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fencepost.insight.board import BoardEntry
from fencepost.insight.job_pages import page_of_jobs
from fencepost.insight.pictures.strips import strips
from fencepost.insight.views.cron_words import schedule_in_words
from fencepost.insight.views.standing import described
from fencepost.insight.visible import VisibleStore, visible
from fencepost.model.selection import parsed
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
SORTS = ("name", "next", "late", "failures", "last", "priority")
CHOICES = ("tag", "owner", "priority")
LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class JobRow:
    id: str
    job: dict[str, Any]
    reasons: list[str]
    """For the states that do not say all by themselves."""
    words: str
    strip: Markup
    zone: str | None


async def show(view: View, store: VisibleStore) -> Page:
    reader = view.web.scheduler.reader
    sort, q, given = view.choice("sort", SORTS), view.asked("q"), {name: view.asked(name) for name in CHOICES}
    choices = [f"{kind}:{name}" for kind, name in given.items() if name]
    for choice in choices:
        parsed(choice)
    states = [state for state in view.several("state") if state in STATES]
    total: int | None = None
    as_of: datetime | None = None
    if sort == "name" and not states and not choices and store.sight.is_whole:
        entries, next = await page_of_jobs(reader, store, JobPage(ROWS, view.asked("after"), q))
        more = view.same(after=next, page=None) if next else None
    else:
        reading = visible(await reader.recent(), store.sight.sees_only)
        as_of = reading.now
        found = [
            entry
            for entry in reading.entries
            if q.lower() in entry.id.lower() and fits(entry, states, choices)
        ]
        number, total = page_number(view), len(found)
        found.sort(key=lambda entry: order(entry, sort))
        entries = found[(number - 1) * ROWS : number * ROWS]
        more = view.same(page=number + 1, after=None) if total > number * ROWS else None
    now = (await reader.cluster()).now
    rows = await rows_of(reader, store.whole, entries)
    main = rendered(
        "jobs.html",
        view,
        now,
        as_of,
        rows=rows,
        more=more,
        total=total,
        sort=sort,
        states=states,
        known=STATES,
        q=q,
        chosen=bool(q or states or choices or sort != "name"),
        **given,
        done=view.asked("done"),
        first=not view.asked("after") and page_number(view) == 1,
    )
    return Page("Jobs", main, "Jobs")


async def rows_of(reader: Reader, store: Store, entries: Sequence[BoardEntry]) -> list[JobRow]:
    outcomes = await strips(reader, store, entries)
    return [row_of(entry, strip(outcomes.get(entry.id, ()))) for entry in entries]


def row_of(entry: BoardEntry, picture: Markup) -> JobRow:
    trigger = entry.record.job.trigger if entry.record else None
    words = schedule_in_words(trigger) if entry.record else ""
    reasons = [reason for state in entry.states if (reason := reason_of(state, entry.shape))]
    return JobRow(entry.id, entry.shape, reasons, words, picture, zone_of(trigger))


def reason_of(state: str, job: dict[str, Any]) -> str:
    """What is to be said of a state beside its name: `no live replica knows its task`."""
    if state == "unreadable":
        return str(job["unreadable"]["why"])
    return described(state, job).removeprefix(state).lstrip(":, ")


def page_number(view: View) -> int:
    given = view.asked("page", "1")
    return max(1, int(given)) if given.isascii() and given.isdigit() and len(given) < 6 else 1


def fits(entry: BoardEntry, states: Sequence[str], choices: Sequence[str]) -> bool:
    if not all(entry.fits(each) for each in choices):
        return False
    if not states:
        return True
    failing = "failing" in states and bool(entry.shape["failures_in_a_row"])
    return failing or not set(states).isdisjoint(entry.states)


def order(entry: BoardEntry, sort: str) -> tuple[Any, ...]:
    job, last = entry.shape, entry.shape["last_run"]
    if sort == "next":
        return (_moment(job["next_run_at"]), entry.id)
    if sort == "late":
        return (-(last["late_seconds"] if last else -1.0), entry.id)
    if sort == "failures":
        return (-job["failures_in_a_row"], entry.id)
    if sort == "last":
        return (-_moment(last["finished_at"]).timestamp() if last else 0.0, entry.id)
    if sort == "priority":
        return (-job["priority"], entry.id)
    return (entry.id,)


def _moment(text: str | None) -> datetime:
    return LATEST if text is None else from_iso(text)
