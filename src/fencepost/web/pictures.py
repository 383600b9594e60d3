"""The API behind the dashboard: pictures, answers and checks. It changes nothing in the store."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from fencepost.clock import SystemClock
from fencepost.errors import UsageError
from fencepost.insight.board import Entry
from fencepost.insight.doctor.checkup import checkup
from fencepost.insight.doctor.shapes import diagnosis_shape, verdict
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
from fencepost.insight.visible import Sees
from fencepost.insight.why import answer as why_answer
from fencepost.insight.why import answer_shape
from fencepost.model.triggers import from_iso, iso
from fencepost.model.values import json_text
from fencepost.settings import duration
from fencepost.store.base import JobPage, Store
from fencepost.store.rereading import readable_job
from fencepost.web import picture_models as models
from fencepost.web.access import Caller
from fencepost.web.endpoint import Call, Endpoint, Shape, no_job
from fencepost.web.prepared import Prepared
from fencepost.web.visible import seen

SECOND = timedelta(seconds=1)


def sees_of(caller: Caller) -> Sees | None:
    """None: all jobs."""
    return caller.sees if caller.jobs else None


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

    async def read(store: Store) -> Shape:
        found = await overview_read(web.scheduler.reader, store, span, sees_of(call.caller))
        return overview_shape(found, web.scheduler.store_name)

    return await web.desk.share(("overview", call.caller.jobs, span), read)


async def lanes(call: Call) -> Prepared:
    """The timeline: a lane for each job, its fires past and planned."""
    asked: models.LanesAsked = call.query
    reader, caller, span = call.web.scheduler.reader, call.caller, span_of(asked.span)

    def wanted(entry: Entry) -> bool:
        fits = not asked.state or not set(asked.state).isdisjoint(entry.states)
        return fits and caller.sees(entry.id)

    async def read(store: Store) -> Prepared:
        now = (await reader.cluster()).now
        until = ago(asked.until, now, "until") if asked.until else None
        window = window_of(now, span, until, asked.columns)
        page = JobPage(asked.limit, asked.cursor or "", asked.q or "")
        chosen = wanted if asked.state or caller.jobs else None
        found = await lanes_read(reader, store, window, page, chosen)
        return await asyncio.to_thread(_prepared_lanes, found)

    return await call.web.desk.share(("lanes", caller.jobs, asked.model_dump_json()), read)


def _prepared_lanes(found: Any) -> Prepared:
    texts = [json_text(lane_shape(lane)).encode() for lane in found.items]
    return Prepared(lanes_shape(found), "items", texts).compressed()


async def fires_summary(call: Call) -> Shape:
    """How many fires had which fate, by bucket."""
    asked: models.SummaryAsked = call.query
    reader, caller = call.web.scheduler.reader, call.caller
    bucket = span_of(asked.bucket, "bucket")
    if bucket < SECOND:
        raise UsageError(f"bucket={asked.bucket!r} is too short; give at least 1s")

    async def read(store: Store) -> Shape:
        now = (await reader.cluster()).now
        since = ago(asked.since, now, "since")
        until = ago(asked.until, now, "until") if asked.until else now + datetime.resolution
        found = await summary_read(reader, store, since, until, bucket, asked.job, sees_of(caller))
        return summary_shape(found)

    return await call.web.desk.share(("summary", caller.jobs, asked.model_dump_json()), read)


async def why(call: Call) -> Shape:
    """Why a fire ran or did not."""
    id, asked = call.path["id"], call.query

    async def read(store: Store) -> Shape:
        if not await store.history(id):
            raise no_job(id)
        found = await why_answer(store, id, asked.at, call.web.scheduler.settings.retention)
        return answer_shape(found)

    return await call.web.desk.look(read)


async def preview(call: Call) -> Shape:
    """The next fires of a job."""
    id, asked = call.path["id"], call.query

    async def read(store: Store) -> Shape:
        record = await readable_job(store, id)
        if record is None:
            raise no_job(id)
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

    return await call.web.desk.look(read)


async def audit(call: Call) -> Shape:
    """Check every fire that was due against the recorded calendars; while it runs, how far it is."""
    asked: models.AuditAsked = call.query
    return await call.web.audits.answer(call.caller, asked.since, asked.until, asked.job)


async def doctor(call: Call) -> Shape:
    """What is right, doubtful and wrong, each with the remedy."""
    web, caller = call.web, call.caller

    async def read(store: Store) -> Shape:
        reading = seen(await web.scheduler.reader.recent(), caller)
        with_settings = caller.may("admin") and not caller.jobs
        found = await checkup(
            web.scheduler, store, reading, SystemClock(), sees_of(caller), with_settings=with_settings
        )
        return {**diagnosis_shape(found), "verdict": verdict(found)}

    return await web.desk.share(("doctor", caller.jobs, caller.may("admin")), read)


async def terms(call: Call) -> Shape:
    """Who led when, newest first."""
    asked: models.TermsAsked = call.query
    reader = call.web.scheduler.reader

    async def read(store: Store) -> Shape:
        found = [
            term
            for term in reversed(await terms_read(reader, store))
            if asked.before is None or term.number < asked.before
        ]
        some = found[: asked.limit]
        return {
            "now": iso((await reader.cluster()).now),
            "items": [term_shape(term) for term in some],
            "next": some[-1].number if len(found) > len(some) else None,
        }

    return await call.web.desk.share(("terms", asked.model_dump_json()), read)


_Get = partial(Endpoint, "GET")

ENDPOINTS = (
    _Get("/api/v1/overview", overview, models.Overview, models.OverviewAsked, errors=(304,)),
    _Get("/api/v1/lanes", lanes, models.Lanes, models.LanesAsked, errors=(304,)),
    _Get("/api/v1/fires/summary", fires_summary, models.Summary, models.SummaryAsked, errors=(304,)),
    _Get("/api/v1/jobs/{id}/why", why, models.Why, models.WhyAsked, errors=(304, 404, 409)),
    _Get("/api/v1/jobs/{id}/preview", preview, models.Preview, models.PreviewAsked, errors=(304, 404, 409)),
    _Get("/api/v1/audit", audit, models.Audit, models.AuditAsked, errors=(304,)),
    _Get("/api/v1/doctor", doctor, models.Doctor, errors=(304,)),
    _Get("/api/v1/terms", terms, models.Terms, models.TermsAsked, errors=(304,)),
)
