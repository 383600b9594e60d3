"""Metrics for Prometheus. Events of this process are counted as they happen; the store is read at the scrape.

Counters are of this process: with several workers behind one port each scrape meets one of them (docs/service.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from starlette.responses import Response

from fencepost.clock import Clock, SystemClock, thread_seconds
from fencepost.errors import FencepostError
from fencepost.insight.metrics.counting import Count, Counting
from fencepost.insight.metrics.definitions import METRICS, PREFIX, Metric
from fencepost.insight.metrics.gauges import (
    MOST_PIPELINES,
    Sample,
    Stored,
    of_pipeline,
    of_process,
    of_store,
    read,
)
from fencepost.web.access import Caller
from fencepost.web.health import unready
from fencepost.web.problems import Problem
from fencepost.web.throttle import Throttle
from fencepost.web.visible import VisibleMetrics

if TYPE_CHECKING:
    from fencepost.web.app import WebApp

PATIENCE = 2.0
SHARE = 0.2
"""Of the time, for writing the text of scrapes. 200 jobs have some 8,000 series, which take a tenth of a second."""


class Metrics:
    def __init__(self, web: WebApp, clock: Clock | None = None) -> None:
        self._web = web
        self._clock = clock or SystemClock()
        self._most_jobs = web.scheduler.settings.metrics_jobs
        self._throttle = Throttle(SHARE)
        self._scraping = asyncio.Lock()
        """Held while the gauges are those of one scrape."""
        self.registry = MetricRegistry()
        self._families = {metric: _family(metric, self.registry) for metric in METRICS}
        counting = Counting(self._meter, self._clock, self._most_jobs)
        web.scheduler.events.subscribe(counting.heard)
        web.scheduler.lifecycle.watch_store(counting.observe)

    def _meter(self, metric: Metric, *labels: str) -> Count:
        family = self._families[metric]
        series = family.labels(*labels) if labels else family
        count: Count = series.inc if metric.kind == "counter" else series.observe
        return count

    async def scrape(self, caller: Caller) -> Response:
        """While the store does not answer, its metrics are left out; the others are still exported."""
        await self._throttle.turn(caller.name)
        samples = await self._samples()
        async with self._scraping:
            self._set_gauges(samples)
            text, seconds = await asyncio.to_thread(self._written, caller)
        self._throttle.cost(seconds)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _written(self, caller: Caller) -> tuple[bytes, float]:
        """The text, and the CPU time it took. On a thread: coroutines of jobs run on the server's loop."""
        begun = thread_seconds()
        return generate_latest(VisibleMetrics(self.registry, caller)), thread_seconds() - begun

    async def _samples(self) -> list[Sample]:
        why_not, stored = await unready(self._web), await self._stored()
        found = [*of_process(self._web.scheduler.replica, why_not is None, why_not != "store_lost")]
        if stored is not None:
            found += of_store(stored, self._clock.wall(), self._most_jobs)
        for id in self._web.pipelines()[:MOST_PIPELINES]:
            # It has not been stored yet, or the store does not answer.
            with suppress(FencepostError, Problem):
                found += of_pipeline(id, await self._web.pipeline_status(id, PATIENCE))
        return found

    async def _stored(self) -> Stored | None:
        reader = self._web.scheduler.reader
        try:
            return await self._web.desk.share("metrics", lambda store: read(reader, store), PATIENCE)
        except (FencepostError, Problem):
            return None

    def _set_gauges(self, samples: Iterable[Sample]) -> None:
        for metric, gauge in self._families.items():
            if metric.kind == "gauge" and metric.labels:
                gauge.clear()
        for metric, labels, value in samples:
            gauge = self._families[metric]
            (gauge.labels(*labels) if labels else gauge).set(value)


def _family(metric: Metric, registry: CollectorRegistry) -> Any:
    options: Any = {"registry": registry, "namespace": PREFIX.rstrip("_")}
    if metric.kind == "histogram":
        return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, **options)
    return (Counter if metric.kind == "counter" else Gauge)(
        metric.name, metric.help, metric.labels, **options
    )


class MetricRegistry(CollectorRegistry):
    """Without `_created`: it doubles the number of series, and when a counter began is of no use."""

    def collect(self) -> Iterator[Family]:
        for family in super().collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family
