"""The routes of the API, in the order of the documentation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from fencepost.errors import Conflict, StoreUnavailable, UsageError
from fencepost.insight.board import Entry, Reading
from fencepost.insight.cluster import cluster_of
from fencepost.insight.pages import INSTANT, page_of_fires, page_of_jobs
from fencepost.insight.views.shapes import (
    definition_shape,
    event_shape,
    fire_shape,
    pause_shape,
    whole_fire_shape,
)
from fencepost.insight.views.times import ago, ahead
from fencepost.model import FireRecord, JobRecord, State
from fencepost.model.triggers import iso
from fencepost.scheduler.handle import Handle
from fencepost.store.base import FireQuery, JobPage, Store
from fencepost.store.rereading import readable_job
from fencepost.web import bulk, models, pictures
from fencepost.web.endpoint import Call, Endpoint, Shape, no_fire, no_job
from fencepost.web.health import livez, reading_age, readyz, scheduler_status
from fencepost.web.history import history
from fencepost.web.listener import Listener
from fencepost.web.paging import cursor_of, from_cursor
from fencepost.web.prepared import Prepared
from fencepost.web.problems import Problem
from fencepost.web.sse import EventStream
from fencepost.web.visible import seen

# --- reading ------------------------------------------------------------------------------------------


async def status(call: Call) -> Prepared:
    """Who leads, who takes part, how each job stands; while the store does not answer, as it was read last."""
    reader = call.web.scheduler.reader

    async def read(_: Store) -> Prepared:
        return await answer(await reader.everything())

    async def answer(whole: Reading, age_seconds: float | None = None) -> Prepared:
        reading = seen(whole, call.caller)
        head = {**reading.head(call.web.scheduler.store_name), **reading_age(reading, age_seconds)}
        return await prepared(head, "jobs", reading.entries)

    try:
        return await call.web.desk.share(("status", call.caller.jobs), read)
    except StoreUnavailable:
        if reader.last is None:
            raise
        return await answer(reader.last, reader.last_age_seconds)


async def jobs(call: Call) -> Prepared:
    """The jobs by id, a page at a time."""
    asked: models.JobsAsked = call.query
    reader = call.web.scheduler.reader

    async def read(store: Store) -> Prepared:
        page = JobPage(asked.limit, asked.cursor or "", asked.q or "")
        some, next = await page_of_jobs(reader, store, page, wanted if chosen else None)
        return await prepared({"next": next}, "items", some)

    def wanted(entry: Entry) -> bool:
        fits = not asked.state or not set(asked.state).isdisjoint(entry.states)
        return fits and call.caller.sees(entry.id)

    chosen = bool(asked.state or call.caller.jobs)
    return await call.web.desk.share(("jobs", call.caller.jobs, asked.model_dump_json()), read)


async def job(call: Call) -> Shape:
    """One job: its definition, how it stands, its history."""
    id, reader = call.path["id"], call.web.scheduler.reader

    async def read(store: Store) -> Shape:
        record = await _job(store, id)
        [entry] = await reader.board.entries(store, await reader.cluster(), [record])
        history = [event_shape(event) for event in await store.history(id)]
        return {**definition_shape(record), **entry.shape, "history": history}

    return await call.web.desk.look(read)


async def fires(call: Call) -> Shape:
    """The ledger, newest first, a page at a time."""
    asked: models.FiresAsked = call.query
    if asked.job is not None and not call.caller.sees(asked.job):
        return {"items": [], "next": None}

    def wanted(fire: FireRecord) -> bool:
        return call.caller.sees(fire.job_id)

    async def read(store: Store) -> Shape:
        now = (await store.roster()).now
        until, skip = from_cursor(asked.cursor) if asked.cursor else (_until(asked, now), 0)
        query = FireQuery(
            job_id=asked.job,
            states=tuple(asked.state),
            since=ago(asked.since, now, "since") if asked.since else None,
            until=until,
            limit=asked.limit,
        )
        rows, next = await page_of_fires(store, query, skip, wanted if call.caller.jobs else None)
        return {"items": [fire_shape(fire) for fire in rows], "next": cursor_of(next)}

    return await call.web.desk.look(read)


async def fire(call: Call) -> Shape:
    """Everything about one fire."""
    return await call.web.desk.look(lambda store: _whole(store, call.path["key"]))


async def replicas(call: Call) -> Shape:
    """Who takes part, and who leads."""
    if call.caller.jobs:
        cluster = seen(await call.web.desk.everything(), call.caller).cluster
    else:
        cluster = await call.web.desk.share("cluster", cluster_of)
    return {"now": iso(cluster.now), "leader": cluster.leader(), "items": cluster.replicas()}


async def events(call: Call) -> Response:
    """What changes, as it does: server-sent events."""
    asked: models.EventsAsked = call.query
    listener = Listener(asked.job, asked.kinds, call.caller.sees)
    return EventStream(call.web.feed, listener, call.request.headers.get("last-event-id"))


async def me(call: Call) -> Shape:
    """Who asks, and what it may do."""
    caller = call.caller
    return {"name": caller.name, "role": caller.role, "jobs": list(caller.jobs)}


# --- acting -------------------------------------------------------------------------------------------


async def trigger(call: Call) -> Shape:
    """Run a job now, on whichever replica has room."""
    id, asked = call.path["id"], call.body
    name = _idempotency_key(call)

    async def act(store: Store) -> Shape:
        await _job(store, id)
        return await _added(
            call,
            id,
            args=asked.args,
            idempotency_key=name,
            if_active=asked.if_active,
            by=call.caller.name,
        )

    return await call.web.desk.act(act)


async def pause(call: Call) -> Shape:
    """Pause a job: what falls due is recorded as skipped."""
    id, asked = call.path["id"], call.body

    async def act(store: Store) -> Shape:
        await _job(store, id)
        until = ahead(asked.until, (await store.roster()).now, "until") if asked.until else None
        record = await call.web.scheduler.do_change(id, "pause", asked.reason, until, by=call.caller.name)
        return {"job_id": id, "paused": pause_shape(record.pauses[-1])}

    return await call.web.desk.act(act)


async def resume(call: Call) -> Shape:
    """End a pause."""
    id = call.path["id"]

    async def act(store: Store) -> Shape:
        await _job(store, id)
        await call.web.scheduler.do_change(id, "resume", by=call.caller.name)
        return {"job_id": id, "paused": None}

    return await call.web.desk.act(act)


async def cancel(call: Call) -> Shape:
    """End a fire that runs or waits."""
    key = call.path["key"]

    async def act(store: Store) -> Shape:
        before = await _fire(store, key)
        if before.state.final:
            raise Problem(409, f"{key} has ended already: {before.state}")
        try:
            return whole_fire_shape(await call.web.scheduler.do_cancel(key, by=call.caller.name))
        except UsageError as error:  # it is planned, and not due
            raise Problem(409, str(error)) from None

    return await call.web.desk.act(act)


async def retry(call: Call) -> Shape:
    """Run what a fire ran once more, with its due time. Its fenced effects happen once, unless `again` is true, which
    a fire that has succeeded needs."""
    key, name = call.path["key"], _idempotency_key(call)

    async def act(store: Store) -> Shape:
        before = await _fire(store, key)
        await _job(store, before.job_id)
        asked = {"again": call.body.again, "idempotency_key": name, "by": call.caller.name}
        return await _fire_added(call.web.scheduler.do_retry(key, **asked))

    return await call.web.desk.act(act)


# --- for platforms, and for the seed systems ------------------------------------------------------------


async def pipeline(call: Call) -> Shape:
    """How the pipeline stands, for the status widget."""
    return await call.web.pipeline_status(call.query.job, caller=call.caller)


async def metrics(call: Call) -> Response:
    """Metrics of this process and of the store, for Prometheus."""
    return await call.web.metrics.scrape(call.caller)


ENDPOINTS = (
    # Before `/api/v1/fires/{key}`, which would match the summary, too.
    *pictures.ENDPOINTS,
    *bulk.ENDPOINTS,
    Endpoint("GET", "/api/v1/status", status, models.Status, errors=(304,)),
    Endpoint("GET", "/api/v1/jobs", jobs, models.JobPage, models.JobsAsked, errors=(304,)),
    Endpoint("GET", "/api/v1/jobs/{id}", job, models.WholeJob, errors=(304, 404, 409)),
    Endpoint("GET", "/api/v1/fires", fires, models.FirePage, models.FiresAsked, errors=(304,)),
    Endpoint("GET", "/api/v1/fires/{key}", fire, models.WholeFire, errors=(304, 404)),
    Endpoint("GET", "/api/v1/replicas", replicas, models.Replicas, errors=(304,)),
    Endpoint("GET", "/api/v1/history", history, models.Actions, models.HistoryAsked, errors=(304,)),
    Endpoint("GET", "/api/v1/me", me, models.Me, errors=(304,)),
    Endpoint(
        "GET", "/api/v1/events", events, models.Answer, models.EventsAsked, media_type="text/event-stream"
    ),
    Endpoint(
        "POST",
        "/api/v1/jobs/{id}/trigger",
        trigger,
        models.WholeFire,
        body=models.TriggerAsked,
        status=202,
        errors=(404, 409, 429),
        headers={"Idempotency-Key": models.ID},
    ),
    Endpoint(
        "POST", "/api/v1/jobs/{id}/pause", pause, models.JobPause, body=models.PauseAsked, errors=(404, 409)
    ),
    Endpoint("POST", "/api/v1/jobs/{id}/resume", resume, models.JobPause, errors=(404, 409)),
    Endpoint("POST", "/api/v1/fires/{key}/cancel", cancel, models.WholeFire, status=202, errors=(404, 409)),
    Endpoint(
        "POST",
        "/api/v1/fires/{key}/retry",
        retry,
        models.WholeFire,
        body=models.RetryAsked,
        status=202,
        errors=(404, 409, 429),
        headers={"Idempotency-Key": models.ID},
    ),
    Endpoint("GET", "/scheduler/status", scheduler_status, models.SchedulerStatus, errors=(304,)),
    Endpoint(
        "GET",
        "/api/system/pipeline_status",
        pipeline,
        models.PipelineStatus,
        models.PipelineAsked,
        errors=(304, 404),
    ),
    Endpoint("GET", "/livez", livez, models.Alive),
    Endpoint("GET", "/readyz", readyz, models.Ready),
    Endpoint("GET", "/health/ready", readyz, models.Ready),
    Endpoint("GET", "/metrics", metrics, models.Answer, media_type="text/plain"),
)


# --- helpers ------------------------------------------------------------------------------------------


async def prepared(head: Shape, name: str, entries: Sequence[Entry]) -> Prepared:
    """Made and compressed on another thread: thousands of jobs are megabytes."""
    texts = [entry.text for entry in entries]
    return await asyncio.to_thread(lambda: Prepared(head, name, texts).compressed())


async def _job(store: Store, id: str) -> JobRecord:
    record = await readable_job(store, id)
    if record is None:
        raise no_job(id)
    return record


async def _fire(store: Store, key: str) -> FireRecord:
    found = await store.find_fires(FireQuery(key=key))
    if not found:
        raise no_fire(key)
    return found[0]


async def _whole(store: Store, key: str) -> Shape:
    return whole_fire_shape(await _fire(store, key))


def _idempotency_key(call: Call) -> str | None:
    header, asked = call.request.headers.get("idempotency-key"), call.body.idempotency_key
    if header and asked and header != asked:
        raise Problem(422, "Idempotency-Key and idempotency_key differ; send one of them")
    name: str | None = header or asked
    return name


async def _added(call: Call, job_id: str, **request: Any) -> Shape:
    return await _fire_added(call.web.scheduler.do_trigger(job_id, **request))


async def _fire_added(asking: Awaitable[Handle]) -> Shape:
    try:
        handle = await asking
    except Conflict:
        raise
    except UsageError as error:  # the job is there: its queue is full
        raise Problem(429, str(error), headers={"Retry-After": "10"}) from None
    return whole_fire_shape(await handle.do_record())


def _until(asked: models.FiresAsked, now: datetime) -> datetime | None:
    if asked.until is not None:
        return ago(asked.until, now, "until")
    return None if asked.planned or asked.state == [State.PENDING] else now + INSTANT
