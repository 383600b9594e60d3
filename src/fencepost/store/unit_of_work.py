"""A unit of work: the rows of a backend, for one step or a few.

It begins with nothing in memory. What a step asks for is loaded, what it changes is noted, and all of it is saved
before the commit: the rules run on dictionaries, as in the reference model, and a batch costs a few statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State
from fencepost.store.backend import Backend, Changes, JobChange, ReplicaChange
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.rows import Entries, Fast, Fires, Jobs, Replicas, Rows, TargetRecord, Targets
from fencepost.store.rules.fast_path import covered_from
from fencepost.store.tables import BrokenRows, FireTable
from fencepost.store.unreadable import Unreadable, UnreadableRows, salvaged


class Cache:
    """What a step has loaded, and what it has changed of it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.jobs: dict[str, JobRecord] = {}
        self.stored_jobs: dict[str, JobRecord | None] = {}
        """As they were loaded, or saved last."""
        self.targets: dict[str, TargetRecord] = {}
        self.fires = FireTable(BrokenRows(UnreadableRows()))
        self.next_stored: dict[str, datetime | None] = {}
        """By job: when the next stored fire falls due that is not here."""
        self.events: dict[str, Sequence[JobEvent]] = {}
        self.replicas: dict[str, ReplicaRecord] | None = None
        self.stored_replicas: dict[str, ReplicaRecord] = {}
        self.lease: Lease | None = None
        self.changed_jobs: dict[str, tuple[JobRecord, datetime | None, datetime | None]] = {}
        self.decide_soon: dict[str, datetime] = {}
        self.changed_targets: dict[str, TargetRecord] = {}
        self.changed_fires: dict[str, FireRecord | None] = {}
        self.new_events: list[JobEvent] = []
        self.changed_replicas: dict[str, ReplicaRecord | None] = {}
        self.lease_changed = False
        self.entries: dict[str, str | None] = {}
        self.changed_entries: dict[str, str | None] = {}

    # --- loading ------------------------------------------------------------------------------------------

    def load_jobs(self, ids: Iterable[str]) -> None:
        if missing := [id for id in dict.fromkeys(ids) if id not in self.stored_jobs]:
            self.stored_jobs.update(dict.fromkeys(missing))
            for record in self.backend.load.jobs(missing):
                self.stored_jobs[record.id] = self.jobs[record.id] = record

    def load_targets(self, names: Iterable[str]) -> None:
        if missing := sorted({name for name in names if name not in self.targets}):
            self.targets.update({name: TargetRecord(name) for name in missing})
            self.targets.update({target.name: target for target in self.backend.load.targets(missing)})

    def load_events(self, ids: Iterable[str]) -> None:
        if missing := [id for id in dict.fromkeys(ids) if id not in self.events]:
            self.events.update({id: () for id in missing})
            self.events.update(self.backend.load.events(missing))

    def load_fires(self, keys: Iterable[str]) -> None:
        missing = [key for key in keys if key not in self.fires.rows and key not in self.changed_fires]
        if missing:
            self.take(self.backend.load.fires(missing))

    def load_replicas(self) -> dict[str, ReplicaRecord]:
        if self.replicas is None:
            self.stored_replicas = {replica.id: replica for replica in self.backend.load.replicas()}
            self.replicas = dict(self.stored_replicas)
        return self.replicas

    def take(self, fires: Iterable[FireRecord]) -> None:
        """Fires as they are stored; what is here is newer."""
        for fire in fires:
            if fire.key not in self.fires.rows and fire.key not in self.changed_fires:
                self.fires.put(fire)

    def target(self, name: str) -> TargetRecord:
        self.load_targets([name])
        return self.targets[name]

    # --- saving -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Save what a query over all rows must see: everything but fires and the lease."""
        changes = self._but_fires()
        if changes is not None:
            self.backend.save.save(changes)

    def save(self, notify: bool) -> None:
        """Everything. Called once, before the commit."""
        self.flush()
        stored = self.backend.reader.stored_fire
        fires = {key: fire for key, fire in self.changed_fires.items() if fire is None or stored(key) != fire}
        self.changed_fires = {}
        lease = self.lease if self.lease_changed else None
        self.lease_changed = False
        entries, self.changed_entries = self.changed_entries, {}
        if fires or lease is not None or notify or entries:
            self.backend.save.save(Changes(fires=fires, lease=lease, notify=notify, entries=entries))

    def _but_fires(self) -> Changes | None:
        if not (
            self.changed_jobs
            or self.changed_replicas
            or self.changed_targets
            or self.new_events
            or self.decide_soon
        ):
            return None
        jobs, self.changed_jobs = self.changed_jobs, {}
        replicas, self.changed_replicas = self.changed_replicas, {}
        targets, self.changed_targets = self.changed_targets, {}
        events, self.new_events = self.new_events, []
        soon, self.decide_soon = self.decide_soon, {}
        changes = Changes(
            [self._job_change(*each) for each in jobs.values()],
            soon,
            events,
            list(targets.values()),
            replicas=[
                ReplicaChange(id, replica, before)
                for id, replica in replicas.items()
                if (before := self.stored_replicas.get(id)) is None or before != replica
            ],
        )
        self.stored_jobs.update({id: record for id, (record, _, _) in jobs.items()})
        for id, replica in replicas.items():
            if replica is None:
                self.stored_replicas.pop(id, None)
            else:
                self.stored_replicas[id] = replica
        for event in events:
            if event.job_id in self.events:
                self.events[event.job_id] = (*self.events[event.job_id], event)
        return changes

    def _job_change(
        self, record: JobRecord, decide_at: datetime | None, plan_at: datetime | None
    ) -> JobChange:
        target, following = self.target(record.job.lane), self.next_stored.get(record.id)
        first_open = min(filter(None, (self.fires.first_open(record.id), following)), default=None)
        waits = any(fire.state is State.WAITING for fire in self.fires.active(record.id))
        fast_from = covered_from(record, target, decide_at, first_open, waits)
        before = self.stored_jobs.get(record.id)
        return JobChange(record, before, decide_at, plan_at, target, fast_from)


