"""Many small jobs on a guarded scheduler of each kind, for the soak: `JOBS` of them, each every `PERIOD` seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.blocking import BlockingScheduler
from fastapi import FastAPI
from flask import Flask

from fencepost.apscheduler import guard
from tests.guard.apps.notes import note

BODY = 0.1


async def coroutine(number: int) -> None:
    note(f"job{number}")
    await asyncio.sleep(BODY)


def function(number: int) -> None:
    note(f"job{number}")
    time.sleep(BODY)


def loaded(scheduler: Any) -> Any:
    """Spread over the whole seconds of a period, from `BEGIN` on; every second one a coroutine, if it can be."""
    guard(scheduler)
    jobs, period = int(os.environ["JOBS"]), int(os.environ["PERIOD"])
    begin = datetime.fromtimestamp(int(os.environ["BEGIN"]), UTC)
    on_loop = isinstance(scheduler, AsyncIOScheduler)
    for number in range(jobs):
        scheduler.add_job(
            coroutine if on_loop and number % 2 else function,
            "interval",
            seconds=period,
            start_date=begin + timedelta(seconds=number % period),
            args=[number],
            id=f"job{number:04}",
            misfire_grace_time=60,
        )
    return scheduler


def asgi() -> FastAPI:
    scheduler = loaded(AsyncIOScheduler(timezone="UTC"))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        scheduler.start()
        yield
        scheduler.shutdown()

    return FastAPI(lifespan=lifespan)


def wsgi() -> Flask:
    loaded(BackgroundScheduler(timezone="UTC")).start()
    return Flask(__name__)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    loaded(BlockingScheduler(timezone="UTC")).start()
