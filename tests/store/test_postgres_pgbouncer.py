"""The PostgreSQL store behind a real PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from fencepost.store.base import PutJob
from fencepost.store.postgres import PostgresStore, connection
from fencepost.store.postgres.connection import connect
from fencepost.store.postgres.names import PostgresNames
from fencepost.testing.conformance import HandClock, Harness, job_of
from tests.protocol.comparison import ComparedStore, compare
from tests.servers import PostgresServer, ServerMissing
from tests.servers.pgbouncer import PgBouncer, pgbouncer
from tests.store.on_postgres import a_harness
from tests.store.test_postgres_own import answers, join, run_one, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pooler(postgres_servers: Any) -> Iterator[PgBouncer]:
    try:
        made = pgbouncer(postgres_servers(16))
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with made as server:
        yield server


@pytest.fixture
def url(pooler: PgBouncer, postgres_url: str) -> str:
    return pooler.through(postgres_url)


@asynccontextmanager
async def opened(url: str, *args: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, *args)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class TestPgBouncer(ComparedStore):
    @pytest.fixture
    async def harness(
        self, pooler: PgBouncer, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Harness]:
        # These tests say nothing of who is silent in a step: on a busy machine they are, for half a second.
        patient = connection._BEGIN_AND_ASK.replace("'500'", "'60000'")
        assert patient != connection._BEGIN_AND_ASK
        monkeypatch.setattr(connection, "_BEGIN_AND_ASK", patient)
        async with a_harness(pooler.url, direct=postgres_server.url) as harness:
            yield harness


async def test_hints_come_by_looking_and_the_log_says_why(url: str, caplog: Any) -> None:
    async with opened(url) as store, opened(url) as other:
        await join(store, "a")
        await run_one(store)
        while await store.wait(0.01):
            pass
        waiting = asyncio.create_task(store.wait(60))
        await other.put_jobs([PutJob(job_of("another"))])
        assert await asyncio.wait_for(waiting, 20)
    assert "reached through a pooler" in caplog.text


async def test_many_replicas_share_a_few_server_processes(pooler: PgBouncer, url: str) -> None:
    """More stores than the pool has server processes, at work at the same time."""
    clocks = [HandClock() for _ in range(8)]
    async with asyncio.TaskGroup() as group:
        for number, clock in enumerate(clocks):
            group.create_task(compared(url, number, clock))


async def compared(url: str, number: int, clock: HandClock) -> None:
    async with opened(url, f"seed{number}", clock) as store:
        await compare(Harness.with_clock(store, clock), 200 + number, 60)


async def test_a_replica_that_is_stopped_in_a_fast_step_holds_nobody_up(url: str) -> None:
    """Behind a pooler such a step holds its locks until its client sends the commit."""
    async with opened(url) as store:
        await join(store, "a")
        stopped = connect(url, PostgresNames("default"))
        try:
            stopped.begin()
            stopped.one("select {schema}.plainly()")
            await join(store, "b")  # a step that is alone; it waits for locks for 4 s at the most
            with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                stopped.execute("commit")
        finally:
            stopped.close()


async def test_a_restart_of_the_pooler_is_an_outage_and_ends(url: str, pooler: PgBouncer) -> None:
    async with opened(url) as store:
        await join(store, "a")
        pooler.restart()
        await until(lambda: answers(store))
        await run_one(store)


async def test_the_server_behind_the_pooler_restarts(
    pooler: PgBouncer, url: str, postgres_server: PostgresServer
) -> None:
    async with opened(url) as store:
        await join(store, "a")
        postgres_server.restart()
        await until(lambda: answers(store))
        await run_one(store)
