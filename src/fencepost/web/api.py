"""The routes of the API, in the order of the documentation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from starlette.responses import Response

from fencepost.errors import ConfigurationError, Conflict, StoreUnavailable, UsageError
from fencepost.insight.board import BoardEntry, Reading
from fencepost.insight.cluster import cluster_of
from fencepost.insight.job_pages import entry_of_job, page_of_jobs
from fencepost.insight.pages import INSTANT
from fencepost.insight.views.shapes import (
    definition_shape,
    event_shape,
    fire_shape,
    pause_shape,
    whole_fire_shape,
)
from fencepost.insight.views.times import ago, ahead
from fencepost.insight.visible import VisibleStore
from fencepost.model import State
from fencepost.model.triggers import iso
from fencepost.scheduler.handle import Handle
from fencepost.scheduler.manual import NOW, Due, due_in
from fencepost.store.base import FireQuery, JobPage, Store
from fencepost.web import answers, backfills, bulk, definitions, models, notices, pictures, workers
from fencepost.web.endpoint import Call, Endpoint, Shape, no_job, stored_fire, stored_job
from fencepost.web.health import livez, reading_age, readyz, scheduler_status
from fencepost.web.history import history
from fencepost.web.listener import StreamListener
from fencepost.web.paging import cursor_of, from_cursor
from fencepost.web.prepared import Prepared
from fencepost.web.problems import Problem
from fencepost.web.sse import EventStream
from fencepost.web.visible import seen

# --- reading ------------------------------------------------------------------------------------------


async def status(call: Call) -> Prepared:
    """Who leads, who takes part, how each job stands; while the store does not answer, as it was read last."""
    reader = call.web.scheduler.reader

    async def read(_: VisibleStore) -> Prepared:
        return await answer(await reader.everything())

    async def answer(whole: Reading, age_seconds: float | None = None) -> Prepared:
        reading = seen(whole, call.caller)
        head = {**reading.head(call.web.scheduler.store_name), **reading_age(reading, age_seconds)}
        return await prepared(head, "jobs", reading.entries)

    try:
        return await call.share("status", read)
    except StoreUnavailable:
        if reader.last is None:
            raise
        return await answer(reader.last, reader.last_age_seconds)


async def jobs(call: Call) -> Prepared:
    """The jobs by id, a page at a time."""
    asked: models.JobsAsked = call.query
    reader = call.web.scheduler.reader

    async def read(store: VisibleStore) -> Prepared:
        page = JobPage(asked.limit, asked.cursor or "", asked.q or "")
        some, next = await page_of_jobs(reader, store, page, wanted if chosen else None)
        return await prepared({"next": next}, "items", some)

    def wanted(entry: BoardEntry) -> bool:
        fits = not asked.state or not set(asked.state).isdisjoint(entry.states)
        return fits and all(entry.fits(each) for each in choices)

    choices = [f"tag:{tag}" for tag in asked.tag]
    choices += [f"owner:{asked.owner}"] if asked.owner else []
    choices += [f"priority:{asked.priority}"] if asked.priority else []
    chosen = bool(asked.state or choices)
    return await call.share(("jobs", asked.model_dump_json()), read)


async def job(call: Call) -> Prepared:
    """One job: its definition, how it stands, its history."""
    id, reader = call.path["id"], call.web.scheduler.reader

    async def read(store: VisibleStore) -> Prepared:
        if (found := await entry_of_job(reader, store, id)) is None:
            raise no_job(id)
        entry, record = found
        history = [event_shape(event) for event in await store.history(id)]
        schema = call.web.scheduler.args_schema(record.job.target)
        shape = {**definition_shape(record), **entry.shape, "args_schema": schema, "history": history}
        return Prepared(shape, version=record.fingerprint)

    return await call.read(read)


async def fires(call: Call) -> Shape:
    """The ledger, newest first, a page at a time."""
    asked: models.FiresAsked = call.query

    async def read(store: VisibleStore) -> Shape:
        now = (await store.roster()).now
        until, skip = from_cursor(asked.cursor) if asked.cursor else (_until(asked, now), 0)
        query = FireQuery(
            job_id=asked.job,
            states=tuple(asked.state),
            since=ago(asked.since, now, "since") if asked.since else None,
            until=until,
            limit=asked.limit,
        )
        rows, next = await store.page_of_fires(query, skip)
        return {"items": [fire_shape(fire) for fire in rows], "next": cursor_of(next)}

    return await call.read(read)


async def fire(call: Call) -> Shape:
    """Everything about one fire."""
    return await call.read(lambda store: _whole(store, call.path["key"]))


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
    listener = StreamListener(asked.job, asked.kinds, call.caller.sight)
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
        if asked.args is not None:  # checked against the task that the stored definition names
            record = await stored_job(store, id)
            call.web.scheduler.check_args(record.job.target, asked.args, f"a fire of {id}")
        return _fire_added(
            call,
            await call.web.scheduler.fire_operations.trigger(
                id,
                args=asked.args,
                idempotency_key=name,
                if_active=asked.if_active,
                by=call.caller.name,
                due=await _due(store, asked),
            ),
        )

    return await call.web.desk.act(act)


async def pause(call: Call) -> Shape:
    """Pause a job: what falls due is recorded as skipped."""
    id, asked = call.path["id"], call.body

    async def act(store: Store) -> Shape:
        until = ahead(asked.until, (await store.roster()).now, "until") if asked.until else None
        change = call.web.scheduler.job_operations.change
        record = await change(id, "pause", asked.reason, until, by=call.caller.name)
        return {"job_id": id, "paused": pause_shape(record.pauses[-1])}

    return await call.web.desk.act(act)


async def resume(call: Call) -> Shape:
    """End a pause."""
    id = call.path["id"]

    async def act(store: Store) -> Shape:
        await call.web.scheduler.job_operations.change(id, "resume", by=call.caller.name)
        return {"job_id": id, "paused": None}

    return await call.web.desk.act(act)


async def cancel(call: Call) -> Shape:
    """End a fire that runs or waits."""
    key = call.path["key"]

    async def act(store: Store) -> Shape:
        before = await stored_fire(store, key)
        if before.state.final:
            raise Conflict(f"{key} has ended already: {before.state}")
        fire = await call.web.scheduler.fire_operations.cancel(key, by=call.caller.name)
        return whole_fire_shape(call.caller.sight.fire(fire))

    return await call.web.desk.act(act)


async def retry(call: Call) -> Shape:
    """Run what a fire ran once more, with its due time. Its fenced effects happen once, unless `again` is true, which
    a fire that has succeeded needs."""
    key, name = call.path["key"], _idempotency_key(call)

    async def act(store: Store) -> Shape:
        asked = {"again": call.body.again, "idempotency_key": name, "by": call.caller.name}
        return _fire_added(call, await call.web.scheduler.fire_operations.retry(key, **asked))

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
    *definitions.ENDPOINTS,
    *notices.ENDPOINTS,
    Endpoint("GET", "/api/v1/status", status, answers.Status, errors=(304,)),
    Endpoint("GET", "/api/v1/jobs", jobs, answers.JobPageModel, models.JobsAsked, errors=(304,)),
    Endpoint("GET", "/api/v1/jobs/{id}", job, answers.WholeJob, errors=(304, 404, 409)),
    Endpoint("GET", "/api/v1/fires", fires, answers.FirePage, models.FiresAsked, errors=(304,)),
    Endpoint("GET", "/api/v1/fires/{key}", fire, answers.WholeFire, errors=(304, 404)),
    Endpoint("GET", "/api/v1/replicas", replicas, answers.ReplicasModel, errors=(304,)),
    Endpoint("GET", "/api/v1/history", history, answers.Actions, models.HistoryAsked, errors=(304,)),
    Endpoint("GET", "/api/v1/me", me, answers.Me, errors=(304,)),
    Endpoint(
        "GET",
        "/api/v1/events",
        events,
        models.AnswerModel,
        models.EventsAsked,
        media_type="text/event-stream",
    ),
    Endpoint(
        "POST",
        "/api/v1/jobs/{id}/trigger",
        trigger,
        answers.WholeFire,
        body=models.TriggerAsked,
        status=202,
        errors=(404, 409, 429),
        headers={"Idempotency-Key": models.ID},
    ),
    Endpoint(
        "POST", "/api/v1/jobs/{id}/pause", pause, answers.JobPause, body=models.PauseAsked, errors=(404, 409)
    ),
    Endpoint("POST", "/api/v1/jobs/{id}/resume", resume, answers.JobPause, errors=(404, 409)),
    Endpoint("POST", "/api/v1/fires/{key}/cancel", cancel, answers.WholeFire, status=202, errors=(404, 409)),
    Endpoint(
        "POST",
        "/api/v1/fires/{key}/retry",
        retry,
        answers.WholeFire,
        body=models.RetryAsked,
        status=202,
        errors=(404, 409, 429),
        headers={"Idempotency-Key": models.ID},
    ),
    Endpoint(
        "POST",
        "/api/v1/fires/{key}/start",
        workers.start,
        answers.Started,
        body=models.StartAsked,
        errors=(404, 409),
    ),
    Endpoint(
        "POST",
        "/api/v1/fires/{key}/update",
        workers.update,
        answers.WorkerUpdated,
        body=models.UpdateAsked,
        errors=(404,),
    ),
    *backfills.ENDPOINTS,
    Endpoint("GET", "/scheduler/status", scheduler_status, answers.SchedulerStatus, errors=(304,)),
    Endpoint(
        "GET",
        "/api/system/pipeline_status",
        pipeline,
        answers.PipelineStatus,
        models.PipelineAsked,
        errors=(304, 404),
    ),
    Endpoint("GET", "/livez", livez, answers.AliveModel),
    Endpoint("GET", "/readyz", readyz, answers.Ready),
    Endpoint("GET", "/health/ready", readyz, answers.Ready),
    Endpoint("GET", "/metrics", metrics, models.AnswerModel, media_type="text/plain"),
)


# --- helpers ------------------------------------------------------------------------------------------


async def prepared(head: Shape, name: str, entries: Sequence[BoardEntry]) -> Prepared:
    """Made and compressed on another thread: thousands of jobs are megabytes."""
    texts = [entry.text for entry in entries]
    return await asyncio.to_thread(lambda: Prepared(head, name, texts).compressed())


async def _whole(store: VisibleStore, key: str) -> Shape:
    return whole_fire_shape(await stored_fire(store, key))


def _idempotency_key(call: Call) -> str | None:
    header, asked = call.request.headers.get("idempotency-key"), call.body.idempotency_key
    if header and asked and header != asked:
        raise Problem(422, "Idempotency-Key and idempotency_key differ; send one of them")
    name: str | None = header or asked
    return name


async def _due(store: Store, asked: models.TriggerAsked) -> Due:
    given = [(name, text) for name, text in (("in", asked.delay), ("at", asked.at)) if text is not None]
    if len(given) > 1:
        raise Problem(422, "in and at exclude each other; send one of them")
    if not given:
        return NOW
    try:
        if asked.delay is not None:
            return due_in(asked.delay)
        return Due(at=ahead(given[0][1], (await store.roster()).now, "at"))
    except (ConfigurationError, UsageError) as error:
        raise Problem(422, str(error)) from None


def _fire_added(call: Call, handle: Handle) -> Shape:
    assert handle.added is not None
    return whole_fire_shape(call.caller.sight.fire(handle.added))


def _until(asked: models.FiresAsked, now: datetime) -> datetime | None:
    if asked.until is not None:
        return ago(asked.until, now, "until")
    return None if asked.planned or asked.state == [State.PENDING] else now + INSTANT
