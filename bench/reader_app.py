"""What `bench.readers` serves: jobs that are due each second, beside thousands that are due some day."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

from fencepost import Fire, Scheduler, every

TICKS = int(os.environ.get("READERS_TICKS", "1"))
"""Jobs that are due once a second, each at another time of it: ten give as many samples in a tenth of the time."""
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
MARKS = os.open(os.environ.get("READERS_MARKS", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

scheduler = Scheduler()


def note(fire: Fire) -> None:
    """The first line of a body: when it was due, and how late it is."""
    now, due = time.time(), fire.due_at.timestamp()
    os.write(MARKS, f"{due:.6f} {now - due:.6f}\n".encode())


async def coroutine(fire: Fire) -> None:
    """On the event loop of the server."""
    note(fire)


def function(fire: Fire) -> None:
    """In a thread."""
    note(fire)


for number in range(TICKS):
    anchor = BEGUN + timedelta(seconds=number / TICKS)
    body = function if number % 2 else coroutine
    scheduler.job(every(seconds=1, anchor=anchor), id=f"tick{number}")(body)


@scheduler.task(id="quick")
async def quick() -> None: ...
