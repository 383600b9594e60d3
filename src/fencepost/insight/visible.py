"""A reading reduced to the jobs that a caller may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from fencepost.insight.board import Reading
from fencepost.insight.cluster import Cluster
from fencepost.model import changed, job_of

Sees = Callable[[str], bool]


def visible(reading: Reading, sees: Sees | None) -> Reading:
    """The jobs, and what the replicas say of them. `sees` None: everything."""
    if sees is None:
        return reading
    entries = [entry for entry in reading.entries if sees(entry.id)]
    tasks = {entry.record.job.target for entry in entries if entry.record}
    rows = [
        row
        for row in reading.unreadable
        if (row.job_id and sees(row.job_id)) or (row.kind == "target" and row.key in tasks)
    ]
    return Reading(_cluster(reading.cluster, sees, tasks), entries, reading.more, rows)


def _cluster(cluster: Cluster, sees: Sees, tasks: Set[str]) -> Cluster:
    def of(keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(key for key in keys if sees(job_of(key)))

    replicas = tuple(
        changed(
            replica,
            targets=tuple(task for task in replica.targets if task in tasks),
            lingering=of(replica.lingering),
        )
        for replica in cluster.roster.replicas
    )
    running = {replica: of(keys) for replica, keys in cluster.running.items()}
    active = {id: fires for id, fires in cluster.active.items() if sees(id)}
    roster = replace(cluster.roster, replicas=replicas)
    return replace(cluster, roster=roster, running=running, active=active)
