"""A store that an earlier version has written is brought up to date when it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg

from fencepost.model import JobRecord, State
from fencepost.store.postgres import PostgresStore
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import HandClock, Harness
from tests.store.on_postgres import a_harness

TO_SCHEMA_1 = """
drop table fencepost_outcomes;
drop index fencepost_jobs_due; drop index fencepost_jobs_priority; alter table fencepost_jobs drop column priority;
drop index fencepost_fires_open; drop index fencepost_fires_done; drop index fencepost_fires_unsuccessful;
drop index fencepost_fires_queued; drop index fencepost_fires_stretches;
create index fencepost_fires_due on fencepost_fires (due_at);
update fencepost_meta set value = '1' where name = 'schema';
"""

TO_INDEXES_WITHOUT_POOLS = """
drop index fencepost.jobs_by_pool, fencepost.jobs_above_by_pool, fencepost.jobs_below_by_pool,
    fencepost.replica_pools;
drop function fencepost.pools, fencepost.soonest_of_all;
create index jobs_look on fencepost.jobs (look_at, id) where look_at is not null;
create index jobs_above on fencepost.jobs (look_at) where priority > 0 and look_at is not null;
create index jobs_below on fencepost.jobs (look_at) where priority < 0 and look_at is not null
"""


async def some_runs(harness: Harness) -> JobRecord:
    fire = await harness.running()
    await harness.define("never")
    for state in (State.SUCCEEDED, State.FAILED, State.LOST):
        await harness.settle(fire, state)
        await harness.fall_due()
        fire = await harness.claim("a")
    return await harness.job("job")


async def check(harness: Harness, before: JobRecord) -> None:
    job = await harness.job("job")
    assert before.failures_in_a_row == 2
    assert before.last_run is not None
    assert (job.last_run, job.last_success_at, job.failures_in_a_row) == (
        before.last_run,
        before.last_success_at,
        2,
    )
    assert (await harness.job("never")).last_run is None
    (running,) = await harness.fires("job", State.RUNNING)
    await harness.settle(running)
    assert (await harness.job("job")).failures_in_a_row == 0


async def test_a_sqlite_database_of_schema_1_goes_on(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "fencepost.db"
    store = SqliteStore(path, clock=clock)
    await store.open()
    before = await some_runs(Harness.with_clock(store, clock))
    await store.close()
    with sqlite3.connect(path) as db:
        db.executescript(TO_SCHEMA_1)
    store = SqliteStore(path, clock=clock)
    await store.open()
    await check(Harness.with_clock(store, clock), before)
    await store.close()
    with sqlite3.connect(path) as db:
        indexes = {name for (name,) in db.execute("select name from sqlite_master where type = 'index'")}
    assert {"fencepost_fires_open", "fencepost_jobs_due"} <= indexes
    assert "fencepost_fires_due" not in indexes


def to_postgresql_schema_1(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("drop table fencepost.outcomes, fencepost.later")
        admin.execute(TO_INDEXES_WITHOUT_POOLS)
        admin.execute("drop index fencepost.jobs_due")
        admin.execute("alter table fencepost.jobs drop column priority")
        admin.execute("update fencepost.meta set value = '1' where name = 'schema'")
        admin.execute(
            "do $$ begin execute (select string_agg(format('drop function %s;', oid::regprocedure), '')"
            " from pg_proc where proname in ('settle', 'close_row', 'turns', 'turns_of_many', 'is_crowded_out',"
            " 'soonest', 'upcoming', 'upcoming_by_task')); end $$"
        )


async def test_a_postgresql_schema_1_goes_on(postgres_url: str) -> None:
    async with a_harness(postgres_url) as harness:
        before = await some_runs(harness)
        to_postgresql_schema_1(postgres_url)
        newer = PostgresStore(postgres_url, clock=harness.store._clock)  # type: ignore[attr-defined]
        await newer.open()
        harness.store = newer
        await check(harness, before)
        await newer.close()


async def test_postgresql_indexes_by_pool_are_added(postgres_url: str) -> None:
    """To a database of the same format, by the first replica that has them."""

    def indexes() -> set[str]:
        with psycopg.connect(postgres_url) as admin:
            found = admin.execute("select indexname from pg_indexes where tablename = 'jobs'")
            return {name for (name,) in found}

    async with a_harness(postgres_url) as harness:
        made_new = indexes()
        before = await some_runs(harness)
        with psycopg.connect(postgres_url) as admin:
            admin.execute(TO_INDEXES_WITHOUT_POOLS)
        assert {"jobs_look", "jobs_above", "jobs_below"} <= indexes()
        newer = PostgresStore(postgres_url, clock=harness.store._clock)  # type: ignore[attr-defined]
        await newer.open()
        assert indexes() == made_new
        assert await harness.claims("a", 1) == [], "the replica from before goes on"
        harness.store = newer
        await check(harness, before)
        await newer.close()