class LoadedJobs(Jobs):
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._find = cache.backend.find
        self._registry = cache.backend.reader.registry

    def get(self, id: str) -> JobRecord | None:
        if id not in self._cache.stored_jobs:
            self._cache.load_jobs([id])
        return self._cache.jobs.get(id)

    def ids(self, page: JobPage) -> list[str]:
        return self._find.job_ids(page)

    def every(self, target: str | None = None) -> Iterable[JobRecord]:
        self._cache.flush()
        return self._all(self._find.jobs_of(target))

    def busy(self) -> Iterable[JobRecord]:
        self._cache.flush()
        return self._all(self._find.busy_jobs())

    def _all(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        self._cache.load_jobs(ids)
        return [self._cache.jobs[id] for id in ids if id in self._cache.jobs]

    def put(self, record: JobRecord, decide_at: datetime | None, plan_at: datetime | None) -> None:
        if self._registry:
            self._registry.forget("job", record.id)
            self._registry.note_foreign(record)
        self._cache.stored_jobs.setdefault(record.id, None)
        self._cache.jobs[record.id] = record
        self._cache.changed_jobs[record.id] = record, decide_at, plan_at
        self._cache.decide_soon.pop(record.id, None)

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        self._cache.flush()
        return self._find.due(now, replica, leads, limit)

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        self._cache.flush()
        return self._find.soonest(replica, leads)

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        self._cache.flush()
        return self._find.upcoming(replica, leads, limit)

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        self._cache.flush()
        return self._find.due_plans(until, limit)

    def soonest_plan(self) -> datetime | None:
        self._cache.flush()
        return self._find.soonest_plan()

    def note(self, event: JobEvent) -> None:
        self._cache.new_events.append(event)

    def events(self, job_id: str) -> Sequence[JobEvent]:
        self._cache.load_events([job_id])
        fresh = [event for event in self._cache.new_events if event.job_id == job_id]
        return [*self._cache.events[job_id], *fresh]

    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        self._cache.flush()
        return self._find.events(since)

    def aside(self, job_id: str) -> Unreadable | None:
        return self._registry.holding(job_id)

    def unread(self) -> Sequence[str]:
        read = {record.id for record in self.every()}
        return [id for id in self._find.jobs_of(None) if id not in read]

    def salvage(self, id: str) -> Mapping[str, Any]:
        return salvaged(self._cache.backend.load.salvage(id))

    def decide_soon(self, job_id: str, when: datetime) -> None:
        self._cache.decide_soon[job_id] = when


class LoadedTargets(Targets):
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, name: str) -> TargetRecord:
        return self._cache.target(name)

    def put(self, target: TargetRecord) -> None:
        self._cache.targets[target.name] = self._cache.changed_targets[target.name] = target

    def unknown(self) -> Sequence[TargetRecord]:
        self._cache.flush()
        return self._cache.backend.find.unknown_targets()

    def knowing(self, target: str) -> frozenset[str]:
        if self._cache.changed_replicas:
            self._cache.flush()  # one may have joined in the same transaction
        return self._cache.backend.find.knowing(target)


