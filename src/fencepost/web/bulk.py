"""Acting on several jobs or fires with one request. Each is answered as a request for it alone would be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from fencepost.errors import FencepostError, StoreUnavailable
from fencepost.insight.views.shapes import pause_shape, whole_fire_shape
from fencepost.insight.views.times import ahead
from fencepost.model import job_of
from fencepost.scheduler.handle import Handle
from fencepost.store.base import Store
from fencepost.web import picture_models as models
from fencepost.web.endpoint import Call, Endpoint, Shape, no_fire, no_job
from fencepost.web.problems import Problem, problem_of

Act = Callable[[Store, str], Awaitable[Shape]]


async def pause_jobs(call: Call) -> Shape:
    """Pause several jobs."""
    asked: models.PauseJobsAsked = call.body
    change = call.web.scheduler.job_operations.change

    async def act(store: Store) -> Shape:
        until = ahead(asked.until, (await store.roster()).now, "until") if asked.until else None

        async def one(store: Store, id: str) -> Shape:
            record = await change(id, "pause", asked.reason, until, by=call.caller.name)
            return {"paused": pause_shape(record.pauses[-1])}

        return await _each(call, store, asked.ids, one, "pause", {"paused": None})

    return await call.web.desk.act(act)


async def resume_jobs(call: Call) -> Shape:
    """End the pauses of several jobs."""

    async def one(store: Store, id: str) -> Shape:
        await call.web.scheduler.job_operations.change(id, "resume", by=call.caller.name)
        return {"paused": None}

    return await call.web.desk.act(
        lambda store: _each(call, store, call.body.ids, one, "resume", {"paused": None})
    )


async def trigger_jobs(call: Call) -> Shape:
    """Run several jobs now, each with its own arguments."""
    trigger, asked = call.web.scheduler.fire_operations.trigger, call.body

    async def one(store: Store, id: str) -> Shape:
        return _fire_of(call, await trigger(id, if_active=asked.if_active, by=call.caller.name))

    return await call.web.desk.act(
        lambda store: _each(call, store, asked.ids, one, "trigger", {"fire": None})
    )


async def retry_fires(call: Call) -> Shape:
    """Run what several fires ran once more."""
    retry, asked = call.web.scheduler.fire_operations.retry, call.body

    async def one(store: Store, key: str) -> Shape:
        return _fire_of(call, await retry(key, again=asked.again, by=call.caller.name))

    return await call.web.desk.act(lambda store: _each(call, store, asked.keys, one, "retry", {"fire": None}))


async def _each(call: Call, store: Store, ids: Sequence[str], act: Act, name: str, nothing: Shape) -> Shape:
    """One after the other, each once. What fails does not keep the others from being done; a store that does not
    answer does."""
    items: list[Shape] = []
    for id in dict.fromkeys(ids):
        try:
            if not call.caller.sees(job_of(id)):
                raise no_fire(id) if "@" in id or "!" in id else no_job(id)
            done = await act(store, id)
        except StoreUnavailable:
            raise
        except (FencepostError, Problem) as error:
            problem = problem_of(error)
            items.append(
                {"id": id, "ok": False, "status": problem.status, "detail": problem.detail, **nothing}
            )
            continue
        fire = done.get("fire")
        call.web.access_log.acted(call.request, name, job_of(id), fire["key"] if fire else None)
        items.append({"id": id, "ok": True, "status": 202 if fire else 200, "detail": None, **done})
    return {"items": items}


def _fire_of(call: Call, handle: Handle) -> Shape:
    assert handle.added is not None
    return {"fire": whole_fire_shape(call.caller.sight.fire(handle.added))}


_Post = partial(Endpoint, "POST")

ENDPOINTS = (
    _Post("/api/v1/jobs/pause", pause_jobs, models.JobsDone, body=models.PauseJobsAsked, acts_on_many=True),
    _Post(
        "/api/v1/jobs/resume", resume_jobs, models.JobsDone, body=models.ResumeJobsAsked, acts_on_many=True
    ),
    _Post(
        "/api/v1/jobs/trigger",
        trigger_jobs,
        models.FiresDone,
        body=models.TriggerJobsAsked,
        acts_on_many=True,
    ),
    _Post(
        "/api/v1/fires/retry", retry_fires, models.FiresDone, body=models.RetryFiresAsked, acts_on_many=True
    ),
)
