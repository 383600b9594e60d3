"""What `tests.execution.test_ways` runs, as functions and as coroutines."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from fencepost import Fire, current_fire

log = logging.getLogger("ways")


def works(folder: str) -> None:
    (Path(folder) / "works").write_text(current_fire().key)
    log.warning("said")


def fails(folder: str) -> None:
    raise KeyError("no such thing")


def endless(fire: Fire, folder: str) -> None:
    """Ends soon after it is told to: only a process or a command can be ended against its will."""
    (Path(folder) / "endless").touch()
    while True:
        fire.check()
        time.sleep(0.01)


async def works_async(folder: str) -> None:
    works(folder)


async def fails_async(folder: str) -> None:
    fails(folder)


async def endless_async(folder: str) -> None:
    (Path(folder) / "endless").touch()
    await asyncio.sleep(600)
