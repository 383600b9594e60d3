"""Functions that fail, each in its way."""

from __future__ import annotations

import asyncio
import os
import signal
import time


def raises() -> None:
    raise ValueError("row 7 is bad,\nsee line 2")


async def raises_async() -> None:
    raises()


def leaks() -> None:
    raise ConnectionError("postgresql://app:pa55word@db/app is down")


async def endless() -> None:
    await asyncio.Event().wait()


def takes_a_moment() -> None:
    time.sleep(0.03)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def cannot_be_shown() -> None:
    raise Unspeakable


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
