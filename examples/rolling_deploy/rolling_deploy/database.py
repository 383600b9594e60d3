"""The application's own tables and its pool. The scheduler keeps its tables in the same database, in its own schema."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

Connection = AsyncConnection[tuple[Any, ...]]
Pool = AsyncConnectionPool[Connection]

URL = os.environ.get("DATABASE_URL", "postgresql://localhost/rolling_deploy")
PATIENCE = float(os.environ.get("DATABASE_PATIENCE", "3"))
"""Seconds a request waits for a connection. After that it fails, and nothing is done."""
START_PATIENCE = 30.0
"""Seconds a start waits for the first connection. No request is waiting yet, and a machine that deploys is busy."""

# All but `actions` are without a key: what happened twice would be there twice. Only claims keep it out.
TABLES = """
create table if not exists actions (
    id bigint primary key, title text not null, every interval not null,
    anchor timestamptz not null default clock_timestamp()
);
create table if not exists runs (
    action_id bigint not null references actions, due_at timestamptz not null,
    claimed_at timestamptz not null default clock_timestamp(), claimed_by text not null
);
create table if not exists messages (action_id bigint not null, due_at timestamptz not null, sent_by text not null);
create table if not exists ticks (fire text not null, pid int not null);
create table if not exists steps (fire text not null, step int not null, pid int not null);
"""

# "If not exists" alone is no help against a process that creates them at the same moment.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('rolling_deploy.tables'))"


@asynccontextmanager
async def open_pool(url: str = URL) -> AsyncIterator[Pool]:
    """A pool, and the tables in place. Fails where the database does not answer: whoever starts us tries again."""
    pool: Pool = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=5,
        timeout=PATIENCE,
        kwargs={"autocommit": True, "connect_timeout": 3},
        check=AsyncConnectionPool.check_connection,
        open=False,
    )
    async with pool:
        async with pool.connection(timeout=START_PATIENCE) as connection:
            await create_tables(connection)
        yield pool


async def create_tables(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute(ONE_AT_A_TIME)
        await connection.execute(TABLES)
