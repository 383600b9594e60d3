"""Which jobs PostgreSQL finds due: the same by each way, and at a cost that follows what a replica can run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from fencepost import at
from fencepost.model import FireRecord, Job
from fencepost.model.triggers import every
from fencepost.store.base import PutJob
from fencepost.store.postgres import PostgresStore, schema
from fencepost.store.postgres.fast import CONTENDED
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.comparison import compare
from tests.store.on_postgres import a_harness

ROWS = """
select coalesce(sum(idx_scan + idx_tup_fetch), 0)::bigint from pg_stat_user_tables
where schemaname = 'fencepost' and relname in ('jobs', 'planned', 'replica_targets')
"""
IN_ANOTHER_POOL = Job("foreign", "work", execute_on="gpu")
OF_ANOTHER_TASK = Job("foreign", "unknown")
BY_TASK = {
    "turns": {"+ 20": "* 0"},
    "ahead": {"+ 20": "* 0", "limit 20": "limit 0", "offset 20 ": "offset 0 "},
}
"""Whatever is due counts as a crowd."""
WALKED = {
    "turns": {"+ 20": "* 0", "offset 200": "offset 0"},
    "ahead": {"limit 20": "limit 0", "offset 20 ": "offset 0 ", "offset 200": "offset 0"},
}
"""The same for a replica that knows too many tasks to ask for each; it lists nothing beside a crowd."""
BY_POOL = {"turns": {"cardinality(its_pools) > 1": "true"}, "ahead": {"cardinality(its_pools) = 1": "false"}}
"""Each replica is in several pools."""


async def rows_read(harness: Harness, step: Callable[[], Awaitable[object]]) -> int:
    """By the store's own session, and how often it was asked for some."""
    store = harness.store
    assert isinstance(store, PostgresStore)

    async def so_far() -> int:
        await store._session.ask(lambda db: db.one("select pg_stat_force_next_flush()"))
        return int((await store._session.ask(lambda db: db.one(ROWS)))[0])

    before = await so_far()
    await step()
    return await so_far() - before


@pytest.mark.parametrize(
    ("priority", "pools"), [(0, [""]), (5, [""]), (-5, [""]), (0, ["", "@big"])], ids=str
)
async def test_a_pool_without_replicas_costs_the_others_nothing(
    postgres_url: str, priority: int, pools: list[str]
) -> None:
    """Claims, what they list as ahead, settles and plans read as much beside a thousand fires that wait there."""
    async with a_harness(postgres_url) as harness:
        await harness.join("a", *(f"task{n}{pool}" for n in range(50) for pool in pools))
        for n in range(10):
            await harness.define(f"job{n}", every(seconds=10), target=f"task{n}")

        async def costs() -> dict[str, int]:
            fires: list[FireRecord] = []

            async def claim() -> None:
                claimed = await harness.ask("a", 20, ahead=6)
                fires.extend(each.fire for each in claimed.claims)
                assert len(fires) == 10
                assert len(claimed.ahead) == 6

            async def settle() -> None:
                for fire in fires:
                    assert await harness.settle(fire)

            planned = await rows_read(harness, lambda: harness.fall_due(10.0))
            return {
                "plan": planned,
                "claim": await rows_read(harness, claim),
                "settle": await rows_read(harness, settle),
            }

        await costs()
        alone = await costs()
        soon = at(await harness.now() + timedelta(seconds=5))
        await harness.store.put_jobs(
            [PutJob(Job(f"gpu{n}", "task1", soon, execute_on="gpu", priority=priority)) for n in range(1000)]
        )
        await costs()  # these fires are planned as well
        beside = await costs()
        assert all(beside[step] <= 1.2 * read for step, read in alone.items()), (alone, beside)


