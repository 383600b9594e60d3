"""A job that holds up a loop or a thread is reported by name, and delays nobody else."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import threading
import time

from fencepost import Scheduler, every
from tests.unit.apps.waiting import eventually

QUICK = {"leader_ttl": "2s", "run_ttl": "2s", "heartbeat": "0.2s"}
LATER = every(days=300)


async def test_a_coroutine_that_blocks_the_loop_is_named_and_threads_go_on(caplog):
    scheduler = Scheduler(store="memory://", **QUICK)
    ran = []

    @scheduler.job(LATER)
    async def blocks():
        time.sleep(1.0)

    @scheduler.job(LATER)
    def goes_on():
        ran.append(time.monotonic())

    async with scheduler:
        blocking = await scheduler.trigger(blocks)
        quick = await scheduler.trigger(goes_on)  # answered by the control loop, whatever this one does
        begun = time.monotonic()
        await blocking.wait(timeout=60)
        await quick.wait(timeout=60)
    assert ran[0] - begun < 0.6
    [warning] = [
        record.getMessage() for record in caplog.records if "has not answered" in record.getMessage()
    ]
    assert warning.endswith(".blocks")


async def test_a_thread_that_outlives_its_timeout_is_named(caplog):
    scheduler = Scheduler(store="memory://", slots=2, **QUICK)
    release = threading.Event()

    @scheduler.job(LATER, timeout=0.1)
    def stuck():
        release.wait(5)

    @scheduler.job(LATER)
    def other(): ...

    async with scheduler:
        handle = await scheduler.trigger(stuck)
        await handle.wait(timeout=60)
        await (await scheduler.trigger(other)).wait(timeout=60)
        assert any(
            f"{handle.key} was asked to end; its thread goes on" in record.getMessage()
            for record in caplog.records
        )
        release.set()
        await eventually(lambda: scheduler.lifecycle.host.detached == 0)


async def test_nothing_is_said_while_all_is_well(caplog):
    scheduler = Scheduler(store="memory://", leader_ttl="6s", run_ttl="6s", heartbeat="2s")

    @scheduler.job(LATER)
    async def fine():
        await asyncio.sleep(2.5)

    async with scheduler:
        await (await scheduler.trigger(fine)).wait(timeout=60)
    assert not [record for record in caplog.records if "has not answered" in record.getMessage()]
