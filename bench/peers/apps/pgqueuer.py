"""pgqueuer's schedules, with asyncpg. The body is not told its due time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
from bench.peers.work import Work
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Schedule
from pgqueuer.queries import Queries


def prepare(work: Work) -> None:
    async def install() -> None:
        connection = await asyncpg.connect(work.url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    asyncio.run(install())


def replica(work: Work) -> None:
    async def run() -> None:
        queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(work.url))
        for number in work.numbers():
            queuer.schedule(f"job{number}", f"* * * * * {work.seconds(number)}")(body(work, number))
        work.ready()
        await queuer.run()

    asyncio.run(run())


def body(work: Work, number: int) -> Callable[[Schedule], Awaitable[None]]:
    async def fired(schedule: Schedule) -> None:
        work.note(number)

    return fired
