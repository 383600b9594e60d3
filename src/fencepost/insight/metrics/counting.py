"""What is counted as it happens: events of this process, and calls of its store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fencepost.clock import Clock
from fencepost.errors import FencepostError
from fencepost.insight.metrics import definitions as metrics
from fencepost.insight.metrics.definitions import OTHERS
from fencepost.model import FireRecord
from fencepost.runs.events import Event
from fencepost.store.base import Store

OUTCOMES = ("succeeded", "failed", "cancelled", "lost", "skipped", "missed")
OPERATIONS = (
    "heartbeat",
    "leave",
    "roster",
    "sweep",
    "put_jobs",
    "change_job",
    "jobs",
    "due_jobs",
    "plan_fires",
    "add_fire",
    "claim_fires",
    "update_claims",
    "cancel_fire",
    "find_fires",
    "history",
    "prune",
)

Count = Callable[..., None]
"""Adds to a counter, 1 if nothing is given; puts a value into a histogram."""
Meter = Callable[..., Count]
"""An exporter: called with a metric and the values of its labels."""


class Counting:
    """On the control thread."""

    def __init__(self, meter: Meter, clock: Clock, most_jobs: int) -> None:
        self._meter = meter
        self._clock = clock
        self._names: set[str] = set()
        self._most_jobs = most_jobs
        """Jobs with labels of their own; the others share one."""
        self._started: dict[str, float] = {}
        """Steady time at which the bodies that run here began."""

    def heard(self, event: Event) -> None:
        if event.kind in ("leader.lost", "replica.expired"):
            self._meter(metrics.LEASE_LOST)()
        if event.kind.startswith("notice."):
            result, channel = event.kind.removeprefix("notice."), event.detail.partition(": ")[0]
            self._meter(metrics.NOTIFICATIONS, channel, result)()
        if event.fire is None:
            return
        name, fire = self._name(event.fire.job_id), event.fire
        if event.kind == "started":
            self._begun(name, fire, event.queued)
        elif event.kind in OUTCOMES:
            self._ended(name, fire, event.kind, event.count)
        elif event.kind == "retrying":
            self._meter(metrics.RETRIES, name)()
            self._took(name, fire)
        elif event.kind == "given_back":
            self._meter(metrics.CLAIMS, "given_back")()
            self._started.pop(fire.key, None)
        elif event.kind == "fenced":
            self._meter(metrics.REJECTIONS)()
            self._meter(metrics.CLAIMS, "fenced")()
            self._started.pop(fire.key, None)

    def _begun(self, name: str, fire: FireRecord, queued: float) -> None:
        self._meter(metrics.CLAIMS, "claimed")()
        self._started[fire.key] = self._clock.steady()
        if fire.started_at is not None and fire.attempt == 1:
            delay = (fire.started_at - fire.due_at).total_seconds()
            self._meter(metrics.DELAY, name)(max(0.0, delay - queued))
            if queued:
                self._meter(metrics.QUEUED, name)(queued)

    def _ended(self, name: str, fire: FireRecord, outcome: str, count: int) -> None:
        self._meter(metrics.RUNS, name, outcome)(count)
        if outcome == "skipped":
            self._meter(metrics.SKIPS, fire.reason or "")(count)
        elif outcome == "missed":
            self._meter(metrics.MISFIRES, fire.reason or "")(count)
        else:
            self._took(name, fire)

    def _took(self, name: str, fire: FireRecord) -> None:
        begun = self._started.pop(fire.key, None)
        if begun is not None:
            self._meter(metrics.DURATION, name)(self._clock.steady() - begun)

    def _name(self, job_id: str) -> str:
        if job_id in self._names or len(self._names) < self._most_jobs:
            self._names.add(job_id)
            return job_id
        return OTHERS

    def observe(self, store: Store) -> None:
        """Measure the duration of the store's operations from now on. Once per store and exporter."""
        for operation in OPERATIONS:
            known = vars(store).get(operation)
            if self not in getattr(known, "counted_by", ()):
                setattr(store, operation, self._timed(operation, known or getattr(store, operation)))

    def _timed(
        self, operation: str, call: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        seconds = self._meter(metrics.STORE_SECONDS, operation)
        errors = self._meter(metrics.STORE_ERRORS, operation)

        @wraps(call)
        async def timed(*args: Any, **keywords: Any) -> Any:
            begun = self._clock.steady()
            try:
                return await call(*args, **keywords)
            except FencepostError:
                errors()
                raise
            finally:
                seconds(self._clock.steady() - begun)

        timed.counted_by = (*getattr(call, "counted_by", ()), self)  # type: ignore[attr-defined]
        return timed
