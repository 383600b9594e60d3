"""System D, rows D1 to D3: claims on PostgreSQL, one per action, recorded, and nothing done where one fails.

Two kinds of claims are looked at: the scheduler's own, and those of `examples/rolling_deploy`, whose requests and jobs
look at rows of the application and then act on them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.store.base import Settle
from fencepost.store.postgres import PostgresStore
from fencepost.store.postgres.names import SPACE as OUR_SPACE
from fencepost.testing.conformance import HandClock, Harness
from rolling_deploy import database
from rolling_deploy.actions import SPACE, Claim, claim, run_if_due
from rolling_deploy.database import Connection, create_tables
from tests.acceptance.rolling import Books, all_ready, application
from tests.servers import Proxy, cut_before
from tests.web.serving import PATIENCE, client_of, eventually

pytestmark = pytest.mark.cluster

# Runs when everything else of a transaction has been done, just before its commit.
WITNESS = """
create table witness (advisory_locks bigint);
create function at_commit() returns trigger language plpgsql as $$ begin
    insert into witness select count(*) from pg_locks
        where pid = pg_backend_pid() and locktype = 'advisory' and objsubid = 2 and classid = tg_argv[0]::oid;
    return null;
end $$;
create constraint trigger witness after insert on {table} deferrable initially deferred
    for each row execute function at_commit({space});
"""
HELD = "select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and classid = %s"


async def one(connection: Connection, query: str, *values: Any) -> Any:
    row = await (await connection.execute(query.encode(), values or None)).fetchone()
    return row and row[0]


@asynccontextmanager
async def connections(url: str, number: int) -> AsyncIterator[list[Connection]]:
    """To the example's tables, with three actions."""
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
            for _ in range(number)
        ]
        await create_tables(made[0])
        await made[0].execute(
            "insert into actions (id, title, every) select n, 'an action', interval '1 hour'"
            " from unnest(%s::bigint[]) n",
            ([1, 5, COLLIDING],),
        )
        yield made


@asynccontextmanager
async def harnesses(url: str, number: int, namespace: str = "default") -> AsyncIterator[list[Harness]]:
    """Of so many stores, each with a connection of its own, and one time for all."""
    clock = HandClock()
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(number):
            store = PostgresStore(url, namespace, clock)
            await store.open()
            stack.push_async_callback(store.close)
            made.append(Harness.with_clock(store, clock))
        yield made


# --- D1 -------------------------------------------------------------------------------------------------


async def test_d1_a_manual_action_is_claimed_once_and_recorded_before_the_lock_goes(
    postgres_url: str,
) -> None:
    """D1: `pg_try_advisory_xact_lock` for each action. Of many who trigger it at once one is admitted, nobody waits in
    the server, and the record is there before the locks are gone."""
    async with (
        harnesses(postgres_url, 4) as here,
        connections(postgres_url, 2) as (outside, holder),
    ):
        await here[0].join("a")
        for job in ("act", "other"):
            await here[0].define(job)
        await outside.execute(WITNESS.format(table="fencepost.live", space=OUR_SPACE).encode())

        # The lock of an action is its own, and ends with the transaction that has it.
        async with holder.transaction():
            assert await one(holder, "select fencepost.act('act')") is not None
            assert await one(outside, "select fencepost.act('act')") is None, "nobody waits for the lock"
            waiting = [
                asyncio.create_task(each.trigger("act", f"n{n}", if_active="refuse"))
                for n, each in enumerate(here)
                if n
            ]
            assert (await here[0].trigger("other")).outcome == "added", "another action waits for nobody"
            await asyncio.sleep(0.2)
            assert not await blocked(holder), "those who want it come again, and hold no connection up"
            assert not any(task.done() for task in waiting)
        outcomes = sorted([(await task).outcome for task in waiting])
        assert outcomes == ["active", "active", "added"]

        held = await (await outside.execute("select advisory_locks from witness")).fetchall()
        assert held == [(1,), (1,)], "the record is written while the locks are held"
        assert await one(outside, HELD, OUR_SPACE) == 0, "and they are gone with the commit"


