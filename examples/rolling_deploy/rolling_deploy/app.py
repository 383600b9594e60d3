"""The application: requests, jobs, and a life that ends in order.

    uvicorn rolling_deploy.app:app --workers 4

On SIGTERM `/health/ready` says 503 while requests are still served; after `FENCEPOST_READY_DELAY` nothing more is
claimed and another instance leads; requests and runs under way end; the pool is closed last. None of that is written
here but the order of the two `async with`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Annotated

import psycopg
from fastapi import FastAPI, HTTPException, Path, Request, Response

from fencepost import EffectCommitted, Fire, Scheduler, every
from rolling_deploy.actions import Claim, run_if_due
from rolling_deploy.database import URL, Pool, open_pool

log = logging.getLogger("rolling_deploy")

BY = f"{os.environ.get('HOSTNAME', 'instance')}-{os.getpid()}"
EXPORT_EVERY = timedelta(seconds=float(os.environ.get("EXPORT_EVERY", "3600")))
EXPORT_STEPS = int(os.environ.get("EXPORT_STEPS", "30"))
STEP_SECONDS = 0.1
MOST_ACTIONS = 1_000

scheduler = Scheduler(store=URL)  # all else from FENCEPOST_*


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with open_pool() as pool:
        app.state.pool = pool
        async with scheduler:
            yield
        log.warning("the scheduler has left")
    log.warning("the pool is closed")


app = FastAPI(lifespan=lifespan)


def the_pool() -> Pool:
    pool: Pool = app.state.pool
    return pool


# --- jobs: each fire on one instance ----------------------------------------------------------------------


# On a busy machine runs take longer than their interval: so many fires wait their turn before any is skipped.
WAITING = "queue(100)"


@scheduler.job(every(seconds=1), overlap=WAITING)
async def tick(fire: Fire) -> None:
    """Something that must happen once a second. Its transaction carries the fire's token: should this process be
    taken for dead and go on nevertheless, it commits nothing."""
    async with the_pool().connection() as connection, fire.fenced(connection):
        await connection.execute("insert into ticks values (%s, %s)", (fire.key, os.getpid()))


@scheduler.job(every(seconds=1), overlap=WAITING)
async def due_actions() -> None:
    """Run what is due. A request may be at the same action: see `actions.py`."""
    async with the_pool().connection() as connection:
        known = await connection.execute("select id from actions order by id limit %s", (MOST_ACTIONS,))
        for (action_id,) in await known.fetchall():
            await run_if_due(connection, action_id, BY)


@scheduler.job(every(EXPORT_EVERY), overlap=WAITING, after_crash="rerun")
async def export(fire: Fire) -> None:
    """Work that may take longer than a deploy waits. Each step is written down with the next one to do: cut off, it is
    given back and goes on there, on another instance."""
    begin = fire.checkpoint if isinstance(fire.checkpoint, int) else 0
    for step in range(begin, EXPORT_STEPS):
        await asyncio.sleep(STEP_SECONDS)
        with suppress(
            EffectCommitted
        ):  # an earlier attempt was cut off before it could note that it was done
            async with the_pool().connection() as connection, fire.fenced(connection, name=f"step-{step}"):
                await connection.execute(
                    "insert into steps values (%s, %s, %s)", (fire.key, step, os.getpid())
                )
        await fire.save(step + 1)


# --- requests ---------------------------------------------------------------------------------------------


@app.get("/work")
async def work(seconds: float = 0) -> dict[str, int]:
    """A request that takes its time and then needs the database: it would find the pool closed, were that not last."""
    await asyncio.sleep(min(seconds, 60))
    async with the_pool().connection() as connection:
        await connection.execute("select 1")
    return {"pid": os.getpid()}


@app.post("/actions/{action_id}/run")
async def run_action(action_id: Annotated[int, Path(ge=1, lt=2**63)]) -> dict[str, str]:
    """Run it now if it is due."""
    async with the_pool().connection() as connection:
        claimed = await run_if_due(connection, action_id, BY)
    if claimed is Claim.BUSY:
        raise HTTPException(
            503, "another request holds the lock of this action; ask again", {"Retry-After": "1"}
        )
    return {"claim": claimed.value}


@app.exception_handler(psycopg.Error)
async def without_database(request: Request, error: psycopg.Error) -> Response:
    """No connection, no lock, no answer: then it was not done, whatever it was."""
    log.warning("%s: %s", request.url.path, type(error).__name__)
    return Response("the database does not answer", 503, {"Retry-After": "1"}, "text/plain")


app.mount("/", scheduler.asgi())  # last: /health/ready, /scheduler/status, /api/v1, /metrics
