"""FastAPI with APScheduler on its event loop, as many applications have it."""

import asyncio
import os
from contextlib import asynccontextmanager

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI

from fencepost.apscheduler import guard
from tests.guard.apps.notes import note

scheduler = AsyncIOScheduler(timezone="UTC", job_defaults={"misfire_grace_time": 30, "max_instances": 3})
if os.environ.get("GUARDED"):
    guard(scheduler)  # FENCEPOST_STORE names the store


@scheduler.scheduled_job("interval", seconds=1)
async def poll():
    note("poll")
    await asyncio.sleep(0.05)


@scheduler.scheduled_job("cron", second="*")
def tidy():
    note("tidy")


@asynccontextmanager
async def lifespan(app):
    scheduler.start()
    scheduler.add_job(greet, "interval", seconds=1, args=["late"])
    yield
    scheduler.shutdown()


async def greet(whom):
    note("greet")


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def home():
    return {"jobs": [job.name for job in scheduler.get_jobs()]}
