"""The API behind the dashboard: pictures, answers and checks. It changes nothing in the store."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from fencepost.clock import SystemClock
from fencepost.errors import UsageError
from fencepost.insight.board import BoardEntry
from fencepost.insight.doctor.checkup import checkup
from fencepost.insight.doctor.shapes import diagnosis_shape, verdict
from fencepost.insight.limits import limit_shape, read_limits
from fencepost.insight.pictures.lanes import lanes as lanes_read
from fencepost.insight.pictures.overview import overview as overview_read
from fencepost.insight.pictures.replicas import terms as terms_read
from fencepost.insight.pictures.summary import summary as summary_read
from fencepost.insight.pictures.window import LONGEST, window_of
from fencepost.insight.views.pictures import (
    lane_shape,
    lanes_shape,
    overview_shape,
    summary_shape,
    term_shape,
)
from fencepost.insight.views.previews import coming, left_out_shape
from fencepost.insight.views.shapes import calendar, schedule
from fencepost.insight.views.times import ago
from fencepost.insight.visible import UNSEEN, VisibleStore, visible
from fencepost.insight.why import answer as why_answer
from fencepost.insight.why import answer_shape
from fencepost.model.triggers import from_iso, iso
from fencepost.model.values import json_text
from fencepost.settings import duration
from fencepost.store.base import JobPage
from fencepost.web import picture_models as models
from fencepost.web.endpoint import Call, Endpoint, Shape, no_job, stored_job
from fencepost.web.prepared import Prepared

SECOND = timedelta(seconds=1)


def span_of(text: str, name: str = "span", longest: timedelta = LONGEST) -> timedelta:
    length = duration(text)
    if not timedelta() < length <= longest:
        raise UsageError(
            f"{name}={text!r} does not work; give a duration of at most {longest.days} days, such as 1h"
        )
    return length


async def overview(call: Call) -> Shape:
    """Is every fire accounted for, what needs a person, how late are fires, who leads."""
    asked: models.OverviewAsked = call.query
    web, span = call.web, span_of(asked.span)
    window_of(SystemClock().wall(), span)  # says what is wrong with it

    async def read(store: VisibleStore) -> Shape:
        found = await overview_read(web.scheduler.reader, store.whole, span, store.sight.sees_only)
        return overview_shape(found, web.scheduler.store_name)

    return await call.share(("overview", span), read)


async def lanes(call: Call) -> Prepared:
    """The timeline: a lane for each job, its fires past and planned."""
    asked: models.LanesAsked = call.query
    reader, span = call.web.scheduler.reader, span_of(asked.span)

    def wanted(entry: BoardEntry) -> bool:
        return not set(asked.state).isdisjoint(entry.states)

    async def read(store: VisibleStore) -> Prepared:
        now = (await reader.cluster()).now
        until = ago(asked.until, now, "until") if asked.until else None
        window = window_of(now, span, until, asked.columns)
        page = JobPage(asked.limit, asked.cursor or "", asked.q or "")
        found = await lanes_read(reader, store, window, page, wanted if asked.state else None)
        return await asyncio.to_thread(_prepared_lanes, found)

    return await call.share(("lanes", asked.model_dump_json()), read)


def _prepared_lanes(found: Any) -> Prepared:
    texts = [json_text(lane_shape(lane)).encode() for lane in found.items]
    return Prepared(lanes_shape(found), "items", texts).compressed()


async def fires_summary(call: Call) -> Shape:
    """How many fires had which fate, by bucket."""
    asked: models.SummaryAsked = call.query
    reader = call.web.scheduler.reader
    bucket = span_of(asked.bucket, "bucket")
    if bucket < SECOND:
        raise UsageError(f"bucket={asked.bucket!r} is too short; give at least 1s")

    async def read(store: VisibleStore) -> Shape:
        now = (await reader.cluster()).now
        since = ago(asked.since, now, "since")
        until = ago(asked.until, now, "until") if asked.until else now + datetime.resolution
        sees = store.sight.sees_only
        found = await summary_read(reader, store.whole, since, until, bucket, asked.job, sees)
        return summary_shape(found)

    return await call.share(("summary", asked.model_dump_json()), read)


async def why(call: Call) -> Shape:
    """Why a fire ran or did not."""
    id, asked = call.path["id"], call.query

    async def read(store: VisibleStore) -> Shape:
        if not await store.history(id):
            raise no_job(id)
        found = await why_answer(store, id, asked.at, call.web.scheduler.settings.retention)
        return answer_shape(found)

    return await call.read(read)


async def preview(call: Call) -> Shape:
    """The next fires of a job."""
    id, asked = call.path["id"], call.query

    async def read(store: VisibleStore) -> Shape:
        record = await stored_job(store, id)
        after = from_iso(asked.after) if asked.after else (await store.roster()).now
        trigger = calendar(record)
        known = trigger if trigger is not None and trigger.foreign is None else None
        zone = ZoneInfo(known.local_zone) if known is not None and known.local_zone else None
        items = [
            {
                "due_at": iso(step.due_at),
                "local": step.due_at.astimezone(zone).isoformat() if zone else None,
                "paused": record.paused_at(step.due_at) is not None,
                "left_out": [{**left_out_shape(left), "count": count} for left, count in step.grouped()],
            }
            for step in (coming(known, after, asked.count) if known is not None else ())
        ]
        return {
            "job_id": id,
            "schedule": schedule(record),
            "zone": zone.key if zone else None,
            "items": items,
        }

    return await call.read(read)


async def audit(call: Call) -> Shape:
    """Check every fire that was due against the recorded calendars; while it runs, how far it is."""
    asked: models.AuditAsked = call.query
    return await call.web.audits.answer(call.caller, asked.since, asked.until, asked.job)


async def doctor(call: Call) -> Shape:
    """What is right, doubtful and wrong, each with the remedy."""
    web, caller = call.web, call.caller

    async def read(store: VisibleStore) -> Shape:
        sees = store.sight.sees_only
        reading = visible(await web.scheduler.reader.recent(), sees)
        with_settings = caller.may("admin") and sees is None
        found = await checkup(
            web.scheduler, store.whole, reading, SystemClock(), sees, with_settings=with_settings
        )
        return {**diagnosis_shape(found), "verdict": verdict(found)}

    return await call.share(("doctor", caller.may("admin")), read)


async def terms(call: Call) -> Shape:
    """Who led when, newest first."""
    asked: models.TermsAsked = call.query
    reader = call.web.scheduler.reader

    async def read(store: VisibleStore) -> Shape:
        found = [
            term
            for term in reversed(await terms_read(reader, store.whole))
            if asked.before is None or term.number < asked.before
        ]
        some = found[: asked.limit]
        return {
            "now": iso((await reader.cluster()).now),
            "items": [term_shape(term) for term in some],
            "next": some[-1].number if len(found) > len(some) else None,
        }

    return await call.share(("terms", asked.model_dump_json()), read)


async def limits(call: Call) -> Shape:
    """Limits across jobs: how much of each is used, by which runs, and which jobs wait."""

    async def read(store: VisibleStore) -> Shape:
        found = await read_limits(store)
        # Who may see only some jobs sees a limit that these alone carry.
        return {"items": [limit_shape(each) for each in found if UNSEEN not in dict(each.members)]}

    return await call.share("limits", read)


_Get = partial(Endpoint, "GET")

ENDPOINTS = (
    _Get("/api/v1/overview", overview, models.OverviewModel, models.OverviewAsked, errors=(304,)),
    _Get("/api/v1/lanes", lanes, models.LanesModel, models.LanesAsked, errors=(304,)),
    _Get("/api/v1/fires/summary", fires_summary, models.SummaryModel, models.SummaryAsked, errors=(304,)),
    _Get("/api/v1/jobs/{id}/why", why, models.Why, models.WhyAsked, errors=(304, 404, 409)),
    _Get("/api/v1/jobs/{id}/preview", preview, models.Preview, models.PreviewAsked, errors=(304, 404, 409)),
    _Get("/api/v1/audit", audit, models.Audit, models.AuditAsked, errors=(304,)),
    _Get("/api/v1/doctor", doctor, models.Doctor, errors=(304,)),
    _Get("/api/v1/limits", limits, models.Limits, errors=(304,)),
    _Get("/api/v1/terms", terms, models.TermsModel, models.TermsAsked, errors=(304,)),
)
