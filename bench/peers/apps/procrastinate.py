"""procrastinate's periodic tasks, 10 at a time, with LISTEN/NOTIFY."""

from __future__ import annotations

import asyncio

from bench.peers.work import Work
from procrastinate import App, PsycopgConnector


def prepare(work: Work) -> None:
    async def apply_schema() -> None:
        async with App(connector=PsycopgConnector(conninfo=work.url)).open_async() as app:
            await app.schema_manager.apply_schema_async()

    asyncio.run(apply_schema())


def replica(work: Work) -> None:
    app = App(connector=PsycopgConnector(conninfo=work.url))

    @app.task(name="body")
    async def body(timestamp: int, number: int) -> None:
        work.note(number, timestamp)

    for number in work.numbers():
        cron = f"* * * * * {work.seconds(number)}"
        app.periodic(cron=cron, periodic_id=str(number), task_kwargs={"number": number})(body)

    async def run() -> None:
        async with app.open_async():
            work.ready()
            await app.run_worker_async(concurrency=10)

    asyncio.run(run())
