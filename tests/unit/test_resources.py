"""What runs are handed beside their arguments."""

# mypy: no-check-untyped-defs

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from fencepost import ConfigurationError, Fire, Scheduler, State
from fencepost.store.memory import MemoryStore
from fencepost.testing import virtual

log: list[str] = []


@pytest.fixture(autouse=True)
def _empty():
    log.clear()


@asynccontextmanager
async def session():
    log.append("open")
    try:
        yield "session"
    except ValueError:
        log.append("roll back")
        raise
    finally:
        log.append("close")


@contextmanager
def lock():
    log.append("take")
    yield "lock"
    log.append("leave")


def scheduler_with(**resources) -> Scheduler:
    quick: dict[str, Any] = {"heartbeat": 0.1, "leader_ttl": 0.5, "run_ttl": 2, "horizon": 1}
    return Scheduler(MemoryStore(), resources=resources, **quick)


async def run(scheduler, id, **args):
    async with scheduler:
        return await (await scheduler.trigger(id, args=args or None)).wait(timeout=60)


async def test_each_run_gets_its_own_and_leaves_it_in_reverse():
    scheduler = scheduler_with(db=session, mutex=lock)

    @scheduler.task(id="work")
    async def work(fire: Fire, db, mutex, region="ch"):
        log.append(f"{db} {mutex} {region} {fire.job_id}")

    assert (await run(scheduler, "work", region="de")).state is State.SUCCEEDED
    assert log == ["open", "take", "session lock de work", "leave", "close"]


async def test_a_failure_passes_through_them():
    scheduler = scheduler_with(db=session)

    @scheduler.task(id="work")
    async def work(db):
        raise ValueError("no")

    assert (await run(scheduler, "work")).state is State.FAILED
    assert log == ["open", "roll back", "close"]


async def test_a_function_in_a_thread_gets_plain_ones_and_is_told_of_async_ones():
    scheduler = scheduler_with(db=session, mutex=lock)

    @scheduler.task(id="plain")
    def plain(mutex):
        log.append(mutex)

    @scheduler.task(id="wrong")
    def wrong(db): ...

    async with scheduler:
        assert (await (await scheduler.trigger("plain")).wait(timeout=60)).state is State.SUCCEEDED
        failed = await (await scheduler.trigger("wrong")).wait(timeout=60)
    assert log == ["take", "lock", "leave"]
    assert "make the function that wants it `async def`" in (failed.error or "")


async def test_one_that_cannot_be_opened_fails_the_run():
    def broken():
        raise OSError("no route to the database")

    scheduler = scheduler_with(db=broken)

    @scheduler.task(id="work")
    async def work(db):
        log.append("ran")

    failed = await run(scheduler, "work")
    assert failed.state is State.FAILED
    assert "no route" in (failed.error or "")
    assert log == []


def test_they_are_no_arguments():
    scheduler = scheduler_with(db=session)

    @scheduler.task(id="work")
    async def work(db, region): ...

    with virtual(scheduler) as time, pytest.raises(ConfigurationError, match="it takes region"):
        time.trigger("work", args={"db": 1, "region": "ch"})


def test_what_cannot_work_is_found_at_declaration():
    scheduler = scheduler_with(db=session)
    with pytest.raises(ConfigurationError, match="another process"):
        scheduler.task(in_a_process, executor="process")
    with pytest.raises(ConfigurationError, match="named like a parameter"):
        scheduler_with(**{"no name": session})
    with pytest.raises(ConfigurationError, match="named like a parameter"):
        scheduler_with(fire=session)
    with pytest.raises(ConfigurationError, match="returns a context manager"):
        scheduler_with(db="postgresql://")


def in_a_process(db): ...
