"""SQLite finds the same jobs in the same order however many others are due, and at the same cost."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.model import Job
from fencepost.model.triggers import at
from fencepost.store.base import PutJob, Upcoming
from fencepost.store.sqlite import SqliteStore, due
from fencepost.testing.conformance import HandClock, Harness

TASKS = ("one", "two", "three", "four")


async def opened(folder: Path) -> tuple[SqliteStore, Harness, HandClock]:
    clock = HandClock()
    store = SqliteStore(folder / "store.db", clock=clock)
    await store.open()
    return store, Harness.with_clock(store, clock), clock


async def asked(
    store: SqliteStore, clock: HandClock, name: str, leads: bool, limit: int
) -> tuple[list[str], datetime | None, int]:
    """What a claim asks the store for, and how many instructions of SQLite's machine that took."""

    def ask(rows: object, *_: object) -> tuple[list[str], datetime | None, int]:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        found, replica = rows.jobs, rows.replicas.get(name)  # type: ignore[attr-defined]
        assert store._connection.db is not None
        store._connection.db.set_progress_handler(count, 1)
        try:
            jobs, soonest = found.due(clock.wall(), replica, leads, limit), found.soonest(replica, leads)
        finally:
            store._connection.db.set_progress_handler(None, 0)
        return jobs, soonest, steps

    reply: tuple[list[str], datetime | None, int] = await store._read(ask)
    return reply


async def listed(store: SqliteStore, name: str, leads: bool, limit: int) -> list[Upcoming]:
    def ask(rows: Any, *_: object) -> list[Upcoming]:
        return list(rows.jobs.upcoming(rows.replicas.get(name), leads, limit))

    found: list[Upcoming] = await store._read(ask)
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_ahead_is_listed_beside_a_crowd_as_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    store, harness, clock = await opened(tmp_path)
    try:
        await harness.join("a", *TASKS[:3])
        for number in range(60):
            when = at(
                clock.wall() + timedelta(seconds=chance.choice([100, 200, 300, chance.uniform(400, 500)]))
            )
            job = Job(
                f"job{number}",
                chance.choice(TASKS),
                when,
                priority=chance.choice([0, 0, 0, 0, 1, -1]),
                execute_on=chance.choice(["any", "any", "any", "leader", "gpu"]),
            )
            await store.put_jobs([PutJob(job)])
        await harness.plan(1000)
        for limit in (1, 2, 5, 18, 60, 100):
            for leads in (False, True):
                monkeypatch.setattr(due, "CROWD", 1000)
                alone = await listed(store, "a", leads, limit)
                assert alone
                monkeypatch.setattr(due, "CROWD", -1)
                assert await listed(store, "a", leads, limit) == alone
        soon = at(clock.wall() + timedelta(seconds=5))
        await store.put_jobs([PutJob(Job(f"waits{n}", "one", soon, execute_on="gpu")) for n in range(300)])
        await harness.fall_due(10.0)
        monkeypatch.undo()
        assert await listed(store, "a", True, 18) == alone[:18]
    finally:
        await store.close()


@pytest.mark.parametrize("seed", range(3))
async def test_a_crowd_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    store, harness, clock = await opened(tmp_path)
    try:
        await harness.join("a", *TASKS[:2])
        for number in range(60):
            when = at(clock.wall() + timedelta(seconds=chance.choice([1, 2, 3, 50])))
            job = Job(
                f"job{number}",
                chance.choice(TASKS),
                when,
                priority=chance.choice([0, 0, 0, 0, 1, -1]),
                execute_on=chance.choice(["any", "any", "any", "leader", "gpu"]),
            )
            await store.put_jobs([PutJob(job)])
        await harness.fall_due(4.0)
        for _ in range(20):
            limit, leads, more = (
                chance.choice([1, 3, 20, 100]),
                chance.random() < 0.5,
                chance.choice([0, 2, 10]),
            )
            monkeypatch.setattr(due, "CROWD", 1000)
            alone = await asked(store, clock, "a", leads, limit)
            monkeypatch.setattr(due, "CROWD", 0)
            monkeypatch.setattr(due, "MORE", more)
            assert (await asked(store, clock, "a", leads, limit))[:2] == alone[:2]
    finally:
        await store.close()


async def test_a_pool_without_replicas_costs_the_others_nothing(tmp_path: Path) -> None:
    """Not more than a look at the first of a thousand fires that wait there."""
    store, harness, clock = await opened(tmp_path)
    try:
        await harness.join("a", "work")
        await harness.define("job", at(clock.wall() + timedelta(seconds=30)))
        before = await asked(store, clock, "a", False, 20)
        soon = at(clock.wall() + timedelta(seconds=5))
        await store.put_jobs([PutJob(Job(f"gpu{n}", "work", soon, execute_on="gpu")) for n in range(1000)])
        await harness.fall_due(10.0)
        jobs, soonest, steps = await asked(store, clock, "a", False, 20)
        assert (jobs, soonest) == ([], clock.wall() + timedelta(seconds=20))
        assert steps < before[2] + 4_000, f"{steps} instructions, and {before[2]} before"
    finally:
        await store.close()
