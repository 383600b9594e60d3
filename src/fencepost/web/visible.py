"""Answers about many jobs, as far as the caller sees them: one whose token has patterns of job ids sees only those."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fencepost.insight.board import Reading
from fencepost.insight.metrics.definitions import METRICS, PREFIX
from fencepost.insight.visible import visible
from fencepost.web.access import Caller

ABOUT_NO_JOB = frozenset(f"{PREFIX}{metric.name}" for metric in METRICS if not metric.tells_of_jobs)
"""Metrics that are the same whatever jobs there are. Of all others only series with the name of a job are shown."""


def seen(reading: Reading, caller: Caller) -> Reading:
    """The jobs, and what the replicas say of them."""
    return visible(reading, caller.sees_only)


class VisibleMetrics(CollectorRegistry):
    """A registry, as far as the caller sees it."""

    def __init__(self, whole: CollectorRegistry, caller: Caller) -> None:
        super().__init__(auto_describe=False)
        self._whole = whole
        self._caller = caller

    def collect(self) -> Iterator[Metric]:
        for family in self._whole.collect():
            if not self._caller.jobs or family.name in ABOUT_NO_JOB:
                yield family
                continue
            seen = Metric(family.name, family.documentation, family.type, family.unit)
            seen.samples = [
                sample
                for sample in family.samples
                if "job_name" in sample.labels and self._caller.sees(sample.labels["job_name"])
            ]
            if seen.samples:
                yield seen
