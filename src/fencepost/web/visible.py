"""Answers about many jobs, as far as the caller sees them: one whose token has patterns of job ids sees only those."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fencepost.access import Caller
from fencepost.model import job_of
from fencepost.views.shapes import Shape

ABOUT_NO_JOB = frozenset(
    {
        "fencepost_build_info",
        "fencepost_clock_skew_seconds",
        "fencepost_leader",
        "fencepost_lease_lost",
        "fencepost_loop_degraded",
        "fencepost_ready",
        "fencepost_replicas",
        "fencepost_store_errors",
        "fencepost_store_operation_duration_seconds",
    }
)
"""Metrics that are the same whatever jobs there are. Of all others only series with the name of a job are shown."""


def visible(found: Shape, caller: Caller) -> Shape:
    """Of `status`: the jobs, and what the replicas say of them."""
    if not caller.jobs:
        return found
    jobs = [job for job in found["jobs"] if caller.sees(job["id"])]
    tasks = {job["task"] for job in jobs}
    replicas = [
        {
            **replica,
            "running": [key for key in replica["running"] if caller.sees(job_of(key))],
            "tasks": [task for task in replica["tasks"] if task in tasks],
        }
        for replica in found["replicas"]
    ]
    return {**found, "jobs": jobs, "replicas": replicas}


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
