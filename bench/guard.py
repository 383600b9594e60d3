"""What the guard costs: the same jobs on APScheduler alone, and guarded.

Each measurement has a process of its own: `python -m bench.guard thread|coroutine URL SECONDS`, with `-` for no guard.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from bench.places import Place
from rich.table import Table

from fencepost.apscheduler import guard

ROOT = Path(__file__).parents[1]
JOBS = 20
"""Each once a second, all at the whole second: APScheduler submits them one after the other."""
KINDS = ("thread", "coroutine")


@dataclass(frozen=True)
class Overhead:
    kind: str
    fires: int
    p50_ms: float
    """From the due time to the first line of the body."""
    p99_ms: float
    cpu_us: float
    """CPU time of the process per fire, waking up and heartbeats included."""


def measure(place: Place | None, seconds: float) -> list[Overhead]:
    """One process; on no place: APScheduler alone."""
    url = "-" if place is None else place.url
    return [_child(kind, url, seconds) for kind in KINDS]


def table(plain: list[Overhead], by_store: dict[str, list[Overhead]]) -> Table:
    made = Table(
        title="The guard beside plain APScheduler (one process, 20 fires a second)", title_justify="left"
    )
    for column in ("jobs", "store", "fires", "late p50 ms", "p99 ms", "CPU µs/fire", "p50 ×", "CPU ×"):
        made.add_column(column, justify="left" if column in ("jobs", "store") else "right")
    for alone in plain:
        made.add_row(*_cells(alone, "plain", alone))
        for store, found in by_store.items():
            made.add_row(*_cells(next(each for each in found if each.kind == alone.kind), store, alone))
    return made


def _cells(found: Overhead, store: str, alone: Overhead) -> list[str]:
    return [
        found.kind,
        store,
        str(found.fires),
        f"{found.p50_ms:.1f}",
        f"{found.p99_ms:.1f}",
        f"{found.cpu_us:.0f}",
        f"{found.p50_ms / alone.p50_ms:.1f}",
        f"{found.cpu_us / alone.cpu_us:.1f}",
    ]


def _child(kind: str, url: str, seconds: float) -> Overhead:
    command = [sys.executable, "-m", "bench.guard", kind, url, str(seconds)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=seconds + 60)
    return Overhead(**json.loads(done.stdout))


# --- in a process of its own ------------------------------------------------------------------------------


async def run(kind: str, url: str, seconds: float) -> Overhead:
    late: list[float] = []

    def function() -> None:
        late.append(time.time() % 1)

    async def coroutine() -> None:
        late.append(time.time() % 1)

    scheduler: Any = AsyncIOScheduler() if kind == "coroutine" else BackgroundScheduler()
    if url != "-":
        guard(scheduler, url, namespace=kind)
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    for number in range(JOBS):
        scheduler.add_job(
            coroutine if kind == "coroutine" else function,
            "interval",
            seconds=1,
            start_date=begin,
            id=f"job{number}",
        )
    scheduler.start()
    await asyncio.sleep((begin - datetime.now(UTC)).total_seconds() + 1.5)
    late.clear()
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    spent, ordered = time.process_time() - cpu, sorted(late)
    scheduler.shutdown(wait=False)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] * 1000 for share in (0.5, 0.99))
    return Overhead(kind, len(ordered), p50, p99, spent / len(ordered) * 1e6)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(run(sys.argv[1], sys.argv[2], float(sys.argv[3]))))))
