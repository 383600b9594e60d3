"""Answers about many jobs, as far as the caller sees them: one whose token has patterns of job ids sees only those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fencepost.insight.board import Reading
from fencepost.insight.cluster import Cluster
from fencepost.model import changed, job_of
from fencepost.web.access import Caller

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


def seen(reading: Reading, caller: Caller) -> Reading:
    """The jobs, and what the replicas say of them."""
    if not caller.jobs:
        return reading
    entries = [entry for entry in reading.entries if caller.sees(entry.id)]
    tasks = {entry.record.job.target for entry in entries if entry.record}
    rows = [
        row
        for row in reading.unreadable
        if (row.job_id and caller.sees(row.job_id)) or (row.kind == "target" and row.key in tasks)
    ]
    return Reading(_cluster(reading.cluster, caller, tasks), entries, reading.more, rows)


def _cluster(cluster: Cluster, caller: Caller, tasks: Set[str]) -> Cluster:
    def of(keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(key for key in keys if caller.sees(job_of(key)))

    replicas = tuple(
        changed(
            replica,
            targets=tuple(task for task in replica.targets if task in tasks),
            lingering=of(replica.lingering),
        )
        for replica in cluster.roster.replicas
    )
    running = {replica: of(keys) for replica, keys in cluster.running.items()}
    return replace(cluster, roster=replace(cluster.roster, replicas=replicas), running=running)


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
