"""Guarded schedulers in this process, each a replica of its own, and the ledger as anybody could read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_STOPPED

from fencepost.apscheduler import Guard, guard
from fencepost.model import FireRecord, JobRecord
from fencepost.store.base import FireQuery
from tests.cluster.harness import Reader

T = TypeVar("T")

QUICK: dict[str, Any] = {"heartbeat": 0.2, "leader_ttl": 1, "run_ttl": 1}


@contextmanager
def guarded(url: str, *jobs: tuple[Any, dict[str, Any]], **options: Any) -> Iterator[tuple[Any, Guard]]:
    """A `BackgroundScheduler` with these jobs, as `(function, options of add_job)`, guarded and started."""
    scheduler = BackgroundScheduler(timezone="UTC", **options.pop("configuration", {}))
    watch = guard(scheduler, url, **{**QUICK, **options})
    for function, arguments in jobs:
        scheduler.add_job(function, **arguments)
    scheduler.start()
    try:
        yield scheduler, watch
    finally:
        if scheduler.state != STATE_STOPPED:
            scheduler.shutdown()


class Ledger(Reader):
    """Of the store at a URL."""

    def of(self, job_id: str) -> list[FireRecord]:
        """Its final fires, the oldest first."""
        found = self.ask(lambda store: store.find_fires(FireQuery(job_id=job_id, limit=1_000)))
        return sorted((fire for fire in found if fire.state.final), key=lambda fire: fire.due_at)

    def outcomes(self, job_id: str) -> list[tuple[str, str | None]]:
        return [(fire.state.value, fire.reason) for fire in self.of(job_id)]

    def jobs(self) -> dict[str, JobRecord]:
        """Those that have not been removed."""
        return {
            record.id: record for record in self.ask(lambda store: store.jobs()) if record.removed_at is None
        }


PATIENCE = 60.0
"""Seconds until a hang is called one, on a machine that is busy with other tests."""


def eventually(condition: Callable[[], T], seconds: float = PATIENCE, what: str = "") -> T:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s {what}"
        time.sleep(0.01)
    return found


class Pace:
    """Dates are as far away as this machine needs, judged by how long it took to get everything ready."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def ahead(self, seconds: float) -> datetime:
        """So many seconds from now; so many times as many as the seconds that have passed since this was made."""
        times = min(10.0, max(1.0, time.monotonic() - self._begun))
        return datetime.now(UTC) + timedelta(seconds=seconds * times)
