"""The service: `uvicorn poller.app:app`. Its own routes, and beside them those of Fencepost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from fencepost.web.logs import configure
from poller.jobs import devices, readings, scheduler, settings


async def show_readings(_: Request) -> JSONResponse:
    return JSONResponse(await readings.all())


async def ready(_: Request) -> JSONResponse:
    """What the readiness probe asks. Fencepost's `/readyz` would say no in all replicas as soon as Valkey is down, and
    Kubernetes would send nobody any requests. This service is of use without it: only who is leaving says no."""
    leaving = scheduler.shutdown.draining
    return JSONResponse({"ready": not leaving}, 503 if leaving else 200)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    configure(settings.log_format, scheduler.settings)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # else a line for each poll that went well
    following = asyncio.create_task(readings.follow())
    async with scheduler:
        yield
    following.cancel()
    await asyncio.wait([following])
    await devices.aclose()
    await readings.close()


app = Starlette(
    routes=[
        Route("/readings", show_readings),
        Route("/ready", ready),
        Mount("/", scheduler.asgi()),  # /scheduler/status, /metrics, /livez, /api/v1/…
    ],
    lifespan=lifespan,
)
