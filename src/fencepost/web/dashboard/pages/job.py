"""One job: how it stands, what comes, what was, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.errors import UsageError
from fencepost.insight import why
from fencepost.insight.board import BoardEntry
from fencepost.insight.chains import ChainLink, chain_of, trace_of
from fencepost.insight.job_pages import entry_of_job
from fencepost.insight.lookup import latest_fire
from fencepost.insight.pictures.trends import Trend, heat_map, trend
from fencepost.insight.views.cron_words import schedule_in_words
from fencepost.insight.views.shapes import calendar, definition_shape, event_shape
from fencepost.insight.views.standing import described, runs_on
from fencepost.insight.views.words import length
from fencepost.insight.visible import VisibleStore
from fencepost.model import JobRecord
from fencepost.model.triggers import Trigger
from fencepost.store.base import FireQuery
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pages.fires import FireRow, row_of
from fencepost.web.dashboard.pictures.heat import calendar as calendar_picture
from fencepost.web.dashboard.pictures.histogram import histogram
from fencepost.web.dashboard.pictures.trend import trend_picture
from fencepost.web.dashboard.previews import around_change, coming
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.dashboard.zones import zone_of
from fencepost.web.endpoint import no_job

RECENT = 12
POINTS = 120
HISTORY = 50
PLAIN = ("idle", "running", "waiting", "queued")
"""States that say all there is to say."""
DONE = {
    "saved": "Saved. It holds from now on.",
    "paused": "The job is paused.",
    "resumed": "The job is resumed.",
    "skipped": "That fire will be skipped.",
    "not_skipped": "That fire will run after all.",
}


@dataclass(frozen=True)
class JobQuery:
    """Of "why did … not run?"."""

    at: str
    text: str
    verdict: str
    fire: str | None
    wrong: bool = False


async def show(view: View, store: VisibleStore) -> Page:
    id, reader = view.names["id"], view.web.scheduler.reader
    if (known_job := await entry_of_job(reader, store, id)) is None:
        raise no_job(id)
    entry, record = known_job
    now, zone = (await reader.cluster()).now, zone_of(record.job.trigger)
    tz = view.zones.of(zone)
    found, days = await trend(reader, store.whole, id, POINTS), await heat_map(reader, store.whole, id, tz)
    trigger = calendar(record)
    known = trigger if trigger is not None and trigger.foreign is None else None
    main = rendered(
        "job.html",
        view,
        now,
        job=entry.shape,
        words=schedule_in_words(record.job.trigger),
        standing=[described(state, entry.shape) for state in entry.states if state not in PLAIN],
        late=lateness_of_last(entry, found),
        zone=zone,
        answer=await asked(view, store, id),
        coming=coming(record, known, now) if known else [],
        change=around_change(record, known, now) if known else None,
        trend=found,
        trend_picture=trend_picture(found, tz, record.job.misfire_after.total_seconds())
        if found.points
        else "",
        histogram=histogram(found.histogram, record.job.misfire_after.total_seconds()),
        days=days,
        calendar=calendar_picture(days.days) if any(day.states for day in days.days) else "",
        fires=await recent(store, id, now),
        chain=await latest_trace(store, record),
        definition=definition(record, entry, trigger),
        job_args=dict(record.job.args),
        history=[event_shape(event) for event in reversed((await store.history(id))[-HISTORY:])],
        done=DONE.get(view.asked("done"), ""),
    )
    return Page(id, main, "Jobs")


def lateness_of_last(entry: BoardEntry, found: Trend) -> float | None:
    """Of its last run, as on the page of the fire: by the first attempt. The job's record knows only the last one."""
    last = entry.shape["last_run"]
    if last is None:
        return None
    return next((point.late_seconds for point in found.points if point.key == last["key"]), None)


async def recent(store: VisibleStore, id: str, now: datetime) -> list[FireRow]:
    query = FireQuery(job_id=id, until=now + datetime.resolution, limit=RECENT)
    return [row_of(fire, now) for fire in await store.find_fires(query)]


async def latest_trace(store: VisibleStore, record: JobRecord) -> list[ChainLink]:
    """The job's place in its chain, with the fires of the latest due time that it has one for."""
    fire = await latest_fire(store, record.id)
    trace = await trace_of(store, record, fire) if fire is not None else []
    return trace or await chain_of(store, record)


async def asked(view: View, store: VisibleStore, id: str) -> JobQuery | None:
    at = view.asked("at")
    if not at:
        return None
    try:
        found = await why.answer(store, id, at, view.web.scheduler.settings.retention)
    except UsageError as error:
        return JobQuery(at, str(error), "", None, wrong=True)
    return JobQuery(at, str(found), found.verdict, found.fire.key if found.fire else None)


def definition(record: JobRecord, entry: BoardEntry, trigger: Trigger | None) -> list[tuple[str, Any]]:
    """Facts about the job, in words."""
    job, shape = record.job, definition_shape(record)
    origin = shape["origin"]["told"] if shape["origin"] else None
    facts: list[tuple[str, Any]] = [
        ("task", job.target),
        ("schedule", trigger.describe() if trigger is not None else shape["schedule"] or "when triggered"),
        ("jitter", f"up to {length(job.jitter)} later, by chance" if job.jitter else None),
        ("if one still runs", f"overlap: {job.overlap}"),
        ("priority", job.priority or None),
        ("limits", ", ".join(map(str, job.limits)) or None),
        ("if it is late", f"misfire: {job.misfire}, after {job.misfire_after.total_seconds():g} s"),
        ("if it fails", _retry(shape["retry"])),
        ("time limit", f"{job.timeout.total_seconds():g} s" if job.timeout else "none"),
        (
            "after a crash",
            f"{job.after_crash}" + (f", {job.crash_attempts} attempts" if job.after_crash == "rerun" else ""),
        ),
        ("runs on", runs_on(job)),
        *((name, value) for name in ("owner", "description") if (value := shape[name])),
        ("made by", "code" if record.source == "code" else "hand, over the API"),
        ("origin", origin),
        ("revision", record.revision),
        ("last token", record.token),
        ("fingerprint", record.fingerprint),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _retry(retry: dict[str, Any] | None) -> str:
    if not retry:
        return "no retry"
    first, cap = retry.get("first"), retry.get("cap")
    wait = f", the first after {first:g} s, then longer, at most {cap:g} s" if first and cap else ""
    return f"{retry.get('attempts', '?')} attempts{wait}"
