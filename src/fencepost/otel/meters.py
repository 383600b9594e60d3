"""The metrics of `insight/metrics`, through OpenTelemetry. The names are those of Prometheus; what turns OTLP into
Prometheus adds `_total` to counters, as Fencepost's own `/metrics` does."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache, partial
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from fencepost.clock import SystemClock
from fencepost.errors import FencepostError
from fencepost.insight.metrics.counting import Count, Counting
from fencepost.insight.metrics.definitions import METRICS, PREFIX, Metric
from fencepost.insight.metrics.gauges import (
    MOST_PIPELINES,
    Sample,
    of_pipeline,
    of_process,
    of_store,
    read,
)
from fencepost.insight.views.shapes import Shape
from fencepost.scheduler.scheduler import Scheduler

PATIENCE = 2.0
"""Seconds for reading the store."""
FRESH = 1.0
"""Seconds for which the samples are used: each gauge is asked by itself, and all of them show one moment."""


class Meters:
    def __init__(self, meter: Meter, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._clock = SystemClock()
        self._samples: list[Sample] = []
        self._taken_at: float | None = None
        self._instruments = {
            metric: _instrument(meter, metric) for metric in METRICS if metric.kind != "gauge"
        }
        for metric in METRICS:
            if metric.kind == "gauge":
                asked = partial(self._observed, metric)
                meter.create_observable_gauge(PREFIX + metric.name, [asked], _unit(metric), metric.help)
        counting = Counting(cache(self._meter), self._clock, scheduler.settings.metrics_jobs)
        scheduler.events.subscribe(counting.heard)
        scheduler.lifecycle.watch_store(counting.observe)

    def _meter(self, metric: Metric, *labels: str) -> Count:
        attributes = dict(zip(metric.labels, labels, strict=True))
        instrument = self._instruments[metric]
        if metric.kind == "histogram":
            return partial(instrument.record, attributes=attributes)
        return lambda amount=1: instrument.add(amount, attributes)

    # --- gauges, on the exporter's thread ---------------------------------------------------------------------

    def _observed(self, metric: Metric, options: CallbackOptions) -> Iterable[Observation]:
        now = self._clock.steady()
        if self._taken_at is None or now - self._taken_at > FRESH:
            self._samples, self._taken_at = list(self._taken()), self._clock.steady()
        return [
            Observation(float(value), dict(zip(metric.labels, labels, strict=True)))
            for each, labels, value in self._samples
            if each is metric
        ]

    def _taken(self) -> Iterable[Sample]:
        scheduler = self._scheduler
        replica = scheduler.replica
        if replica is None:  # not started, or stopped
            return
        lost = replica.store_is_lost
        yield from of_process(replica, replica.is_ready and not lost and not replica.degraded_loops, not lost)
        if not lost and not scheduler.lifecycle.is_inline:
            yield from self._stored()

    def _stored(self) -> list[Sample]:
        scheduler = self._scheduler
        reader = scheduler.reader
        try:
            stored = reader.shared_blocking("metrics", lambda store: read(reader, store), PATIENCE)
            found = [*of_store(stored, self._clock.wall(), scheduler.settings.metrics_jobs)]
            for id in _pipelines(scheduler):
                found += of_pipeline(id, self._pipeline(id))
        except (FencepostError, TimeoutError):
            return []
        return found

    def _pipeline(self, id: str) -> Shape:
        from fencepost.pipeline.status import stored_status

        return self._scheduler.reader.shared_blocking(
            ("pipeline", id), lambda store: stored_status(self._scheduler, store, id), PATIENCE
        )


def _pipelines(scheduler: Scheduler) -> list[str]:
    if "fencepost.pipeline.pipeline" not in sys.modules:
        return []
    from fencepost.pipeline.status import declared_pipelines

    return declared_pipelines(scheduler)[:MOST_PIPELINES]


def _instrument(meter: Meter, metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(PREFIX + metric.name, _unit(metric), metric.help)
    return meter.create_histogram(
        PREFIX + metric.name,
        _unit(metric),
        metric.help,
        explicit_bucket_boundaries_advisory=metric.buckets,
    )


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else ""
