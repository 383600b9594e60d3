"""What the tests of the command run."""

from __future__ import annotations

import asyncio
import time

from fencepost import Scheduler, cron, every

scheduler = Scheduler("memory://")
not_a_scheduler = {"a": 1}


class Deep:
    scheduler = scheduler


@scheduler.job(every(seconds=0.1), id="tick")
def tick() -> None:
    print("tick", flush=True)


@scheduler.job(cron("30 2 * * *", tz="Europe/Zurich"), id="nightly")
async def nightly() -> None:
    pass


@scheduler.task(id="by_hand")
def by_hand() -> None:
    pass


slow = Scheduler("memory://")


@slow.job(every(seconds=0.1), id="slow")
async def slow_job() -> None:
    print("started", flush=True)
    await asyncio.sleep(0.5)
    print("finished", flush=True)


failing = Scheduler("memory://")


@failing.job(every(seconds=0.1), id="broken")
def broken() -> None:
    raise ValueError("row 7 is bad")


stuck = Scheduler("memory://")


@stuck.job(every(seconds=0.1), id="stuck")
def stuck_job() -> None:
    print("started", flush=True)
    time.sleep(60)
