"""Backfills and skipped fires over HTTP."""

from __future__ import annotations

from functools import partial

from fencepost.insight.views.backfills import backfill_shape, skip_shape
from fencepost.insight.views.times import ago
from fencepost.insight.visible import VisibleStore
from fencepost.model.triggers import from_iso
from fencepost.scheduler.backfilling import Range, backfill_of
from fencepost.store.base import Store
from fencepost.web import answers, models
from fencepost.web.endpoint import Call, Endpoint, Shape, stored_job
from fencepost.web.problems import Problem


async def start(call: Call) -> Shape:
    """Run the past due times of a job's calendar."""
    id, asked = call.path["id"], call.body

    async def act(store: Store) -> Shape:
        now = (await store.roster()).now
        until = now if asked.until is None else ago(asked.until, now, "to")
        since = ago(asked.since, now, "from")
        range = Range(since, until, asked.limit, asked.reverse, asked.only_missing, asked.name)
        backfill = await call.web.scheduler.job_operations.backfill(id, range, by=call.caller.name)
        return backfill_shape(id, backfill)

    return await call.web.desk.act(act)


async def of_job(call: Call) -> Shape:
    """The backfills of a job, the latest first."""
    id = call.path["id"]

    async def read(store: VisibleStore) -> Shape:
        record = await stored_job(store, id)
        return {"items": [backfill_shape(id, each) for each in reversed(record.backfills)]}

    return await call.read(read)


async def change(call: Call, what: str) -> Shape:
    id, name = call.path["id"], call.path["backfill"]

    async def act(store: Store) -> Shape:
        backfill_of(await stored_job(store, id), name)
        return backfill_shape(
            id, await call.web.scheduler.job_operations.change_backfill(id, name, what, by=call.caller.name)
        )

    return await call.web.desk.act(act)


async def pause(call: Call) -> Shape:
    """Start no more fires of a backfill until it is resumed."""
    return await change(call, "pause")


async def resume(call: Call) -> Shape:
    """Go on with a backfill."""
    return await change(call, "resume")


async def cancel(call: Call) -> Shape:
    """End a backfill: what waits is cancelled, what runs is asked to end."""
    return await change(call, "cancel")


async def skip(call: Call) -> Shape:
    """Do not run one coming fire, or let it run after all."""
    id, asked = call.path["id"], call.body

    try:
        due_at = from_iso(asked.at)
    except ValueError as error:
        raise Problem(422, str(error)) from None

    async def act(_: Store) -> Shape:
        record = await call.web.scheduler.job_operations.skip(
            id, due_at, undo=asked.undo, reason=asked.reason, by=call.caller.name
        )
        return {"job_id": id, "skips": [skip_shape(each) for each in record.skips]}

    return await call.web.desk.act(act)


_Post = partial(Endpoint, "POST", errors=(404, 409))

ENDPOINTS = (
    _Post("/api/v1/jobs/{id}/backfill", start, answers.BackfillModel, body=models.BackfillAsked, status=202),
    Endpoint("GET", "/api/v1/jobs/{id}/backfills", of_job, answers.Backfills, errors=(304, 404)),
    _Post("/api/v1/jobs/{id}/backfills/{backfill}/pause", pause, answers.BackfillModel),
    _Post("/api/v1/jobs/{id}/backfills/{backfill}/resume", resume, answers.BackfillModel),
    _Post("/api/v1/jobs/{id}/backfills/{backfill}/cancel", cancel, answers.BackfillModel),
    _Post("/api/v1/jobs/{id}/skip", skip, answers.Skips, body=models.SkipAsked),
)
