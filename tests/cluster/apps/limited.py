"""A replica with twenty jobs that share a limit of two, and a chain of three jobs."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from fencepost import Fire, Scheduler, after, every, limit

scheduler = Scheduler(
    leader_ttl=timedelta(seconds=3), run_ttl=timedelta(seconds=3), heartbeat=timedelta(seconds=1), slots=20
)
NOTES = os.environ.get("NOTES", os.devnull)


async def limited(fire: Fire) -> None:
    await asyncio.sleep(0.1)


async def chained(fire: Fire) -> None:
    with open(NOTES, "a", encoding="ascii") as notes:
        notes.write(f"{fire.key}\n")
    await asyncio.sleep(0.1)


for number in range(20):
    scheduler.job(every(seconds=3), id=f"job{number}", limits=[limit("warehouse", 2)])(limited)
for id, trigger in (("extract", every(seconds=1)), ("load", after("extract")), ("report", after("load"))):
    scheduler.job(trigger, id=id, overlap="queue(50)")(chained)


if __name__ == "__main__":
    scheduler.run()
    sys.exit(0)
