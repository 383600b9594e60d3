"""How long an audit of many fires takes, and how much memory.

    python -m bench.audit                      a million fires of a thousand jobs, in SQLite
    python -m bench.audit --fires 100000 --jobs 10

The store is filled in bulk, then audited by a process of its own, whose memory is told beside that of one that
audits almost nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fencepost.model.triggers import Trigger, cron, every
from tests.unit.apps.ledgers import START, TOOK, fill

AUDIT = """
import asyncio, json, resource, sys, time
from datetime import datetime
from fencepost.insight.audit import audit
from fencepost.store.sqlite import SqliteStore

class Stopped:
    def wall(self): return datetime.fromisoformat(sys.argv[2])
    def steady(self): return 1e6

async def main():
    store = SqliteStore(sys.argv[1], clock=Stopped())
    await store.open()
    begun = time.perf_counter()
    report = await audit(store, since=datetime.fromisoformat(sys.argv[3]))
    seconds = time.perf_counter() - begun
    await store.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = dict(report.found)
    print(json.dumps({"expected": report.expected, "found": found, "seconds": seconds, "memory": memory}))

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fires", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=1_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.db"
        begun = time.perf_counter()
        clock = fill(path, _triggers(chosen.jobs), chosen.fires // chosen.jobs)
        print(f"filled in {time.perf_counter() - begun:.0f} s, {path.stat().st_size / 1e6:.0f} MB")
        for name, since in (("almost nothing", clock.now - TOOK), ("everything", START)):
            command = [sys.executable, "-c", AUDIT, str(path), f"{clock.now}", f"{since}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures = json.loads(done.stdout)
            print(
                f"{name}: {figures['expected']} fires, {figures['found']} found, {figures['seconds']:.1f} s, "
                f"{figures['memory']:.0f} MB at the most"
            )


def _triggers(jobs: int) -> dict[str, Trigger]:
    """Half of them on a grid, half by the clock of a zone."""
    grid = {f"grid{number}": every(minutes=1) for number in range(jobs // 2)}
    return {
        **grid,
        **{f"cron{number}": cron("* * * * *", "Europe/Zurich") for number in range(jobs - jobs // 2)},
    }


if __name__ == "__main__":
    main()
