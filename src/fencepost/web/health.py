"""Probes. `/livez` says that this process answers, `/readyz` whether it should get requests, and if not, why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from fencepost.errors import FencepostError
from fencepost.model import job_of
from fencepost.views.overview import overview
from fencepost.web.probe import PATIENCE
from fencepost.web.problems import Problem
from fencepost.web.visible import visible

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
        # The type of the error and no more: a probe is open to everybody. Event and log have the message.
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
    """How this process and the cluster stand; answers also while the store does not."""
    web, replica = call.web, call.web.scheduler.replica
    reason = await unready(web)
    name = web.scheduler.store_name
    try:
        whole, _ = await web.desk.look(lambda store: overview(store, name), PATIENCE)
    except (FencepostError, Problem):
        found = None
    else:
        found = visible(whole, call.caller)
    runs = [key for key in replica.runs if call.caller.sees(job_of(key))] if replica else []
    return {
        "ready": reason is None,
        "reason": reason,
        "replica": replica.id if replica else None,
        "is_leader": replica is not None and replica.term() is not None,
        "running": len(runs),
        "store": name,
        "store_answers": found is not None,
        "leader": found["leader"] if found else None,
        "replicas": found["replicas"] if found else [],
        "jobs": dict(Counter(job["state"] for job in found["jobs"])) if found else {},
    }
