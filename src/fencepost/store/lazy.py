"""The operations over rows that live elsewhere.

A step begins with nothing in memory. What it asks for is fetched, what it changes is noted, and all of it is
written before the commit: the rules run on the same dictionaries as in the reference model, and a batch of
fires costs a few statements. A store says how rows are fetched and written, in terms of the model's records.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord
from fencepost.store.rows import TargetRecord
from fencepost.store.state import StoreState, blank_fire
from fencepost.store.texts import read
from fencepost.store.unreadable import (
    Registry,
    Unreadable,
    checked_job,
    salvaged,
    salvaged_lease,
    salvaged_presence,
)


@dataclass(frozen=True, slots=True)
class JobChange:
    record: JobRecord
    before: JobRecord | None
    """As it was fetched."""
    look_at: datetime | None
    plan_at: datetime | None


@dataclass(frozen=True, slots=True)
class BrokenFire:
    """What is known of a fire whose row cannot be read."""

    job_id: str
    live: bool
    replica: str | None


class LazyRows(StoreState):
    at = Moment(datetime.fromtimestamp(0, UTC), 0.0)
    """The moment of the step."""

    def __init__(self, registry: Registry) -> None:
        """`registry`: of the rows that this process could not read, kept from step to step."""
        super().__init__()
        self.registry = registry
        self._broken_fires: dict[str, BrokenFire] = {}
        self._broken_presences: dict[str, ReplicaRecord] = {}
        self._fetched_jobs: dict[str, JobRecord | None] = {}
        self._job_changes: dict[str, JobChange] = {}
        self._live_fetched: dict[str, datetime | None] = {}
        """By job: up to which due time its live fires are here; None: only those that are active."""
        self._next_stored: dict[str, datetime | None] = {}
        """By job: when the next stored fire falls due that is not here."""
        self._fire_changes: dict[str, FireRecord | None] = {}
        self._replicas_here: dict[str, ReplicaRecord] | None = None
        self._stored_replicas: dict[str, ReplicaRecord] = {}
        self._replica_changes: dict[str, ReplicaRecord | None] = {}
        self._lease: Lease | None = None
        self._lease_changed = False

    # --- what a store gives -----------------------------------------------------------------------------

    @abstractmethod
    def fetch_jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]: ...

    @abstractmethod
    def fetch_job_ids(self, target: str | None) -> Sequence[str]:
        """Of all jobs, or of a target's."""

    @abstractmethod
    def fetch_targets(self, names: Sequence[str]) -> Iterable[TargetRecord]: ...

    @abstractmethod
    def fetch_fires(self, keys: Sequence[str]) -> Iterable[FireRecord]: ...

    @abstractmethod
    def fetch_active(self, job_ids: Sequence[str]) -> Iterable[FireRecord]:
        """Running and waiting ones."""

    @abstractmethod
    def fetch_due(self, job_ids: Sequence[str], now: datetime) -> Iterable[FireRecord]:
        """Pending and queued ones due by now. (Active ones do no harm.)"""

    @abstractmethod
    def fetch_next(self, job_ids: Sequence[str], now: datetime) -> Mapping[str, datetime]:
        """The first due time after now of the pending ones."""

    @abstractmethod
    def fetch_running(self, replica: str) -> Iterable[FireRecord]: ...

    @abstractmethod
    def fetch_replicas(self) -> Iterable[ReplicaRecord]: ...

    @abstractmethod
    def fetch_lease(self) -> Lease: ...

    @abstractmethod
    def fetch_hot(self, id: str) -> Mapping[str, Callable[[], Any]]:
        """Of a job: how to read its `target`, `token` and `decided_through`, each by itself."""

    @abstractmethod
    def delete_planned(self, job_id: str, now: datetime) -> None:
        """Pending, scheduled, due after now."""

    @abstractmethod
    def write_jobs(self, changes: Sequence[JobChange]) -> None: ...

    @abstractmethod
    def look_soon(self, job_id: str, when: datetime) -> None: ...

    @abstractmethod
    def write_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        """None: to be deleted."""

    @abstractmethod
    def write_replica(self, id: str, replica: ReplicaRecord | None, before: ReplicaRecord | None) -> None:
        """`before`: as it was fetched, or written last."""

    @abstractmethod
    def write_lease(self, lease: Lease) -> None: ...

    def write(self) -> None:
        """Everything that changed. Called once, before the commit."""
        self.flush()
        if self._fire_changes:
            self.write_fires(self._fire_changes)
        if self._lease_changed:
            self.write_lease(self.leader)

    def flush(self) -> None:
        """Write jobs and replicas before a query over all of them: it must see what changed."""
        changes, self._job_changes = list(self._job_changes.values()), {}
        if changes:
            self.write_jobs(changes)
            self._fetched_jobs.update({change.record.id: change.record for change in changes})
        replicas, self._replica_changes = self._replica_changes, {}
        for id, replica in replicas.items():
            self.write_replica(id, replica, self._stored_replicas.pop(id, None))
            if replica is not None:
                self._stored_replicas[id] = replica

    # --- rows that cannot be read -----------------------------------------------------------------------

    def read_job(self, id: str, decode: Callable[..., JobRecord], *args: Any) -> JobRecord | None:
        """None: it cannot be read."""

        def checked() -> JobRecord:
            return checked_job(decode(*args), id)

        record = self.registry.read("job", id, checked, job_id=id, holds=True)
        if record is not None:
            self.registry.note_foreign(record)
        return record

    def read_fire(
        self, key: str, broken: BrokenFire, decode: Callable[..., FireRecord], *args: Any
    ) -> FireRecord | None:
        """`broken`: what is known if it cannot be read."""
        fire = self.registry.read("fire", key, decode, *args, job_id=broken.job_id, holds=broken.live)
        if fire is None:
            self._broken_fires[key] = broken
        return fire

    def read_event(self, job_id: str, number: object, row: str) -> JobEvent | None:
        return self.registry.read("event", f"{job_id} {number}", read, JobEvent, row, job_id=job_id)

    def read_target(self, name: str, decode: Callable[..., TargetRecord], *args: Any) -> TargetRecord:
        """One that cannot be read counts as known, and always so: its jobs go on, and if nobody knows it that will be
        noticed once more."""
        return self.registry.read("target", name, decode, *args) or TargetRecord(name)

    def read_replica(
        self,
        id: str,
        fields: Callable[[], Mapping[str, Callable[[], Any]]],
        decode: Callable[..., ReplicaRecord],
        *args: Any,
    ) -> ReplicaRecord | None:
        """`fields`: how to read each by itself, if the whole cannot be."""
        replica = self.registry.read("replica", id, decode, *args)
        if replica is None:
            self._broken_presences[id] = salvaged_presence(id, salvaged(fields()))
        return replica

    def read_lease(
        self, fields: Callable[[], Mapping[str, Callable[[], Any]]], decode: Callable[..., Lease], *args: Any
    ) -> Lease:
        lease = self.registry.read("lease", "leader", decode, *args)
        return lease if lease is not None else salvaged_lease(self.at, salvaged(fields()))

    def aside(self, job_id: str) -> Unreadable | None:
        return self.registry.holding(job_id)

    def broken_fire(self, key: str) -> bool:
        return key in self._broken_fires

    def broken_live(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        broken = [key for key, each in self._broken_fires.items() if each.live and each.job_id == job_id]
        return [blank_fire(key, job_id, now) for key in broken]

    def salvage_job(self, id: str) -> Mapping[str, Any]:
        return salvaged(self.fetch_hot(id))

    def broken_replicas(self) -> Sequence[ReplicaRecord]:
        self._replicas()
        return list(self._broken_presences.values())

    def holds_broken(self, replica: str) -> bool:
        return any(each.live and each.replica == replica for each in self._broken_fires.values())

    def unread_jobs(self) -> Sequence[str]:
        read = {record.id for record in self.every_job()}
        return [id for id in self.fetch_job_ids(None) if id not in read]

    # --- jobs -------------------------------------------------------------------------------------------

    def preload(
        self,
        now: datetime,
        jobs: Sequence[str] = (),
        fires: Sequence[str] = (),
        targets: Sequence[str] = (),
        records: Sequence[str] = (),
    ) -> None:
        """A few statements for all of them, where asking one by one would cost a few for each."""
        if missing_records := [id for id in records if id not in self._fetched_jobs]:
            self._fetch_jobs(missing_records)
        self._here(self.fetch_fires([key for key in fires if key not in self.fires]))
        known = dict.fromkeys((*jobs, *(self.fires[key].job_id for key in fires if key in self.fires)))
        ids = [id for id in known if id not in self._live_fetched]
        self._fetch_jobs([id for id in ids if id not in self._fetched_jobs])
        names = {self.jobs_by_id[id].job.target for id in ids if id in self.jobs_by_id}.union(targets)
        missing = sorted(names - self.targets.keys())
        self.targets.update({target.name: target for target in self.fetch_targets(missing)})
        self.targets.update({name: TargetRecord(name) for name in missing if name not in self.targets})
        if not ids:
            return
        self._here(self.fetch_active(ids))
        self._here(self.fetch_due(ids, now))
        following = self.fetch_next(ids, now)
        for id in ids:
            self._live_fetched[id] = now
            self._next_stored[id] = following.get(id)

    def job(self, id: str) -> JobRecord | None:
        if id not in self._fetched_jobs:
            self._fetch_jobs([id])
        return self.jobs_by_id.get(id)

    def every_job(self, target: str | None = None) -> Iterable[JobRecord]:
        self.flush()
        ids = self.fetch_job_ids(target)
        self._fetch_jobs([id for id in ids if id not in self._fetched_jobs])
        return [self.jobs_by_id[id] for id in ids if id in self.jobs_by_id]

    def put_job_row(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None:
        if self.registry:
            self.registry.forget("job", record.id)
            self.registry.note_foreign(record)
        before = self._fetched_jobs.setdefault(record.id, None)
        self.jobs_by_id[record.id] = record
        self._job_changes[record.id] = JobChange(record, before, look_at, plan_at)

    def _fetch_jobs(self, ids: Sequence[str]) -> None:
        self._fetched_jobs.update(dict.fromkeys(ids))
        for record in self.fetch_jobs(ids):
            self._fetched_jobs[record.id] = self.jobs_by_id[record.id] = record

    def target(self, name: str) -> TargetRecord:
        if name not in self.targets:
            self.targets[name] = next(iter(self.fetch_targets([name])), TargetRecord(name))
        return self.targets[name]

    # --- fires ------------------------------------------------------------------------------------------

    def fire(self, key: str) -> FireRecord | None:
        if key not in self.fires and key not in self._fire_changes:
            self._here(self.fetch_fires([key]))
        return self.fires.get(key)

    def put_fire(self, fire: FireRecord) -> None:
        super().put_fire(fire)
        self._fire_changes[fire.key] = fire
        if self._broken_fires.pop(fire.key, None):
            self.registry.forget("fire", fire.key)

    def drop_fire(self, fire: FireRecord) -> None:
        if fire.key in self.fires:
            super().drop_fire(fire)
        self._fire_changes[fire.key] = None

    def due_fires(self, job_id: str, now: datetime) -> list[FireRecord]:
        self._fetch_live(job_id, now)
        return super().due_fires(job_id, now)

    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        stored = self._next_stored.get(job_id)
        if job_id not in self._next_stored or (stored is not None and stored <= now):
            stored = self._next_stored[job_id] = self.fetch_next([job_id], now).get(job_id)
        fresh = super().next_planned(job_id, now)
        return min((when for when in (stored, fresh) if when), default=None)

    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        super().withdraw_planned(job_id, now)
        fetched = self._live_fetched.get(job_id)
        if fetched is None or fetched > now or self._next_stored.get(job_id, now) is not None:
            self._next_stored.pop(job_id, None)
            self.delete_planned(job_id, now)

    def active_fires(self, job_id: str) -> list[FireRecord]:
        self._fetch_live(job_id)
        return super().active_fires(job_id)

    def running_of(self, replica: str) -> list[FireRecord]:
        self._here(self.fetch_running(replica))
        return super().running_of(replica)

    def _fetch_live(self, job_id: str, now: datetime | None = None) -> None:
        """What is active, and what has fallen due. Fires planned ahead stay where they are."""
        if job_id not in self._live_fetched:
            self._live_fetched[job_id] = None
            self._here(self.fetch_active([job_id]))
        fetched = self._live_fetched[job_id]
        if now is not None and (fetched is None or now > fetched):
            self._live_fetched[job_id] = now
            self._here(self.fetch_due([job_id], now))

    def _here(self, fires: Iterable[FireRecord]) -> None:
        for fire in fires:
            if fire.key not in self.fires and fire.key not in self._fire_changes:
                super().put_fire(fire)

    # --- replicas and the lease -----------------------------------------------------------------------------

    def replica(self, id: str) -> ReplicaRecord | None:
        return self._replicas().get(id)

    def every_replica(self) -> list[ReplicaRecord]:
        replicas = self._replicas()
        return [replicas[id] for id in sorted(replicas)]

    def put_replica(self, replica: ReplicaRecord) -> None:
        self._replicas()[replica.id] = replica
        self._broken_presences.pop(replica.id, None)
        self._replica_changes[replica.id] = replica

    def drop_replica(self, id: str) -> None:
        self._replicas().pop(id, None)
        self._broken_presences.pop(id, None)
        self._replica_changes[id] = None

    @property
    def leader(self) -> Lease:
        if self._lease is None:
            self._lease = self.fetch_lease()
        return self._lease

    @leader.setter
    def leader(self, lease: Lease) -> None:
        self._lease = lease
        self._lease_changed = True

    def _replicas(self) -> dict[str, ReplicaRecord]:
        if self._replicas_here is None:
            self._stored_replicas = {replica.id: replica for replica in self.fetch_replicas()}
            self._replicas_here = dict(self._stored_replicas)
        return self._replicas_here
