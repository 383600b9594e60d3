"""A replica with one job whose past is run: each run writes the due time of its fire to a file."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta

from fencepost import Fire, Scheduler, every

scheduler = Scheduler(
    leader_ttl=timedelta(seconds=3), run_ttl=timedelta(seconds=3), heartbeat=timedelta(seconds=1), slots=8
)
NOTES = os.environ.get("NOTES", os.devnull)


@scheduler.job(
    every(minutes=1, anchor=datetime(2026, 1, 1, tzinfo=UTC)),
    id="report",
    overlap="allow(8)",
    after_crash="rerun",
    crash_attempts=10,
)
def report(fire: Fire) -> None:
    with open(NOTES, "a", encoding="ascii") as notes:
        notes.write(f"{fire.due_at.isoformat()} {fire.key}\n")


if __name__ == "__main__":
    scheduler.run()
    sys.exit(0)
