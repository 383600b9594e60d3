"""What `bench.readers` serves: a job each second, beside thousands that are due some day."""

from __future__ import annotations

from fencepost import Scheduler, every

scheduler = Scheduler()


@scheduler.job(every(seconds=1), id="tick")
async def tick() -> None: ...


@scheduler.task(id="quick")
async def quick() -> None: ...
