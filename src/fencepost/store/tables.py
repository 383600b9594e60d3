"""Tables of rows in dictionaries, with the indexes that the rules ask for: what the reference model is made of, and
where a unit of work keeps what it has loaded."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from fencepost.model import FireRecord, JobEvent, JobRecord, ReplicaRecord, State
from fencepost.model.triggers import from_iso
from fencepost.store.agenda import Agenda, Turns
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.rows import Entries, Fires, Jobs, Replicas, TargetRecord, Targets, jobs_walked
from fencepost.store.rules.history import needed_events
from fencepost.store.unreadable import Kind, Unreadable, UnreadableRows, salvaged_presence

OPEN = (State.PENDING, State.QUEUED)
ACTIVE = (State.RUNNING, State.WAITING)


# --- rows that cannot be read -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that cannot be read."""

    row: Unreadable
    content: Any = None
    """As it is kept."""
    salvaged: Mapping[str, Any] = field(default_factory=dict)
    """The fields of it that can be read."""


class BrokenRows:
    """By kind and key: the rows that cannot be read. All tables share it."""

    def __init__(self, registry: UnreadableRows) -> None:
        self.registry = registry
        self.rows: dict[tuple[str, str], Broken] = {}

    def __bool__(self) -> bool:
        return bool(self.rows)

    def add(self, row: Unreadable, content: Any = None, salvaged: Mapping[str, Any] | None = None) -> None:
        self.rows[row.kind, row.key] = Broken(row, content, salvaged or {})
        self.registry.note(row)

    def mended(self, kind: Kind, key: str) -> None:
        """It was written anew."""
        if (kind, key) in self.rows:
            del self.rows[kind, key]
            self.registry.forget(kind, key)

    def note_all(self) -> None:
        """A caller that reads on learns of them once more."""
        for broken in self.rows.values():
            self.registry.note(broken.row)

    def holding(self, job_id: str) -> Unreadable | None:
        rows = (broken.row for broken in self.rows.values())
        return next((row for row in rows if row.holds and row.job_id == job_id), None)

    def of(self, kind: Kind) -> list[Broken]:
        return [broken for broken in self.rows.values() if broken.row.kind == kind]


# --- the tables ---------------------------------------------------------------------------------------------


class TargetTable(Targets):
    def __init__(self, broken: BrokenRows, replicas: Replicas) -> None:
        self.rows: dict[str, TargetRecord] = {}
        self._broken = broken
        self._replicas = replicas

    def get(self, name: str) -> TargetRecord:
        return self.rows.get(name) or TargetRecord(name)

    def put(self, target: TargetRecord) -> None:
        self.rows[target.name] = target
        self._broken.mended("target", target.name)

    def unknown(self) -> Sequence[TargetRecord]:
        known = {name for replica in self._replicas.every() for name in replica.targets}
        return [target for target in self.rows.values() if target.name not in known]

    def knowing(self, target: str) -> frozenset[str]:
        return frozenset(replica.id for replica in self._replicas.every() if target in replica.targets)


class ReplicaTable(Replicas):
    def __init__(self, broken: BrokenRows) -> None:
        self.rows: dict[str, ReplicaRecord] = {}
        self._broken = broken

    def get(self, id: str) -> ReplicaRecord | None:
        return self.rows.get(id)

    def every(self) -> list[ReplicaRecord]:
        return sorted(self.rows.values(), key=lambda replica: replica.id)

    def put(self, replica: ReplicaRecord) -> None:
        self.rows[replica.id] = replica
        self._broken.mended("replica", replica.id)

    def drop(self, id: str) -> None:
        self.rows.pop(id, None)
        self._broken.mended("replica", id)

    def broken(self) -> Sequence[ReplicaRecord]:
        return [salvaged_presence(each.row.key, each.salvaged) for each in self._broken.of("replica")]