@pytest.mark.parametrize("crowd", [IN_ANOTHER_POOL, OF_ANOTHER_TASK], ids=["pool", "task"])
async def test_what_is_ahead_is_listed_beside_a_crowd(postgres_url: str, crowd: Job) -> None:
    """So that replicas go on to ask by rank."""
    async with a_harness(postgres_url) as harness:
        await harness.join("a", "work", "other")
        now = await harness.now()
        own = [
            Job(f"own{n:02}", ("work", "other")[n % 2], at(now + timedelta(seconds=60 + n)))
            for n in range(30)
        ]
        own.append(Job("lead", "work", at(now + timedelta(seconds=61, milliseconds=5)), execute_on="leader"))
        own.append(Job("first", "other", at(now + timedelta(seconds=61, milliseconds=7)), priority=5))
        await harness.store.put_jobs([PutJob(job) for job in own])
        await harness.plan(100)
        alone = {number: (await harness.ask("a", ahead=number)).ahead for number in (1, 5, 18, 60)}
        assert [len(each) for each in alone.values()] == [1, 5, 18, 31]
        soon = at(now + timedelta(seconds=5))
        await harness.store.put_jobs(
            [PutJob(replace(crowd, id=f"foreign{n}", trigger=soon)) for n in range(400)]
        )
        await harness.fall_due(10.0)
        for number, listed in alone.items():
            assert (await harness.ask("a", ahead=number)).ahead == listed


async def test_a_replica_of_many_tasks_walks_through_what_is_due(postgres_url: str) -> None:
    """To ask for each of its tasks would cost more."""
    async with a_harness(postgres_url) as harness:
        await harness.join("a", *(f"task{n}" for n in range(3000)), "work")
        await harness.define("job", every(seconds=10))
        soon = at(await harness.now() + timedelta(seconds=5))
        await harness.store.put_jobs(
            [PutJob(replace(OF_ANOTHER_TASK, id=f"foreign{n}", trigger=soon)) for n in range(50)]
        )
        await harness.fall_due(10.0)
        assert await rows_read(harness, lambda: harness.claim("a")) < 1000


@pytest.mark.parametrize("instead", [BY_TASK, WALKED, BY_POOL], ids=["by task", "walked", "by pool"])
async def test_each_way_finds_the_same(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, instead: dict[str, dict[str, str]]
) -> None:
    scripts = {name: schema.script(name) for name in schema.SCRIPTS}
    for name, words in instead.items():
        for old, new in words.items():
            assert old in scripts[name]
            scripts[name] = scripts[name].replace(old, new)
    monkeypatch.setattr(schema, "script", scripts.__getitem__)
    for seed in range(6):
        clock = HandClock()
        store = PostgresStore(postgres_url, f"seed{seed}", clock)
        await store.open()
        await compare(Harness.with_clock(store, clock), seed, 100)
        await store.close()


@pytest.mark.parametrize(
    ("crowd", "pool"),
    [(IN_ANOTHER_POOL, "any"), (OF_ANOTHER_TASK, "any"), (IN_ANOTHER_POOL, "big"), (OF_ANOTHER_TASK, "big")],
    ids=["pool", "task", "two pools", "task of two pools"],
)
async def test_in_a_crowd_jobs_that_others_hold_are_passed_over(
    postgres_url: str, crowd: Job, pool: str
) -> None:
    async with a_harness(postgres_url) as harness:
        await harness.join("a", "work", "other", *([f"other@{pool}"] if pool != "any" else []))
        soon = await harness.now() + timedelta(seconds=5)
        foreign = [replace(crowd, id=f"foreign{n}", trigger=at(soon)) for n in range(100)]
        own = [
            Job(f"own{n:02}", "other" if n % 2 else "work", at(soon), execute_on=pool if n % 2 else "any")
            for n in range(30)
        ]
        await harness.store.put_jobs([PutJob(job) for job in (*foreign, *own)])
        await harness.fall_due(10.0)
        with psycopg.connect(postgres_url) as another:
            another.execute(
                "select 1 from fencepost.jobs where id like 'own%' and id < 'own20' for no key update"
            )
            first = [fire.job_id for fire in await harness.claims("a", 4)]
            assert first == ["own20", "own21", "own22", "own23"]
            claimed = await harness.ask("a", 10)
            assert len(claimed.claims) == 6
            assert claimed.wake_in == CONTENDED, "another session holds what is left"
        assert len(await harness.claims("a", 100)) == 20
