"""Forty jobs in every state, for the dashboard: fast and slow, failing, late, paused, skipped, lost, never run."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from datetime import UTC, datetime
from typing import Any

from fencepost import Fire, Pipeline, Retry, Scheduler, at, cron, every
from fencepost.pipeline import PipelineRun

scheduler = Scheduler(heartbeat=1, leader_ttl=3, run_ttl=3)
NASTY = "<script>document.title='broken'</script><img src=x onerror=alert(1)>"
log = logging.getLogger("many")
log.setLevel("INFO")
TEAMS = ("billing", "search", "mail", "warehouse", "catalog")


@scheduler.job(every(seconds=1), id="ping")
async def ping() -> None:
    await asyncio.sleep(0.02)


@scheduler.job(every(seconds=5), id="broken", retry=None)
async def broken() -> None:
    raise ValueError(f'column "x" of relation {NASTY} does not exist')


@scheduler.job(every(seconds=6), id="flaky", retry=Retry(attempts=3, first=1))
async def flaky(fire: Fire) -> None:
    log.info(f"attempt {fire.attempt} of {fire.key}")
    await asyncio.sleep(0.2)
    if fire.attempt == 1:
        raise ConnectionError("the other side did not answer")


@scheduler.job(every(seconds=3), id="slow")
async def slow() -> dict[str, int]:
    await asyncio.sleep(4)
    return {"rows": 7}


@scheduler.job(every(seconds=7), id="queued", overlap="queue")
async def queued() -> None:
    await asyncio.sleep(9)


@scheduler.job(every(seconds=2), id="on-the-leader", execute_on="leader")
async def on_the_leader() -> None:
    """Lost with the leader that is killed."""
    await asyncio.sleep(3)


@scheduler.job(every(seconds=10), id="stuck", timeout=2)
async def stuck() -> None:
    await asyncio.sleep(60)


@scheduler.job(every(seconds=4), id="housekeeping")
async def housekeeping() -> None: ...


@scheduler.job(every(seconds=5), id="mailing")
async def mailing() -> None: ...


@scheduler.job(
    cron("30 2 * * *", tz="Europe/Zurich"), id="report", args={"region": "ch", "days": 7, "dry": False}
)
async def report(region: str, days: int, dry: bool = False, filters: dict[str, Any] | None = None) -> None:
    log.info(f"reporting on {region} for {days} days, dry={dry}, filters={filters}")


@scheduler.job(at(datetime(2100, 1, 1, tzinfo=UTC)), id="far")
async def far() -> None: ...


@scheduler.task(id="manual")
async def manual(name: str = "world") -> str:
    """Never run by itself."""
    log.info(f"hello {name}")
    return f"hello {name}"


@scheduler.job(every(seconds=2), id="threads:with-a.very_long-name.that-goes-on-and-on-and-on-for-ever")
def threads(fire: Fire) -> None:
    fire.report(done=1, total=2, message="half way")
    time.sleep(0.3)


sync = Pipeline("stop-sync")


@sync.phase("download", message="Downloading the register")
async def download(run: PipelineRun) -> None:
    for number in range(10):
        run.report(done=number, total=10)
        await asyncio.sleep(0.2)


@sync.phase("match", message="Matching stops")
async def match(run: PipelineRun) -> None:
    await asyncio.sleep(float(os.environ.get("MANY_MATCH", "2")))


@sync.phase("import", message="Importing stops", blocking=True, eta=5)
async def import_(run: PipelineRun) -> None:
    for number in range(40):
        run.report(done=number, total=40)
        log.info(f"{number * 100} stops imported")
        await asyncio.sleep(float(os.environ.get("MANY_IMPORT", "4")) / 40)


scheduler.job(every(seconds=20), id="stop-sync")(sync)

for number in range(26):

    @scheduler.job(
        cron(f"{number * 2} {number % 24} * * *") if number % 3 == 0 else every(seconds=8 + number % 7 * 5),
        id=f"{TEAMS[number % 5]}.job-{number:02}",
    )
    async def ordinary(length: float = 0.1 + number % 5 * 0.6) -> None:
        await asyncio.sleep(length)