async def test_d1_the_loser_does_not_run_the_action_a_minute_later(postgres_url: str) -> None:
    """D1: two replicas claim one fire at once; the loser finds it decided, a minute later and when it has run."""
    async with harnesses(postgres_url, 2) as (first, second):
        await first.join("a")
        await first.define("act", every(minutes=10))
        await second.join("b")
        await first.fall_due(600)
        claims = await asyncio.gather(first.claims("a"), second.claims("b"))
        (fire,) = [fire for claimed in claims for fire in claimed]
        by_name = {"a": first, "b": second}
        winner_name, name = ("a", "b") if claims[0] else ("b", "a")
        winner, loser = by_name[winner_name], by_name[name]
        await first.elapse(60)
        assert await loser.claims(name) == [], "it is running, and that is on record"
        assert await winner.update(Settle(fire.key, fire.token, State.SUCCEEDED), winner_name)
        await first.elapse(60)
        assert await loser.claims(name) == [], "it has run, and that is on record"
        assert [each.attempt for each in await first.fires("act", State.SUCCEEDED)] == [1]


async def test_d1_a_counted_overlap_is_never_exceeded(postgres_url: str) -> None:
    """D1: four replicas look at once how many runs of an action there are, and may start two."""
    async with harnesses(postgres_url, 4) as here:
        replicas = dict(zip("abcd", here, strict=True))
        for name, each in replicas.items():
            await each.join(name)
        await here[0].define("act", overlap="allow(2)")
        added = await asyncio.gather(*(each.trigger("act", f"n{n}") for n, each in enumerate(here)))
        assert [each.outcome for each in added] == ["added"] * 4
        left = 4
        while left:
            claimed = await asyncio.gather(*(each.claims(name) for name, each in replicas.items()))
            running = [(name, fire) for name, fires in zip(replicas, claimed, strict=True) for fire in fires]
            assert len(running) == 2
            for name, fire in running:
                assert await replicas[name].update(Settle(fire.key, fire.token, State.SUCCEEDED), name)
            left -= 2


async def test_d1_what_requests_and_jobs_check_and_then_act_on_is_claimed_alike(postgres_url: str) -> None:
    """D1: the example's `pg_try_advisory_xact_lock(namespace, key)`: nobody waits, and the run is recorded."""
    async with connections(postgres_url, 8) as made:
        first, second = made[:2]
        await first.execute(WITNESS.format(table="runs", space=SPACE).encode())
        async with first.transaction():
            assert (await claim(first, 1, "first"))[0] is Claim.WON
            async with asyncio.timeout(2):
                assert (await claim(second, 1, "second"))[0] is Claim.BUSY, "nobody waits for a lock"
        assert await one(first, "select advisory_locks from witness") == 1
        # The document's code stops here: the lock is free again, and whoever takes it would act.
        async with second.transaction():
            assert await one(second, "select pg_try_advisory_xact_lock(%s, hashint8(1))", SPACE)
        assert await run_if_due(second, 1, "second") is Claim.NOT_DUE
        assert await one(first, "select count(*) from runs where action_id = 1") == 1

        claimed = await asyncio.gather(*(run_if_due(each, 5, f"c{n}") for n, each in enumerate(made)))
        assert claimed.count(Claim.WON) == 1
        assert await one(first, "select count(*) from messages where action_id = 5") == 1


# --- D2 -------------------------------------------------------------------------------------------------

COLLIDING = 2**32 + 4
"""A bigint with the hash of 5."""


