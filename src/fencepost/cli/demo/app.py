"""The jobs of `fencepost demo`: an ordinary application. All replicas run this file; nothing in it knows how many."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fencepost import Fire, Retry, Scheduler, every

# The store comes from FENCEPOST_STORE. The times are short so that there is something to see.
scheduler = Scheduler(heartbeat="1s", leader_ttl="3s", run_ttl="3s", drain_timeout="10s")


@scheduler.job(every(seconds=1))
async def ping(fire: Fire) -> None:
    """A coroutine runs on the event loop."""
    note_start(fire)
    await asyncio.sleep(0.1)


@scheduler.job(every(seconds=2), execute_on="leader", after_crash="rerun")
def report(fire: Fire) -> None:
    """A function runs in a thread, so it may block. This one runs on the leader; cut off by a crash, it runs again."""
    note_start(fire)
    time.sleep(1.5)


@scheduler.job(every(seconds=3), retry=Retry(attempts=3, first=0.5))
async def fetch(fire: Fire) -> None:
    """Every third time the first attempt fails; it is tried again, on whichever replica is free."""
    note_start(fire)
    await asyncio.sleep(0.1)
    if fire.attempt == 1 and fire.due_at.timestamp() // 3 % 3 == 0:
        raise ConnectionError("the other side did not answer")


@scheduler.job(every(seconds=2), overlap="skip")
async def backup(fire: Fire) -> None:
    """Takes longer than its interval: what falls due meanwhile is skipped. Cut off by a crash, it is not repeated."""
    note_start(fire)
    await asyncio.sleep(3)


def note_start(fire: Fire) -> None:
    """In a file apart from the store: the demo compares what ran with what the store says."""
    with Path("starts.log").open("a") as file:
        file.write(f"{fire.key} {fire.token}\n")
