"""A host application with requests of its own, the service mounted in it, and jobs. Settings: the environment."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from fencepost import Fire, Scheduler, every

scheduler = Scheduler()
web = scheduler.asgi()
LOG = Path(os.environ.get("FENCEPOST_TEST_LOG", os.devnull))


def note(text: str) -> None:
    with LOG.open("a") as file:
        file.write(f"{text}\n")


@scheduler.job(every(seconds=1), overlap="allow(4)")
async def tick(fire: Fire) -> None:
    await asyncio.sleep(1.8)
    note(f"ran {fire.key} {os.getpid()}")


async def work(request: Request) -> JSONResponse:
    await asyncio.sleep(float(request.query_params.get("seconds", "0")))
    return JSONResponse({"pid": os.getpid()})


app = Starlette(routes=[Route("/work", work), Mount("/fencepost", web)], lifespan=scheduler.lifespan)