async def test_d2_keys_have_a_space_of_their_own_and_a_collision_costs_a_retry(postgres_url: str) -> None:
    """D2: bigint ids, other features' locks, and two actions with one key."""
    async with connections(postgres_url, 3) as (first, second, other):
        assert await one(first, "select hashint8(5) = hashint8(%s)", COLLIDING)
        with pytest.raises(psycopg.errors.UndefinedFunction):  # why the id is hashed
            await first.execute("select pg_try_advisory_xact_lock(1, %s::bigint)", (COLLIDING,))
        async with other.transaction(), first.transaction():
            for space in (1, OUR_SPACE):
                assert await one(other, "select pg_try_advisory_xact_lock(%s, hashint8(5))", space)
            assert (await claim(first, 5, "first"))[0] is Claim.WON, "the locks of others are others'"
            retried = asyncio.create_task(run_if_due(second, COLLIDING, "second"))
            assert (await claim(other, COLLIDING, "other"))[0] is Claim.BUSY
        assert await retried is Claim.WON
        assert await one(first, "select array_agg(action_id order by action_id) from runs") == [5, COLLIDING]


async def test_d2_namespaces_with_one_key_wait_for_each_other_and_nothing_worse(postgres_url: str) -> None:
    """D2: the scheduler's own key is made from the namespace; two that fall together stay two."""
    one_name, other_name = colliding_namespaces()
    async with (
        harnesses(postgres_url, 1, one_name) as (here,),
        harnesses(postgres_url, 1, other_name) as (there,),
        connections(postgres_url, 1) as (holder,),
    ):
        for each in (here, there):
            await each.join("a")
            await each.define("act")
        async with holder.transaction():
            await holder.execute(f'select "fencepost_{one_name}".alone()'.encode())
            waiting = asyncio.create_task(there.trigger("act"))
            await eventually_async(lambda: blocked(holder))
            assert not waiting.done()
        assert (await waiting).outcome == "added"
        assert (await there.claim("a")).key == "act!by-hand"
        assert await here.claims("a") == [], "nothing of the one is in the other"


def colliding_namespaces() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in range(1_000_000):
        name = f"n{number * 2_654_435_761 % 2**32:x}"
        key = zlib.crc32(f"fencepost_{name}".encode())
        if key in seen:
            return seen[key], name
        seen[key] = name
    raise AssertionError("a million names, and no two keys alike")


async def blocked(by: Connection) -> bool:
    query = "select count(*) from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))"
    return bool(await one(by, query))


async def eventually_async(condition: Any, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.01)


# --- D3 -------------------------------------------------------------------------------------------------


async def test_d3_a_start_is_more_patient_with_the_database_than_a_request(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the first connection of a starting instance takes long; that must not end the instance."""
    monkeypatch.setattr(database, "PATIENCE", 0.000_001)
    async with database.open_pool(postgres_url) as pool:
        async with pool.connection(timeout=PATIENCE) as connection:
            assert await one(connection, "select count(*) from actions") == 0
        async with AsyncExitStack() as stack:
            for _ in range(pool.max_size):
                await stack.enter_async_context(pool.connection(timeout=PATIENCE))
            with pytest.raises(PoolTimeout):
                await pool.getconn()


def test_d3_without_lock_or_store_nothing_is_executed(postgres_url: str, tmp_path: Path) -> None:
    """D3: the database is cut off: requests are refused, no job starts, nobody falls back to a single instance."""
    with (
        Proxy(postgres_url) as proxy,
        application(proxy.url, tmp_path / "a") as process,
        Books(postgres_url) as books,
        client_of(process.url) as client,
    ):
        all_ready(process)
        books.add_action(1)
        eventually(lambda: books.messages() == [1])  # by the job
        books.add_action(2, "1 second")
        assert client.post("/actions/2/run").status_code == 200
        proxy.rule(cut_before)
        proxy.cut()
        lost = {"ready": False, "reason": "store_lost"}
        eventually(lambda: client.get("/health/ready").json() == lost)
        done = books.ticks(), books.messages()
        books.add_action(3)
        # A second each: more than a period of the jobs and of the action.
        assert client.post("/actions/2/run").status_code == 503
        assert client.post("/actions/3/run").status_code == 503
        assert client.get("/livez").status_code == 200
        assert (books.ticks(), books.messages()) == done
        proxy.clear()
        eventually(lambda: len(books.ticks()) > len(done[0]))
        eventually(lambda: 3 in books.messages())
        books.all_once()
        assert books.messages().count(3) == 1
