"""Prometheus metrics. Events of this process are counted as they happen; the store is read at the scrape.

Counters are of this process: with several workers behind one port each scrape meets one of them (docs/service.md). No
ids are labels, except the names of jobs, and of those a bounded number.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from starlette.responses import Response

from fencepost import __version__
from fencepost.clock import Clock, SystemClock, thread_seconds
from fencepost.errors import FencepostError
from fencepost.insight.board import Reading
from fencepost.insight.views.shapes import Shape
from fencepost.model import FireRecord
from fencepost.model.triggers import from_iso
from fencepost.runs.events import Event
from fencepost.store.base import Store
from fencepost.web.access import Caller
from fencepost.web.health import unready
from fencepost.web.problems import Problem
from fencepost.web.throttle import Throttle
from fencepost.web.visible import VisibleMetrics

if TYPE_CHECKING:
    from fencepost.web.app import WebApp

OTHERS = "(others)"
MOST_PIPELINES = 50
PATIENCE = 2.0
SHARE = 0.2
"""Of the time, for writing the text of scrapes. 200 jobs have some 8,000 series, which take a tenth of a second."""
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
DURATIONS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
DELAYS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120, 600)


class Metrics:
    def __init__(self, web: WebApp, clock: Clock | None = None) -> None:
        self._web = web
        self._clock = clock or SystemClock()
        self._names: set[str] = set()
        self._most_jobs = web.scheduler.settings.metrics_jobs
        """Jobs with labels of their own; the others share one."""
        self._started: dict[str, float] = {}
        """Steady time at which the bodies that run here began."""
        self._throttle = Throttle(SHARE)
        self._scraping = asyncio.Lock()
        """Held while the gauges are those of one scrape."""
        self.registry = Registry()
        self._define()
        web.scheduler.events.subscribe(self.heard)
        web.scheduler.watch_store(self.observe)

    def _define(self) -> None:
        registry: Any = {"registry": self.registry, "namespace": "fencepost"}
        job = ["job_name"]
        self._build = Gauge("build_info", "The version, as a label.", ["version"], **registry)
        self._build.labels(__version__).set(1)
        self._runs = Counter("runs", "Fires that ended, by outcome.", [*job, "outcome"], **registry)
        self._duration = Histogram(
            "run_duration_seconds", "From start to end.", job, buckets=DURATIONS, **registry
        )
        self._delay = Histogram(
            "run_start_delay_seconds",
            "From due, or from its turn, to started.",
            job,
            buckets=DELAYS,
            **registry,
        )
        self._queued = Histogram(
            "run_queued_seconds",
            "From due until the run before it ended.",
            job,
            buckets=DURATIONS,
            **registry,
        )
        self._retries = Counter("retries", "Attempts that will be repeated.", job, **registry)
        self._misfires = Counter("misfires", "Fires missed, by why.", ["policy"], **registry)
        self._skips = Counter("skips", "Fires skipped, by why.", ["reason"], **registry)
        self._claims = Counter("claims", "Fires claimed, given back, or refused.", ["result"], **registry)
        self._lease_lost = Counter("lease_lost", "Leadership or presence lost.", **registry)
        self._rejections = Counter("fencing_rejections", "Runs whose token was gone.", **registry)
        self._store_seconds = Histogram(
            "store_operation_duration_seconds", "By operation.", ["operation"], buckets=DELAYS, **registry
        )
        self._store_errors = Counter("store_errors", "Store calls that failed.", ["operation"], **registry)
        self._in_progress = Gauge("runs_in_progress", "Runs of this process.", **registry)
        self._leader = Gauge("leader", "1 if this process leads.", **registry)
        self._ready = Gauge("ready", "1 if this process is ready.", **registry)
        self._degraded = Gauge("loop_degraded", "1 while this loop keeps failing.", ["loop"], **registry)
        self._skew = Gauge("clock_skew_seconds", "This machine's clock less the store's.", **registry)
        self._jobs = Gauge("jobs", "Jobs by state.", ["state"], **registry)
        self._replicas = Gauge("replicas", "Replicas by state.", ["state"], **registry)
        self._unreadable = Gauge(
            "job_unreadable", "1 while something of the job cannot be read.", job, **registry
        )
        self._blocking = Gauge(
            "blocking_active", "1 while this pipeline blocks the application.", job, **registry
        )
        self._last_success = Gauge(
            "job_last_success_timestamp_seconds",
            "End of the last run that succeeded.",
            job,
            **registry,
        )
        self._next_run = Gauge("job_next_run_timestamp_seconds", "The next scheduled fire.", job, **registry)
        self._data_updated = Gauge(
            "data_updated_timestamp_seconds", "When this pipeline last succeeded.", job, **registry
        )

    # --- counting, on the control thread ---------------------------------------------------------------------

    def heard(self, event: Event) -> None:
        if event.kind in ("leader.lost", "replica.expired"):
            self._lease_lost.inc()
        if event.fire is None:
            return
        name, fire = self._name(event.fire.job_id), event.fire
        if event.kind == "started":
            self._begun(name, fire, event.queued)
        elif event.kind in OUTCOMES:
            self._ended(name, fire, event.kind, event.count)
        elif event.kind == "retrying":
            self._retries.labels(name).inc()
            self._took(name, fire)
        elif event.kind == "given_back":
            self._claims.labels("given_back").inc()
            self._started.pop(fire.key, None)
        elif event.kind == "fenced":
            self._rejections.inc()
            self._claims.labels("fenced").inc()
            self._started.pop(fire.key, None)

    def _begun(self, name: str, fire: FireRecord, queued: float) -> None:
        self._claims.labels("claimed").inc()
        self._started[fire.key] = self._clock.steady()
        if fire.started_at is not None and fire.attempt == 1:
            delay = (fire.started_at - fire.due_at).total_seconds()
            self._delay.labels(name).observe(max(0.0, delay - queued))
            if queued:
                self._queued.labels(name).observe(queued)

    def _ended(self, name: str, fire: FireRecord, outcome: str, count: int) -> None:
        self._runs.labels(name, outcome).inc(count)
        if outcome == "skipped":
            self._skips.labels(fire.reason or "").inc(count)
        elif outcome == "missed":
            self._misfires.labels(fire.reason or "").inc(count)
        else:
            self._took(name, fire)

    def _took(self, name: str, fire: FireRecord) -> None:
        begun = self._started.pop(fire.key, None)
        if begun is not None:
            self._duration.labels(name).observe(self._clock.steady() - begun)

    def _name(self, job_id: str) -> str:
        if job_id in self._names or len(self._names) < self._most_jobs:
            self._names.add(job_id)
            return job_id
        return OTHERS

    def observe(self, store: Store) -> None:
        """Measure the duration of the store's operations from now on. Once per store."""
        for operation in OPERATIONS:
            if operation not in vars(store):
                setattr(store, operation, self._timed(operation, getattr(store, operation)))

    def _timed(
        self, operation: str, call: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        seconds, errors = self._store_seconds.labels(operation), self._store_errors.labels(operation)

        @wraps(call)
        async def timed(*args: Any, **kwargs: Any) -> Any:
            begun = self._clock.steady()
            try:
                return await call(*args, **kwargs)
            except FencepostError:
                errors.inc()
                raise
            finally:
                seconds.observe(self._clock.steady() - begun)

        return timed

    # --- the scrape, on the server's loop -----------------------------------------------------------------------

    async def scrape(self, caller: Caller) -> Response:
        """While the store does not answer, its metrics are left out; the others are still exported."""
        await self._throttle.turn(caller.name)
        is_ready = await unready(self._web) is None
        found, pipelines = await self._stored(), await self._pipelines()
        async with self._scraping:
            self._set_gauges(is_ready, found, pipelines)
            text, seconds = await asyncio.to_thread(self._written, caller)
        self._throttle.cost(seconds)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _written(self, caller: Caller) -> tuple[bytes, float]:
        """The text, and the CPU time it took. On a thread: coroutines of jobs run on the server's loop."""
        begun = thread_seconds()
        return generate_latest(VisibleMetrics(self.registry, caller)), thread_seconds() - begun

    def _set_gauges(self, is_ready: bool, found: Reading | None, pipelines: dict[str, Shape]) -> None:
        replica = self._web.scheduler.replica
        self._ready.set(is_ready)
        self._in_progress.set(len(replica.runs) if replica else 0)
        self._leader.set(replica is not None and replica.term() is not None)
        if replica is not None:
            for loop in replica.loops:
                self._degraded.labels(loop.name).set(loop.name in replica.degraded_loops)
        from_store = (
            self._jobs,
            self._replicas,
            self._next_run,
            self._last_success,
            self._blocking,
            self._unreadable,
        )
        for gauge in (*from_store, self._data_updated):
            gauge.clear()
        if found is not None:
            self._show(found)
        for id, pipeline in pipelines.items():
            self._blocking.labels(id).set(bool(pipeline["blocking_maintenance"]))
            if pipeline["data_updated_at"]:
                self._data_updated.labels(id).set(from_iso(pipeline["data_updated_at"]).timestamp())

    def _show(self, reading: Reading) -> None:
        self._skew.set((self._clock.wall() - reading.now).total_seconds())
        for state, number in reading.jobs_by_state().items():
            self._jobs.labels(state).set(number)
        for state, number in Tally(reading.cluster.standing.values()).items():
            self._replicas.labels(state).set(number)
        for id in sorted({row.job_id for row in reading.unreadable if row.job_id})[: self._most_jobs]:
            self._unreadable.labels(id).set(1)
        for entry in reading.entries[: self._most_jobs]:
            if entry.next_run_at is not None:
                self._next_run.labels(entry.id).set(entry.next_run_at.timestamp())
            if entry.record is not None and entry.record.last_success_at is not None:
                self._last_success.labels(entry.id).set(entry.record.last_success_at.timestamp())

    async def _stored(self) -> Reading | None:
        try:
            return await self._web.desk.everything(PATIENCE)
        except (FencepostError, Problem):
            return None

    async def _pipelines(self) -> dict[str, Shape]:
        """Those declared here, by id."""
        found: dict[str, Shape] = {}
        for id in self._web.pipelines()[:MOST_PIPELINES]:
            with suppress(
                FencepostError, Problem
            ):  # it has not been stored yet, or the store does not answer
                found[id] = await self._web.pipeline_status(id, PATIENCE)
        return found


class Registry(CollectorRegistry):
    """Without `_created`: it doubles the number of series, and when a counter began is of no use."""

    def collect(self) -> Iterator[Metric]:
        for family in super().collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family
