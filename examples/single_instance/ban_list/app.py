"""FastAPI, an SQLite file, and an APScheduler on the application's event loop.

`guard` makes sure that there is one scheduler: all jobs run in the process that leads, and the others stand by.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI, Query
from pydantic import IPvAnyAddress

from ban_list import database
from fencepost import SingleInstance, current_fire
from fencepost.apscheduler import guard

ONE_PROCESS = SingleInstance(workers="BAN_LIST_WORKERS", strict=True)
many = os.environ.get("BAN_LIST_MODE") == "many"

scheduler = AsyncIOScheduler(timezone="UTC", job_defaults={"misfire_grace_time": None, "max_instances": 3})
guarded = guard(scheduler, store=f"sqlite:///{database.FILE}", single_instance=False if many else ONE_PROCESS)
service = guarded.native.asgi(replica=False)


def lift() -> None:
    """A plain function: it runs in a thread."""
    database.lift(current_fire().key)


async def count() -> None:
    """A coroutine: it runs on the application's event loop."""
    await asyncio.to_thread(database.count, current_fire().key)


scheduler.add_job(lift, "interval", seconds=1, id="lift")
scheduler.add_job(count, "cron", second="*", id="count")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    database.create()
    scheduler.start()  # raises, and so ends the start, unless BAN_LIST_WORKERS is 1
    async with service.lifespan(app):
        yield
    scheduler.shutdown()


app = FastAPI(lifespan=lifespan)
app.mount("/fencepost", service)


@app.get("/")
def home() -> dict[str, Any]:
    return {"pid": os.getpid(), "banned": database.banned(), "runs": database.runs()}


@app.put("/bans/{address}")
def ban(address: IPvAnyAddress, seconds: Annotated[int, Query(ge=1, le=86_400)] = 60) -> dict[str, int]:
    database.ban(str(address), seconds)
    return {str(address): seconds}
