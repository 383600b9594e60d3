"""pyncette's dynamic tasks, on PostgreSQL, Valkey or SQLite.

Polls each second, its default. Leases of 10 s; its default is 60.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from bench.peers.work import Work
from pyncette import Context, Pyncette


def prepare(work: Work) -> None:
    async def schedule() -> None:
        app, body = made(work)
        async with app.create() as context:
            for number in work.numbers():
                cron = f"* * * * * {work.seconds(number)}"
                await context.schedule_task(body, str(number), schedule=cron, number=number)

    asyncio.run(schedule())


def replica(work: Work) -> None:
    async def run() -> None:
        app, _ = made(work)
        async with app.create() as context:
            work.ready()
            await context.run()

    asyncio.run(run())


def made(work: Work) -> tuple[Pyncette, Any]:
    app = Pyncette(**repository(work))

    @app.dynamic_task(lease_duration=timedelta(seconds=10))
    async def body(context: Context) -> None:
        work.note(context.args["number"], context.scheduled_at.timestamp())

    return app, body


def repository(work: Work) -> dict[str, Any]:
    if work.url.startswith("postgresql"):
        from pyncette.postgres import postgres_repository

        return {"repository_factory": postgres_repository, "postgres_url": work.url}
    if work.url.startswith("sqlite"):
        from pyncette.sqlite import sqlite_repository

        path = work.url.removeprefix("sqlite:///")
        return {"repository_factory": sqlite_repository, "sqlite_database": path}
    from pyncette.redis import redis_repository

    return {"repository_factory": redis_repository, "redis_url": work.url}
