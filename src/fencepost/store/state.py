"""The reference model: the operations over plain dictionaries.

It *is* the memory store, it is what the simulator drives, what the file store logs and replays, and what SQL
and Redis are compared with.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State
from fencepost.model.triggers import from_iso
from fencepost.store.agenda import Agenda
from fencepost.store.base import FireQuery, JobPage
from fencepost.store.operations import Operations
from fencepost.store.rows import TargetRecord
from fencepost.store.rules import needed_events
from fencepost.store.unreadable import Kind, Registry, Unreadable, salvaged_presence

OPEN = (State.PENDING, State.QUEUED)
ACTIVE = (State.RUNNING, State.WAITING)


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that cannot be read."""

    row: Unreadable
    content: Any = None
    """As it is kept."""
    salvaged: Mapping[str, Any] = field(default_factory=dict)
    """The fields of it that can be read."""


class StoreState(Operations):
    leader = Lease()

    def __init__(self) -> None:
        self.jobs_by_id: dict[str, JobRecord] = {}
        self.events: dict[str, list[JobEvent]] = {}
        self.targets: dict[str, TargetRecord] = {}
        self.fires: dict[str, FireRecord] = {}
        self.replicas: dict[str, ReplicaRecord] = {}
        self._open: dict[str, dict[str, FireRecord]] = {}
        self._active: dict[str, dict[str, FireRecord]] = {}
        self._running: dict[str, dict[str, FireRecord]] = {}
        """By replica."""
        self._final: list[tuple[datetime, str]] = []
        """A heap of (finished at, key), with entries that have been overtaken."""
        self._looks = Agenda()
        self._plans = Agenda()
        self.registry = Registry()
        self.broken: dict[tuple[str, str], Broken] = {}
        """By kind and key: rows that cannot be read."""

    # --- rows that cannot be read -----------------------------------------------------------------------

    def set_aside(
        self, row: Unreadable, content: Any = None, salvaged: Mapping[str, Any] | None = None
    ) -> None:
        """This row cannot be read any more."""
        self.broken[row.kind, row.key] = Broken(row, content, salvaged or {})
        self.registry.note(row)
        if row.kind == "job" and not row.foreign:
            self.jobs_by_id.pop(row.key, None)
        elif row.kind == "fire" and (fire := self.fires.pop(row.key, None)):
            self._unindex(fire)
        elif row.kind == "replica":
            self.replicas.pop(row.key, None)
        elif row.kind == "target":
            self.targets[row.key] = TargetRecord(row.key)

    def _mended(self, kind: Kind, key: str) -> None:
        """It was written anew."""
        if (kind, key) in self.broken:
            del self.broken[kind, key]
            self.registry.forget(kind, key)

    def _tell_broken(self) -> None:
        """Whoever reads on is told of them once more."""
        for broken in self.broken.values():
            self.registry.note(broken.row)

    def aside(self, job_id: str) -> Unreadable | None:
        rows = (broken.row for broken in self.broken.values())
        return next((row for row in rows if row.holds and row.job_id == job_id), None)

    def _is_sound(self, job_id: str) -> bool:
        return not self.broken or (job_id in self.jobs_by_id and not self.aside(job_id))

    def broken_fire(self, key: str) -> bool:
        return ("fire", key) in self.broken

    def broken_live(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        rows = [broken.row for broken in self.broken.values()]
        keys = [row.key for row in rows if row.kind == "fire" and row.holds and row.job_id == job_id]
        return [blank_fire(key, job_id, now) for key in keys]

    def salvage_job(self, id: str) -> Mapping[str, Any]:
        record = self.jobs_by_id.get(id)
        if record is not None:
            return {"token": record.token, "decided_through": record.decided_through}
        return self.broken["job", id].salvaged if ("job", id) in self.broken else {}

    def broken_replicas(self) -> Sequence[ReplicaRecord]:
        broken = [each for each in self.broken.values() if each.row.kind == "replica"]
        return [salvaged_presence(each.row.key, each.salvaged) for each in broken]

    def holds_broken(self, replica: str) -> bool:
        return any(
            each.row.kind == "fire" and each.row.holds and each.salvaged.get("replica") == replica
            for each in self.broken.values()
        )

    def unread_jobs(self) -> Sequence[str]:
        return sorted(key for kind, key in self.broken if kind == "job" and key not in self.jobs_by_id)

    def look_soon(self, job_id: str, when: datetime) -> None:
        self._looks.set(job_id, when)

    # --- jobs -----------------------------------------------------------------------------------------

    def job(self, id: str) -> JobRecord | None:
        if self.broken:
            self._tell_broken()
        return self.jobs_by_id.get(id)

    def job_ids(self, page: JobPage) -> list[str]:
        return sorted(id for id in self.jobs_by_id if page.has(id))[: page.limit]

    def every_job(self, target: str | None = None) -> Iterable[JobRecord]:
        self._tell_broken()
        return [r for r in self.jobs_by_id.values() if target is None or r.job.target == target]

    def put_job_row(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None:
        self.jobs_by_id[record.id] = record
        self._mended("job", record.id)
        if (why := record.foreign) is not None:
            self.set_aside(Unreadable("job", record.id, why, record.id, holds=True, foreign=True))
        self.targets.setdefault(record.job.target, TargetRecord(record.job.target))
        self._looks.set(record.id, look_at)
        self._plans.set(record.id, plan_at)

    def due_looks(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        return self._looks.due(now, limit, self._may_run(replica, leads))

    def soonest_look(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        return self._looks.soonest(self._may_run(replica, leads) if replica else self._is_sound)

    def _may_run(self, replica: ReplicaRecord, leads: bool) -> Callable[[str], bool]:
        known = _set_of(replica.targets)

        def may_run(id: str) -> bool:
            if not self._is_sound(id):
                return False
            job = self.jobs_by_id[id].job
            return job.target in known and (leads or job.execute_on == "any")

        return may_run

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        return self._plans.due(until, limit, self._is_sound)

    def soonest_plan(self) -> datetime | None:
        return self._plans.soonest(self._is_sound)

    def note(self, event: JobEvent) -> None:
        self.events.setdefault(event.job_id, []).append(event)

    def events_of(self, job_id: str) -> Sequence[JobEvent]:
        self._tell_broken()
        return self.events.get(job_id, ())

    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        self._tell_broken()
        return [event for events in self.events.values() for event in events if event.at >= since]

    # --- targets --------------------------------------------------------------------------------------

    def target(self, name: str) -> TargetRecord:
        return self.targets.get(name) or TargetRecord(name)

    def unknown_targets(self) -> Sequence[TargetRecord]:
        known = {name for replica in self.replicas.values() for name in replica.targets}
        return [target for target in self.targets.values() if target.name not in known]

    def knowing(self, target: str) -> frozenset[str]:
        return frozenset(replica.id for replica in self.every_replica() if target in replica.targets)

    def put_target(self, target: TargetRecord) -> None:
        self.targets[target.name] = target
        self._mended("target", target.name)

    # --- fires ----------------------------------------------------------------------------------------

    def fire(self, key: str) -> FireRecord | None:
        return self.fires.get(key)

    def put_fire(self, fire: FireRecord) -> None:
        before = self.fires.get(fire.key)
        if before is not None:
            self._unindex(before)
        else:
            self._mended("fire", fire.key)
        self.fires[fire.key] = fire
        if fire.state in OPEN:
            self._open.setdefault(fire.job_id, {})[fire.key] = fire
        elif fire.state in ACTIVE:
            self._active.setdefault(fire.job_id, {})[fire.key] = fire
        elif fire.finished_at is not None:
            heapq.heappush(self._final, (fire.finished_at, fire.key))
        if fire.state is State.RUNNING and fire.replica:
            self._running.setdefault(fire.replica, {})[fire.key] = fire

    def drop_fire(self, fire: FireRecord) -> None:
        self._unindex(self.fires.pop(fire.key))

    def _unindex(self, fire: FireRecord) -> None:
        self._open.get(fire.job_id, {}).pop(fire.key, None)
        self._active.get(fire.job_id, {}).pop(fire.key, None)
        self._running.get(fire.replica or "", {}).pop(fire.key, None)

    def due_fires(self, job_id: str, now: datetime) -> list[FireRecord]:
        opened = self._open.get(job_id, {}).values()
        return sorted((fire for fire in opened if fire.due_at <= now), key=by_due)

    def open_fires(self, job_id: str) -> Iterable[FireRecord]:
        """Pending and queued ones, as far as they are here."""
        return self._open.get(job_id, {}).values()

    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        opened = self._open.get(job_id, {}).values()
        return min((fire.due_at for fire in opened if fire.due_at > now), default=None)

    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        for fire in list(self._open.get(job_id, {}).values()):
            if fire.scheduled and fire.state is State.PENDING and fire.due_at > now:
                self.drop_fire(fire)

    def active_fires(self, job_id: str) -> list[FireRecord]:
        return sorted(self._active.get(job_id, {}).values(), key=by_due)

    def running_of(self, replica: str) -> list[FireRecord]:
        return sorted(self._running.get(replica, {}).values(), key=by_due)

    def select_fires(self, query: FireQuery) -> list[FireRecord]:
        self._tell_broken()
        keys = keys_of(query)
        rows = self.fires.values() if keys is None else filter(None, map(self.fires.get, keys))
        return newest(rows, query)

    def prune_before(self, before: datetime) -> int:
        gone = 0
        while self._final and self._final[0][0] < before:
            finished_at, key = heapq.heappop(self._final)
            fire = self.fires.get(key)
            if fire is not None and fire.finished_at == finished_at:
                self.drop_fire(fire)
                gone += 1
        for job_id, events in self.events.items():
            self.events[job_id] = needed_events(events, before)
        return gone

    # --- replicas -------------------------------------------------------------------------------------

    def replica(self, id: str) -> ReplicaRecord | None:
        return self.replicas.get(id)

    def every_replica(self) -> list[ReplicaRecord]:
        return sorted(self.replicas.values(), key=lambda replica: replica.id)

    def put_replica(self, replica: ReplicaRecord) -> None:
        self.replicas[replica.id] = replica
        self._mended("replica", replica.id)

    def drop_replica(self, id: str) -> None:
        self.replicas.pop(id, None)
        self._mended("replica", id)


@lru_cache(maxsize=16)
def _set_of(targets: tuple[str, ...]) -> frozenset[str]:
    return frozenset(targets)


def blank_fire(key: str, job_id: str, due_at: datetime) -> FireRecord:
    """What a key says of a fire whose row cannot be read; `due_at`: of one by hand."""
    if not key.startswith(f"{job_id}@"):
        return FireRecord(key, job_id, due_at, scheduled=False)
    return FireRecord(key, job_id, from_iso(key.rpartition("@")[2]))


def by_due(fire: FireRecord) -> tuple[datetime, str]:
    return fire.due_at, fire.key


def keys_of(query: FireQuery) -> list[str] | None:
    """The keys that a query names; None: it names none."""
    if query.key is None:
        return list(dict.fromkeys(query.keys)) or None
    return [query.key] if not query.keys or query.key in query.keys else []


def newest(fires: Iterable[FireRecord], query: FireQuery) -> list[FireRecord]:
    matching = [fire for fire in fires if matches(fire, query)]
    return sorted(matching, key=by_due, reverse=True)[: query.limit]


def matches(fire: FireRecord, query: FireQuery) -> bool:
    return (
        (query.job_id is None or fire.job_id == query.job_id)
        and (not query.states or fire.state in query.states)
        and (query.since is None or fire.last_due >= query.since)
        and (query.until is None or fire.due_at < query.until)
    )