class LoadedFires(Fires):
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._table = cache.fires
        self._reader = cache.backend.reader
        self._loaded: dict[str, datetime] = {}
        """By job: up to which due time its live fires are here."""
        self._changed_at: dict[str, set[datetime]] = {}
        """By job: when fires are due that were changed here."""

    def get(self, key: str) -> FireRecord | None:
        self._cache.load_fires([key])
        return self._table.get(key)

    def put(self, fire: FireRecord) -> None:
        self._table.put(fire)
        self._cache.changed_fires[fire.key] = fire
        self._changed_at.setdefault(fire.job_id, set()).add(fire.due_at)
        self._reader.fire_written(fire.key)

    def drop(self, fire: FireRecord) -> None:
        if fire.key in self._table.rows:
            self._table.drop(fire)
        self._cache.changed_fires[fire.key] = None

    def due(self, job_id: str, now: datetime) -> list[FireRecord]:
        self.load_live([job_id], now)
        return self._table.due(job_id, now)

    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        stored = self._cache.next_stored.get(job_id)
        if job_id not in self._cache.next_stored or (stored is not None and stored <= now):
            self._load([job_id], now)
            stored = self._cache.next_stored[job_id]
        while stored is not None and stored in self._changed_at.get(job_id, ()):
            self._load([job_id], stored)  # it may have been cancelled here: what comes after it counts
            stored = self._cache.next_stored[job_id]
        fresh = self._table.next_planned(job_id, now)
        return min((when for when in (stored, fresh) if when), default=None)

    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        loaded, following = self._loaded.get(job_id), self._cache.next_stored.get(job_id, now)
        for fire in self._table.planned_after(job_id, now):
            self.drop(fire)
        if loaded is None or loaded > now or following is not None:
            self._cache.next_stored.pop(job_id, None)
            for key in self._cache.backend.save.withdraw_planned(job_id, now):
                if key not in self._table.rows:
                    self._cache.changed_fires.setdefault(key, None)

    def active(self, job_id: str) -> list[FireRecord]:
        if job_id not in self._loaded:
            self.load_live([job_id], self._reader.at.wall)
        return self._table.active(job_id)

    def running_of(self, replica: str) -> list[FireRecord]:
        self._cache.take(self._cache.backend.load.running(replica))
        return self._table.running_of(replica)

    def find(self, query: FireQuery) -> list[FireRecord]:
        return self._cache.backend.find.fires(query)

    def is_broken(self, key: str) -> bool:
        return key in self._reader.fires

    def broken_live(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        return self._reader.live_of(job_id, now)

    def holds_broken(self, replica: str) -> bool:
        return self._reader.holds_run_of(replica)

    def load_live(self, job_ids: Iterable[str], now: datetime) -> None:
        """What is active, and what has fallen due. Fires planned ahead stay where they are."""
        missing = [id for id in job_ids if id not in self._loaded or self._loaded[id] < now]
        if missing:
            self._load(missing, now)

    def _load(self, job_ids: Sequence[str], now: datetime) -> None:
        live = self._cache.backend.load.live(job_ids, now)
        self._cache.take(live.fires)
        for id in job_ids:
            self._loaded[id] = max(now, self._loaded.get(id, now))
            self._cache.next_stored[id] = live.next_due.get(id)


class LoadedReplicas(Replicas):
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._broken = cache.backend.reader.presences

    def get(self, id: str) -> ReplicaRecord | None:
        return self._cache.load_replicas().get(id)

    def every(self) -> list[ReplicaRecord]:
        replicas = self._cache.load_replicas()
        return [replicas[id] for id in sorted(replicas)]

    def put(self, replica: ReplicaRecord) -> None:
        self._cache.load_replicas()[replica.id] = replica
        self._broken.pop(replica.id, None)
        self._cache.changed_replicas[replica.id] = replica

    def drop(self, id: str) -> None:
        self._cache.load_replicas().pop(id, None)
        self._broken.pop(id, None)
        self._cache.changed_replicas[id] = None

    def broken(self) -> Sequence[ReplicaRecord]:
        self._cache.load_replicas()
        return list(self._broken.values())


class LoadedEntries(Entries):
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._find = cache.backend.find

    def get(self, key: str) -> str | None:
        known = self._cache.entries
        if key not in known:
            known[key] = self._cache.backend.load.entries([key]).get(key)
        return known[key]

    def put(self, key: str, text: str) -> None:
        self._cache.entries[key] = self._cache.changed_entries[key] = text

    def drop(self, key: str) -> None:
        self._cache.entries[key] = self._cache.changed_entries[key] = None

    def page(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        new = self._new(prefix)
        found = dict(self._find.entries(prefix, after, limit + len(new)))
        found.update({key: text or "" for key, text in new.items() if key > after})
        return sorted((key, text) for key, text in found.items() if new.get(key, text) is not None)[:limit]

    def count(self, prefix: str) -> int:
        new = self._new(prefix)
        stored = self._cache.backend.load.entries(list(new)) if new else {}
        change = sum((text is not None) - (key in stored) for key, text in new.items())
        return self._find.count_entries(prefix) + change

    def _new(self, prefix: str) -> dict[str, str | None]:
        return {key: text for key, text in self._cache.changed_entries.items() if key.startswith(prefix)}


class Confined(Exception):
    """A step that holds only some jobs needs others: it must be taken again, with all of them."""


class UnitOfWork(Rows):
    jobs: LoadedJobs
    fires: LoadedFires
    confined = False
    """Whether the step holds only the jobs it was begun for."""

    def __init__(self, backend: Backend) -> None:
        self._cache = cache = Cache(backend)
        self.backend = backend
        self.jobs = LoadedJobs(cache)
        self.targets = LoadedTargets(cache)
        self.fires = LoadedFires(cache)
        self.replicas = LoadedReplicas(cache)
        self.entries = LoadedEntries(cache)
        self.remembers_empty_claims = backend.remembers_empty_claims
        self.may_lose_writes = backend.may_lose_writes

    @property
    def at(self) -> Moment:
        """The moment of the step."""
        return self.backend.reader.at

    @at.setter
    def at(self, moment: Moment) -> None:
        self.backend.reader.at = moment

    def save(self) -> None:
        """Everything that changed. Called once, before the commit."""
        self._cache.save(self.notify)
        self.backend.save.finish()

    def widen(self) -> None:
        if self.confined:
            raise Confined

    @property
    def leader(self) -> Lease:
        if self._cache.lease is None:
            self._cache.lease = self.backend.load.lease()
        return self._cache.lease

    @leader.setter
    def leader(self, lease: Lease) -> None:
        self._cache.lease = lease
        self._cache.lease_changed = True

    def prune_before(self, before: datetime) -> int:
        self._cache.flush()
        return self.backend.save.prune_before(before)

    def preload(
        self,
        now: datetime,
        jobs: Sequence[str] = (),
        fires: Sequence[str] = (),
        targets: Sequence[str] = (),
        records: Sequence[str] = (),
        events: Sequence[str] = (),
    ) -> None:
        """A few statements for all of them, where asking one by one would cost a few for each."""
        cache, here = self._cache, self._cache.fires.rows
        if jobs or fires:
            self.backend.load.prepare(
                [id for id in jobs if id not in cache.stored_jobs],
                [key for key in fires if key not in here],
                now,
            )
        cache.load_jobs(records)
        cache.load_fires(fires)
        ids = list(dict.fromkeys((*jobs, *(here[key].job_id for key in fires if key in here))))
        cache.load_jobs(ids)
        cache.load_targets([*targets, *(cache.jobs[id].job.lane for id in ids if id in cache.jobs)])
        cache.load_events(events)
        self.fires.load_live(ids, now)

    # --- the fast path: its statements act at once, so what has changes still in memory is not for it -----------

    def fast_due(self, now: datetime, job_ids: Sequence[str]) -> Mapping[str, Fast]:
        untouched = [id for id in job_ids if id not in self._cache.stored_jobs]
        return self.backend.fast.due(now, untouched) if self.backend.fast and untouched else {}

    def put_fast_claims(self, claims: Sequence[Fast]) -> None:
        assert self.backend.fast is not None
        self.backend.fast.claim(claims)

    def fast_running(self, now: datetime, keys: Sequence[str]) -> Mapping[str, FireRecord]:
        cache = self._cache
        untouched = [key for key in keys if key not in cache.fires.rows and key not in cache.changed_fires]
        if not self.backend.fast or not untouched:
            return {}
        running = self.backend.fast.running(now, untouched)
        return {key: fire for key, fire in running.items() if fire.job_id not in cache.stored_jobs}

    def put_fast_ends(self, fires: Sequence[FireRecord]) -> None:
        assert self.backend.fast is not None
        self.backend.fast.end(fires)
