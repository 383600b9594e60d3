"""One replica whose start or idleness is measured, in a process of its own. Prints JSON.

python -m bench.replica register URL JOBS
python -m bench.replica idle URL SECONDS
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost import Event, Scheduler, every
from fencepost.store.base import Notices, Store
from fencepost.store.urls import store_from_url

SETTLE = 12.0
"""Seconds from the start until it counts as idle: longer than a heartbeat."""
LOOKS = ("evidence", "wait")
"""Asked of the file system, without a transaction."""


async def register(url: str, jobs: int) -> dict[str, float]:
    begun = time.perf_counter()
    scheduler = _declared(Scheduler(store=url), jobs)
    declared = time.perf_counter()
    await scheduler.start()
    # `start` returns early if the store takes long; this waits until all is written.
    await scheduler.ask(scheduler.fire_operations.find("nothing"))
    ready = time.perf_counter()
    await scheduler.stop()
    return {
        "jobs": jobs,
        "declare_s": declared - begun,
        "store_s": ready - declared,
        "total_s": ready - begun,
    }


async def idle(url: str, seconds: float) -> dict[str, Any]:
    store = store_from_url(url)
    calls = count_calls(store)
    scheduler = _declared(Scheduler(store=store), 100)
    leads = []
    scheduler.events.subscribe(lambda event: leads.append(_elected(event)))
    async with scheduler:
        await asyncio.sleep(SETTLE)
        calls.clear()
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        seen, leader = dict(calls), any(leads)  # those that end later lead, too, for a moment
    await store.close()
    minutes = wall / 60
    return {
        "leader": leader,
        "cpu_percent": 100 * cpu / wall,
        "heartbeats_per_min": seen.get("heartbeat", 0) / minutes,
        "operations_per_min": sum(n for name, n in seen.items() if name not in ("heartbeat", *LOOKS))
        / minutes,
        "looks_per_min": sum(seen.get(name, 0) for name in LOOKS) / minutes,
        "calls": seen,
    }


def count_calls(store: Store) -> Counter[str]:
    calls: Counter[str] = Counter()

    def counted(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any) -> Any:
            calls[name] += 1
            return await method(*args)

        return call

    for owner, names in (
        (store, (Store.__abstractmethods__ - {"notices"}) | {"evidence"}),
        (store.notices, Notices.__abstractmethods__),
    ):
        for name in names:
            setattr(owner, name, counted(name, getattr(owner, name)))
    return calls


def _declared(scheduler: Scheduler, jobs: int) -> Scheduler:
    async def nothing() -> None: ...

    for number in range(jobs):
        scheduler.job(every(hours=1), id=f"job{number:05}")(nothing)
    return scheduler


def _elected(event: Event) -> bool:
    return event.kind == "leader.elected"


def main() -> None:
    logging.basicConfig(level=logging.CRITICAL)
    what, url, number = sys.argv[1:]
    measured = register(url, int(number)) if what == "register" else idle(url, float(number))
    print(json.dumps(asyncio.run(measured)))


if __name__ == "__main__":
    main()
