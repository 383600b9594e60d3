"""Another application that declares a job of `tests.web.apps.many` in the same namespace, as happens by mistake."""

from __future__ import annotations

from datetime import UTC, datetime

from fencepost import Scheduler, at

scheduler = Scheduler(heartbeat=1, leader_ttl=3, run_ttl=3)


@scheduler.job(at(datetime(2101, 1, 1, tzinfo=UTC)), id="far")
async def far() -> None: ...
