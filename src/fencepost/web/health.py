"""Probes. `/livez` says that this process answers, `/readyz` whether it should get requests, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from fencepost.errors import FencepostError
from fencepost.insight.board import Reading
from fencepost.model import job_of
from fencepost.model.triggers import iso
from fencepost.web.probe import PATIENCE
from fencepost.web.problems import Problem
from fencepost.web.visible import seen

if TYPE_CHECKING:
    from fencepost.web.app import WebApp
    from fencepost.web.endpoint import Call, Shape


async def unready(web: WebApp) -> str | None:
    """Why this process should get no requests: shutting_down, not_started, starting, store_lost, or `degraded:` and the
    loops that keep failing. None: it should."""
    replica = web.scheduler.replica
    if web.scheduler.shutdown.draining:
        return "shutting_down"
    if not web.desk.is_open:
        return "not_started"
    if replica is None:
        return None if await web.store_probe.answers() else "store_lost"
    if replica.store_is_lost:
        return "store_lost"
    if loops := replica.degraded_loops:
        # Only the type of the error: a probe is open to every client. Event and log have the message.
        return "degraded: " + ", ".join(f"{name} ({kind})" for name, kind in sorted(loops.items()))
    return None if replica.is_ready else "starting"


async def livez(_: Call) -> Response:
    """Whether this process answers. The store has no say in it."""
    return JSONResponse({"alive": True})


async def readyz(call: Call) -> Response:
    """Whether this process should get requests; if not, 503 and why."""
    reason = await unready(call.web)
    if reason is None:
        return JSONResponse({"ready": True})
    return JSONResponse({"ready": False, "reason": reason}, 503)


async def scheduler_status(call: Call) -> Shape:
    """How this process and the cluster stand; answers also while the store does not, with what was read last."""
    web, replica = call.web, call.web.scheduler.replica
    reason, reader = await unready(web), web.scheduler.reader
    answers = reason != "store_lost"  # a shared reading may be a second older than that
    try:
        whole: Reading | None = await web.desk.everything(PATIENCE)
    except (FencepostError, Problem):
        whole, answers = reader.last, False
    reading = seen(whole, call.caller) if whole else None
    runs = [key for key in replica.runs if call.caller.sees(job_of(key))] if replica else []
    return {
        "ready": reason is None,
        "reason": reason,
        "replica": replica.id if replica else None,
        "is_leader": replica is not None and replica.term() is not None,
        "running": len(runs),
        "store": web.scheduler.store_name,
        **reading_age(reading, None if answers else reader.last_age_seconds),
        "leader": reading.cluster.leader() if reading else None,
        "replicas": reading.cluster.replicas() if reading else [],
        "jobs": dict(reading.jobs_by_state()) if reading else {},
    }


def reading_age(reading: Reading | None, age_seconds: float | None) -> Shape:
    """`age_seconds`: of what was read last; None: the store answers."""
    return {
        "store_answers": age_seconds is None,
        "as_of": iso(reading.now) if reading else None,
        "age_seconds": round(age_seconds or 0.0, 1) if reading else None,
    }
