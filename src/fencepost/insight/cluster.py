"""The replicas, which of them are alive, and the active fires: read once for everything shown of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.insight.views.shapes import Shape
from fencepost.model import FireRecord, ReplicaRecord, State
from fencepost.model.jobs import pools_of, tasks_of
from fencepost.model.triggers import iso
from fencepost.store.base import Evidence, FireQuery, Roster, Store

ACTIVE = (State.RUNNING, State.WAITING, State.QUEUED)
MOST_ACTIVE = 1_000
"""Fires that are shown as active. More than that run on a hundred replicas."""
NO_EVIDENCE = Evidence()
PRESENT = ("alive", "draining")


@dataclass(frozen=True)
class Cluster:
    roster: Roster
    standing: Mapping[str, str]
    """By replica: alive, draining, overdue or dead."""
    active: Mapping[str, Sequence[FireRecord]]
    """By job."""
    running: Mapping[str, Sequence[str]]
    """By replica: the keys of what it runs."""
    known: frozenset[str]
    """The tasks known to the replicas that are alive or draining."""

    @property
    def now(self) -> datetime:
        return self.roster.now

    @property
    def anybody(self) -> bool:
        """Whether any replica is alive or draining."""
        return any(state in PRESENT for state in self.standing.values())

    def leader(self) -> Shape | None:
        """The holder of the lease, unless it is known to be dead."""
        holder = next((each for each in self.roster.replicas if each.id == self.roster.leader.holder), None)
        if holder is None or self.standing[holder.id] == "dead":
            return None
        return {
            "replica": holder.id,
            "host": holder.host,
            "pid": holder.pid,
            "term": self.roster.leader.term,
            "state": self.standing[holder.id],
        }

    def replicas(self) -> list[Shape]:
        return [self._replica(replica) for replica in sorted(self.roster.replicas, key=lambda each: each.id)]

    def _replica(self, replica: ReplicaRecord) -> Shape:
        standing = self.standing[replica.id]
        return {
            "replica": replica.id,
            "host": replica.host,
            "pid": replica.pid,
            "state": standing,
            "leader": self.roster.leader.holder == replica.id and standing != "dead",
            "version": replica.version,
            "joined_at": iso(replica.joined_at),
            "renewed_at": iso(self.roster.heard_at(replica)),
            "running": list(self.running.get(replica.id, ())),
            "pools": list(pools_of(replica.targets)),
            "tasks": list(tasks_of(replica.targets)),
            "lingering": list(replica.lingering),
        }


async def cluster_of(store: Store) -> Cluster:
    roster = await store.roster()
    standing = await standings(store, roster)
    active: dict[str, list[FireRecord]] = {}
    running: dict[str, list[str]] = {}
    for fire in await store.find_fires(FireQuery(states=ACTIVE, limit=MOST_ACTIVE)):
        active.setdefault(fire.job_id, []).append(fire)
        if fire.state is State.RUNNING:
            running.setdefault(fire.replica or "", []).append(fire.key)
    present = [replica.targets for replica in roster.replicas if standing[replica.id] in PRESENT]
    return Cluster(roster, standing, active, running, frozenset().union(*present))


async def standings(store: Store, roster: Roster) -> dict[str, str]:
    """By replica: alive, draining, overdue or dead."""
    evidence = await store.evidence([replica.id for replica in roster.replicas])
    return {replica.id: standing_of(replica, roster, evidence) for replica in roster.replicas}


def standing_of(replica: ReplicaRecord, roster: Roster, evidence: Evidence = NO_EVIDENCE) -> str:
    if replica.id in evidence.dead:
        return "dead"
    if replica.id in roster.overdue or replica.id in evidence.gone:
        return "overdue"
    return "draining" if replica.draining else "alive"
