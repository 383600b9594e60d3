"""The jobs of `fencepost demo`. All replicas run this file; nothing here knows how many there are.

It is an ordinary application, but for `noted`: it writes down each start, so that whether something ran twice
need not be taken from the store.
"""

from __future__ import annotations

import asyncio
import time

from fencepost import Fire, Retry, Scheduler, cron, every
from fencepost.demo.diary import end_with_parent, noted

# The store comes from FENCEPOST_STORE. The times are short so that there is something to see.
scheduler = Scheduler(heartbeat="1s", leader_ttl="3s", run_ttl="3s", drain_timeout="10s")


@scheduler.job(every(seconds=1))
async def ping(fire: Fire) -> None:
    """A coroutine runs on the event loop."""
    with noted(fire):
        await asyncio.sleep(0.1)


@scheduler.job(every(seconds=2), after_crash="rerun")
def resize(fire: Fire) -> None:
    """A plain function runs in a thread, so it may block. Cut off by a crash, it is run again."""
    with noted(fire):
        time.sleep(0.4)


@scheduler.job(every(seconds=3), retry=Retry(attempts=3, first=0.5))
async def fetch(fire: Fire) -> None:
    """Every third time the first attempt fails; then it is tried again, on whichever replica is free."""
    with noted(fire):
        await asyncio.sleep(0.1)
        if fire.attempt == 1 and fire.due_at.timestamp() // 3 % 3 == 0:
            raise ConnectionError("the other side did not answer")


@scheduler.job(every(seconds=2), overlap="skip")
async def backup(fire: Fire) -> None:
    """Takes longer than its interval: what falls due in the meantime is skipped, on all replicas. Cut off by a
    crash, it is recorded as lost; only you can know whether half a backup may be repeated."""
    with noted(fire):
        await asyncio.sleep(3)


@scheduler.job(cron("* * * * *"))
async def minute(fire: Fire) -> None:
    """A cron expression: at each full minute."""
    with noted(fire):
        await asyncio.sleep(0)


@scheduler.job(every(seconds=5))
async def mailing(fire: Fire) -> None:
    """The demo pauses this one: it does not run, and each fire is recorded as skipped."""
    with noted(fire):
        await asyncio.sleep(0)


end_with_parent()
