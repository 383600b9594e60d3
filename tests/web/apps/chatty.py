"""Runs that report a lot: more than the buffers of a connection hold."""

from __future__ import annotations

import asyncio

from fencepost import Fire, Scheduler, every

scheduler = Scheduler()


@scheduler.job(every(seconds=1))
async def chatty(fire: Fire) -> None:
    for number in range(8):
        fire.report(done=number, message="x" * 1_000, more=["y" * 1_000] * 14)
        await asyncio.sleep(0.1)