class EntryTable(Entries):
    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self._keys: list[str] = []
        """In order."""

    def get(self, key: str) -> str | None:
        return self.rows.get(key)

    def put(self, key: str, text: str) -> None:
        if key not in self.rows:
            insort(self._keys, key)
        self.rows[key] = text

    def drop(self, key: str) -> None:
        if self.rows.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def page(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        first = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        last = bisect_left(self._keys, after_all(prefix))
        return [(key, self.rows[key]) for key in self._keys[first : min(last, first + limit)]]

    def count(self, prefix: str) -> int:
        return bisect_left(self._keys, after_all(prefix)) - bisect_left(self._keys, prefix)


def after_all(prefix: str) -> str:
    """What sorts after all keys of entries that begin so: they are ASCII."""
    return prefix + "\x7f"


class JobTable(Jobs):
    def __init__(self, broken: BrokenRows, targets: TargetTable) -> None:
        self.rows: dict[str, JobRecord] = {}
        self.events_by_job: dict[str, list[JobEvent]] = {}
        self.decisions = Turns()
        self.plans = Agenda()
        self._targets = targets
        self._broken = broken

    def get(self, id: str) -> JobRecord | None:
        if self._broken:
            self._broken.note_all()
        return self.rows.get(id)

    def ids(self, page: JobPage) -> list[str]:
        return sorted(id for id in self.rows if page.has(id))[: page.limit]

    def every(self, target: str | None = None) -> Iterable[JobRecord]:
        self._broken.note_all()
        return [r for r in self.rows.values() if target is None or r.job.lane == target]

    def busy(self) -> Iterable[JobRecord]:
        return self.every()

    def put(self, record: JobRecord, decide_at: datetime | None, plan_at: datetime | None) -> None:
        self.rows[record.id] = record
        self._broken.mended("job", record.id)
        if (why := record.foreign) is not None:
            self._broken.add(Unreadable("job", record.id, why, record.id, holds=True, foreign=True))
        self._targets.rows.setdefault(record.job.lane, TargetRecord(record.job.lane))
        self.decisions.set(record.id, decide_at, record.job.priority)
        self.plans.set(record.id, plan_at)

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        return self.decisions.due(now, limit, self._may_run(replica, leads))

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        return self.decisions.soonest(self._may_run(replica, leads) if replica else self._is_sound)

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        found = self.decisions.upcoming(limit, jobs_walked(limit), self._may_run(replica, leads))
        return [Upcoming(at, self.rows[id].job.leader_only) for at, id in found or ()]

    def _may_run(self, replica: ReplicaRecord, leads: bool) -> Callable[[str], bool]:
        known = _set_of(replica.targets)

        def may_run(id: str) -> bool:
            if not self._is_sound(id):
                return False
            job = self.rows[id].job
            return job.lane in known and (leads or not job.leader_only)

        return may_run

    def _is_sound(self, job_id: str) -> bool:
        return not self._broken or (job_id in self.rows and not self.aside(job_id))

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        return self.plans.due(until, limit, self._is_sound)

    def soonest_plan(self) -> datetime | None:
        return self.plans.soonest(self._is_sound)

    def note(self, event: JobEvent) -> None:
        self.events_by_job.setdefault(event.job_id, []).append(event)

    def events(self, job_id: str) -> Sequence[JobEvent]:
        self._broken.note_all()
        return self.events_by_job.get(job_id, ())

    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        self._broken.note_all()
        return [event for events in self.events_by_job.values() for event in events if event.at >= since]

    def prune_events(self, before: datetime) -> None:
        for job_id, events in self.events_by_job.items():
            self.events_by_job[job_id] = needed_events(events, before)

    def aside(self, job_id: str) -> Unreadable | None:
        return self._broken.holding(job_id)

    def unread(self) -> Sequence[str]:
        return sorted(each.row.key for each in self._broken.of("job") if each.row.key not in self.rows)

    def salvage(self, id: str) -> Mapping[str, Any]:
        record = self.rows.get(id)
        if record is not None:
            return {"token": record.token, "decided_through": record.decided_through}
        return self._broken.rows["job", id].salvaged if ("job", id) in self._broken.rows else {}

    def decide_soon(self, job_id: str, when: datetime) -> None:
        self.decisions.set(job_id, when)


class OpenFires:
    """Pending and queued fires of one job, in the order of their due times. There may be a million that lie ahead."""

    def __init__(self) -> None:
        self.fires: dict[str, FireRecord] = {}
        self._order: list[tuple[datetime, str]] = []

    def add(self, fire: FireRecord) -> None:
        self.fires[fire.key] = fire
        insort(self._order, by_due(fire))

    def remove(self, fire: FireRecord) -> None:
        if self.fires.pop(fire.key, None) is not None:
            del self._order[bisect_left(self._order, by_due(fire))]

    def until(self, now: datetime) -> list[FireRecord]:
        return [self.fires[key] for _, key in self._order[: self._place(now)]]

    def next_after(self, now: datetime) -> datetime | None:
        place = self._place(now)
        return self._order[place][0] if place < len(self._order) else None

    @property
    def first(self) -> datetime | None:
        return self._order[0][0] if self._order else None

    def _place(self, now: datetime) -> int:
        return bisect_right(self._order, now, key=_due_at)


def _due_at(place: tuple[datetime, str]) -> datetime:
    return place[0]


class FireTable(Fires):
    def __init__(self, broken: BrokenRows) -> None:
        self.rows: dict[str, FireRecord] = {}
        self._broken = broken
        self._open: dict[str, OpenFires] = {}
        self._active: dict[str, dict[str, FireRecord]] = {}
        self._running: dict[str, dict[str, FireRecord]] = {}
        """By replica."""
        self._final: list[tuple[datetime, str]] = []
        """A heap of (finished at, key), with entries that have been overtaken."""

    def get(self, key: str) -> FireRecord | None:
        return self.rows.get(key)

    def put(self, fire: FireRecord) -> None:
        before = self.rows.get(fire.key)
        if before is not None:
            self._unindex(before)
        else:
            self._broken.mended("fire", fire.key)
        self.rows[fire.key] = fire
        if fire.state in OPEN:
            self._open.setdefault(fire.job_id, OpenFires()).add(fire)
        elif fire.state in ACTIVE:
            self._active.setdefault(fire.job_id, {})[fire.key] = fire
        elif fire.finished_at is not None:
            heapq.heappush(self._final, (fire.finished_at, fire.key))
        if fire.state is State.RUNNING and fire.replica:
            self._running.setdefault(fire.replica, {})[fire.key] = fire

    def drop(self, fire: FireRecord) -> None:
        self.forget(fire.key)

    def forget(self, key: str) -> None:
        """It is not here any more, whatever became of it."""
        self._unindex(self.rows.pop(key))

    def _unindex(self, fire: FireRecord) -> None:
        if fire.state in OPEN and fire.job_id in self._open:
            self._open[fire.job_id].remove(fire)
        self._active.get(fire.job_id, {}).pop(fire.key, None)
        self._running.get(fire.replica or "", {}).pop(fire.key, None)

    def due(self, job_id: str, now: datetime) -> list[FireRecord]:
        return self._open[job_id].until(now) if job_id in self._open else []

    def open(self, job_id: str) -> Iterable[FireRecord]:
        """Pending and queued ones."""
        return self._open[job_id].fires.values() if job_id in self._open else ()

    def first_open(self, job_id: str) -> datetime | None:
        return self._open[job_id].first if job_id in self._open else None

    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        return self._open[job_id].next_after(now) if job_id in self._open else None

    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        for fire in self.planned_after(job_id, now):
            self.drop(fire)

    def planned_after(self, job_id: str, now: datetime) -> list[FireRecord]:
        planned = (fire for fire in self.open(job_id) if fire.scheduled and fire.state is State.PENDING)
        return [fire for fire in planned if fire.due_at > now]

    def active(self, job_id: str) -> list[FireRecord]:
        return sorted(self._active.get(job_id, {}).values(), key=by_due)

    def running_of(self, replica: str) -> list[FireRecord]:
        return sorted(self._running.get(replica, {}).values(), key=by_due)

    def find(self, query: FireQuery) -> list[FireRecord]:
        self._broken.note_all()
        keys = keys_of(query)
        rows = self.rows.values() if keys is None else filter(None, map(self.rows.get, keys))
        return newest(rows, query)

    def prune_before(self, before: datetime) -> int:
        gone = 0
        while self._final and self._final[0][0] < before:
            finished_at, key = heapq.heappop(self._final)
            fire = self.rows.get(key)
            if fire is not None and fire.finished_at == finished_at:
                self.drop(fire)
                gone += 1
        return gone

    def is_broken(self, key: str) -> bool:
        return ("fire", key) in self._broken.rows

    def broken_live(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        rows = [broken.row for broken in self._broken.of("fire")]
        return [blank_fire(row.key, job_id, now) for row in rows if row.holds and row.job_id == job_id]

    def holds_broken(self, replica: str) -> bool:
        broken = self._broken.of("fire")
        return any(each.row.holds and each.salvaged.get("replica") == replica for each in broken)


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
