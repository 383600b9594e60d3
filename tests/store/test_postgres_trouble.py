"""PostgreSQL as it is run: short timeouts of the role, no connection left, a full disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from fencepost.errors import StoreUnavailable
from fencepost.model.triggers import every
from fencepost.store.base import PutJob
from fencepost.store.postgres import PostgresStore
from fencepost.testing.conformance import job_of
from tests.servers import PostgresServer, postgres
from tests.servers.disks import disk
from tests.store.test_postgres_own import answers, join, run_one, until


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# --- timeouts of the role -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", ["statement_timeout", "idle_session_timeout"])
async def test_timeouts_that_the_role_has_for_others_are_not_for_us(postgres_url: str, timeout: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        async with opened(postgres_url) as store:  # the tables are there
            await join(store, "b")
        admin.execute(f"alter database {admin.info.dbname} set {timeout} = '200ms'".encode())
        async with opened(postgres_url) as store:
            await join(store, "a")

            async def has_line() -> bool:
                await store.wait(0.01)
                return store._signs.line().db is not None

            await until(has_line)
            line = store._signs.line().db
            with psycopg.connect(postgres_url) as other:
                other.execute("set statement_timeout = 0; set idle_session_timeout = 0")
                other.execute("select fencepost.alone()")
                adding = asyncio.create_task(store.put_jobs([PutJob(job_of("job", every(seconds=1)))]))
                await asyncio.sleep(0.6)
                other.rollback()
                await adding
            assert store._signs.line().db is line, "its session has not ended"


async def test_it_is_made_although_the_role_has_a_short_statement_timeout(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"alter database {admin.info.dbname} set statement_timeout = '20ms'".encode())
    store = PostgresStore(postgres_url)
    await until(lambda: answers(store))  # the first statements have no more time than the role gives
    await join(store, "a")
    await run_one(store)
    await store.close()


# --- connections ------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_without_a_free_connection_it_says_what_to_do_and_recovers(caplog: Any) -> None:
    with postgres(16, max_connections=10, superuser_reserved_connections=0, max_wal_senders=0) as server:
        async with opened(server.url) as store:
            await join(store, "a")
            hogs = take_all(server)
            with pytest.raises(StoreUnavailable, match=r"too many clients.*max_connections"):
                await PostgresStore(server.url).open()
            try:
                await run_one(store)  # it has its connection
            except StoreUnavailable:
                pytest.fail(f"the server ended its session; its log: {server.told()}")
            # The line is cut and finds no place: that is said once, and everything else goes on.
            line = store._signs.line().db
            assert line is not None
            with caplog.at_level(logging.WARNING, "fencepost"):
                hogs[0].execute("select pg_terminate_backend(%s, 5000)", (line.info.backend_pid,))
                hogs += take_all(server)

                async def told() -> bool:
                    return "no hints from the store" in caplog.text

                await until(told)
            assert caplog.text.count("no hints from the store") == 1
            assert "max_connections" in caplog.text
            await run_one(store)
            for hog in hogs:
                hog.close()
            async with opened(server.url) as other:
                assert await answers(other)

                async def is_back() -> bool:
                    return store._signs.line().db is not None

                await until(is_back)


def take_all(server: PostgresServer) -> list[Any]:
    hogs: list[Any] = []
    while len(hogs) < 100:
        try:
            hogs.append(psycopg.connect(server.url, autocommit=True))
        except psycopg.OperationalError:
            return hogs
    raise AssertionError("there is always one more")


# --- the disk -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_full_disk_is_an_outage_with_a_remedy_and_ends_by_itself() -> None:
    with ExitStack() as stack:
        made = stack.enter_context(disk())
        if made is None:
            pytest.skip("no C compiler (cc)")
        server = stack.enter_context(postgres(16, env=made.env))
        async with opened(server.url) as store:
            await join(store, "a")
            await run_one(store)
            made.fill()
            number = 0

            async def says() -> str:
                nonlocal number
                number += 1
                try:
                    await store.put_jobs(
                        [PutJob(job_of(f"job{number}-{n}", every(hours=1))) for n in range(200)]
                    )
                except StoreUnavailable as error:
                    return str(error)
                return ""

            while not (said := await says()):
                assert number < 100
            assert "No space left on device; free space on the server's disk" in said
            jobs = len(await store.jobs())
            assert jobs % 200 == 1, "all of a step or nothing"
            made.free()
            await store.put_jobs([PutJob(job_of("another", every(hours=1)))])
            await run_one(store)
