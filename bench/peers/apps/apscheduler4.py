"""APScheduler 4 (pre-release): AsyncScheduler on PostgreSQL with asyncpg, data store and event broker."""

from __future__ import annotations

import asyncio

from apscheduler import AsyncScheduler, CoalescePolicy, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.interval import IntervalTrigger
from bench.peers.work import Work
from sqlalchemy.ext.asyncio import create_async_engine

here: Work
"""The work of this process: jobs are stored by the name of their function, not as closures."""


async def body(number: int) -> None:
    here.note(number, current_job.get().scheduled_fire_time.timestamp())


def prepare(work: Work) -> None:
    async def add_schedules() -> None:
        async with made(work) as scheduler:
            await configured(scheduler)
            for number in work.numbers():
                trigger = IntervalTrigger(seconds=work.period, start_time=work.first(number))
                await scheduler.add_schedule(
                    "body", trigger, id=str(number), args=[number], coalesce=CoalescePolicy.all
                )

    asyncio.run(add_schedules())


def replica(work: Work) -> None:
    global here
    here = work

    async def run() -> None:
        async with made(work) as scheduler:
            await configured(scheduler)
            work.ready()
            await scheduler.run_until_stopped()

    asyncio.run(run())


def made(work: Work) -> AsyncScheduler:
    engine = create_async_engine(work.url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=10)
    return AsyncScheduler(SQLAlchemyDataStore(engine), AsyncpgEventBroker.from_async_sqla_engine(engine))


async def configured(scheduler: AsyncScheduler) -> None:
    await scheduler.configure_task("body", func=body, max_running_jobs=None, misfire_grace_time=60)
