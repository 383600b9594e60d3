"""For tests in real time: wait for a condition, never for luck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencepost.model import FireRecord
from fencepost.store.base import FireQuery
from fencepost.store.memory import MemoryStore

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds until a hang is called one. What must happen within a time says its own."""


async def eventually(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Until the condition holds; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.005)


def ask(question: Coroutine[Any, Any, T]) -> T:
    """The answer of a memory store, from anywhere: it never waits."""
    try:
        question.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("this question takes time")


def fires_of(store: MemoryStore, job_id: str | None = None) -> list[FireRecord]:
    """What the ledger says, oldest first."""
    return list(reversed(ask(store.find_fires(FireQuery(job_id=job_id, limit=1_000_000)))))


def fire_of(store: MemoryStore, key: str) -> FireRecord:
    [fire] = ask(store.find_fires(FireQuery(key=key)))
    return fire
