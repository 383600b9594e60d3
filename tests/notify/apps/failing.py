"""Jobs for receivers that are told much: one that fails a thousand times in a row, or many whose every run is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fencepost import Scheduler, every
from fencepost.notify import failed, recovered, started, succeeded, webhook

given = json.loads(os.environ["CHANNELS"])
scheduler = Scheduler(leader_ttl="3s", heartbeat="500ms", run_ttl="3s")
hook = webhook(given["webhook"], secret="s" * 32, name="hook")

if given["scene"] == "in a row":
    count = Path(given["count"])
    scheduler.notify(hook, on=failed | recovered)

    @scheduler.job(every(seconds=0.02), id="report")
    def report() -> None:
        failures = int(count.read_text()) if count.exists() else 0
        if failures < given["failures"]:
            count.write_text(str(failures + 1))
            raise ValueError("no rows")

else:
    scheduler.notify(hook, on=started | succeeded)

    async def nothing() -> None: ...

    for number in range(50):
        scheduler.job(every(seconds=0.5), id=f"job-{number}")(nothing)
