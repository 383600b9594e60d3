"""The model's rows, with every change put on record.

What is logged is not the operation but what it did to the rows. A replica of another version, whose rules
differ in some detail, then still arrives at the very same rows: an upgrade cannot change what was decided.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any, get_type_hints

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord, Json, Lease, ReplicaRecord
from fencepost.store.base import FireQuery
from fencepost.store.codec import micros, ticks, to_json
from fencepost.store.file.archive import Archive
from fencepost.store.rows import Rows, TargetRecord
from fencepost.store.state import StoreState
from fencepost.store.tables import (
    Broken,
    BrokenRows,
    EntryTable,
    FireTable,
    JobTable,
    ReplicaTable,
    TargetTable,
    keys_of,
    newest,
)
from fencepost.store.unreadable import UnreadableRows, salvaged_lease

Change = list[Json]
"""What kind of row, which one, and its fields that are new."""


class LoggedJobs(JobTable):
    def __init__(self, broken: BrokenRows, targets: TargetTable, changes: list[Change]) -> None:
        super().__init__(broken, targets)
        self._changes = changes
        self.moments: dict[str, Change] = {}
        """By job: when to decide its fires, when to plan them."""

    def put(self, record: JobRecord, decide_at: datetime | None, plan_at: datetime | None) -> None:
        new = new_fields(self.rows.get(record.id), record)
        moments: Change = [ticks(decide_at), ticks(plan_at)]
        if new or self.moments.get(record.id) != moments:
            self._changes.append(["job", record.id, new, *moments])
            self.redo(record, decide_at, plan_at)

    def redo(self, record: JobRecord, decide_at: datetime | None, plan_at: datetime | None) -> None:
        """As the log has it."""
        self.moments[record.id] = [ticks(decide_at), ticks(plan_at)]
        super().put(record, decide_at, plan_at)

    def decide_soon(self, job_id: str, when: datetime) -> None:
        _, plan_at = self.moments.get(job_id, (None, None))
        self.moments[job_id] = [ticks(when), plan_at]
        self._changes.append(as_change("job", job_id, self._broken.rows["job", job_id], self.moments[job_id]))
        super().decide_soon(job_id, when)

    def note(self, event: JobEvent) -> None:
        self._changes.append(["event", event.job_id, to_json(event)])
        super().note(event)

    def redo_event(self, event: JobEvent) -> None:
        super().note(event)

    def prune_events(self, before: datetime) -> None:
        events = dict(self.events_by_job)
        super().prune_events(before)
        for job_id, kept in self.events_by_job.items():
            if len(kept) != len(events[job_id]):
                self._changes.append(["events", job_id, to_json(kept)])


class LoggedTargets(TargetTable):
    def __init__(self, broken: BrokenRows, replicas: ReplicaTable, changes: list[Change]) -> None:
        super().__init__(broken, replicas)
        self._changes = changes

    def put(self, target: TargetRecord) -> None:
        self._changes.append(["target", target.name, to_json(target)])
        super().put(target)

    def redo(self, target: TargetRecord) -> None:
        super().put(target)


class LoggedFires(FireTable):
    def __init__(self, broken: BrokenRows, changes: list[Change], archive: Archive) -> None:
        super().__init__(broken)
        self._changes = changes
        self.archive = archive
        """Fires that have been moved out."""

    def get(self, key: str) -> FireRecord | None:
        return super().get(key) or self.archive.find(key)

    def is_broken(self, key: str) -> bool:
        return super().is_broken(key) or self.archive.is_broken(key)

    def put(self, fire: FireRecord) -> None:
        if new := new_fields(self.rows.get(fire.key), fire):
            self._changes.append(["fire", fire.key, new])
            super().put(fire)

    def redo(self, fire: FireRecord) -> None:
        super().put(fire)

    def drop(self, fire: FireRecord) -> None:
        self._changes.append(["no fire", fire.key])
        super().drop(fire)

    def prune_before(self, before: datetime) -> int:
        """One change for all of them."""
        archived, logged = self.archive.count_before(before), len(self._changes)
        gone = super().prune_before(before)
        self._changes[logged:] = [["prune", "", micros(before)]]
        self.archive = self.archive.pruned(before)
        return gone + archived

    def redo_prune(self, before: datetime) -> None:
        for fire in list(self.rows.values()):
            if fire.finished_at is not None and fire.finished_at < before:
                self.forget(fire.key)
        self.archive = self.archive.pruned(before)

    def to_move_out(self, keep: int, tails: Collection[str | None]) -> list[FireRecord]:
        """Final fires but the latest, and but those that may still grow, `tails`."""
        final = [fire for fire in self.rows.values() if fire.finished_at is not None]
        final.sort(key=lambda fire: (fire.finished_at, fire.key))
        old = final[: max(0, len(final) - keep)]
        # One that was finished before what has been pruned already waits here for the next pruning.
        return [fire for fire in old if fire.key not in tails and not self.archive.hides(fire)]

    def moved_out(self, keys: Collection[str], archive: Archive) -> None:
        self.archive = archive
        for key in keys:
            if key in self.rows:
                self.forget(key)
        if keys:
            self._final = [entry for entry in self._final if entry[1] in self.rows]
            heapq.heapify(self._final)


class LoggedReplicas(ReplicaTable):
    def __init__(self, broken: BrokenRows, changes: list[Change]) -> None:
        super().__init__(broken)
        self._changes = changes

    def put(self, replica: ReplicaRecord) -> None:
        if new := new_fields(self.rows.get(replica.id), replica):
            self._changes.append(["replica", replica.id, new])
            super().put(replica)

    def redo(self, replica: ReplicaRecord) -> None:
        super().put(replica)

    def drop(self, id: str) -> None:
        if id in self.rows or ("replica", id) in self._broken.rows:
            self._changes.append(["no replica", id])
            super().drop(id)

    def redo_drop(self, id: str) -> None:
        super().drop(id)


class LoggedEntries(EntryTable):
    def __init__(self, changes: list[Change]) -> None:
        super().__init__()
        self._changes = changes

    def put(self, key: str, text: str) -> None:
        self._changes.append(["entry", key, text])
        super().put(key, text)

    def redo(self, key: str, text: str) -> None:
        super().put(key, text)

    def drop(self, key: str) -> None:
        if key in self.rows:
            self._changes.append(["no entry", key])
            super().drop(key)

    def redo_drop(self, key: str) -> None:
        super().drop(key)


class LoggedState(StoreState):
    may_lose_writes = False
    jobs: LoggedJobs
    targets: LoggedTargets
    fires: LoggedFires
    replicas: LoggedReplicas
    entries: LoggedEntries

    def __init__(self, archive: Archive, registry: UnreadableRows | None = None) -> None:
        super().__init__(registry)
        self.changes: list[Change] = []
        """Made since the last commit, in their order."""
        self.replicas = LoggedReplicas(self.broken, self.changes)
        self.targets = LoggedTargets(self.broken, self.replicas, self.changes)
        self.jobs = LoggedJobs(self.broken, self.targets, self.changes)
        self.fires = LoggedFires(self.broken, self.changes, archive)
        self.entries = LoggedEntries(self.changes)
        self.boot: str | None = None

    @property
    def leader(self) -> Lease:
        return self._leader

    @leader.setter
    def leader(self, lease: Lease) -> None:
        if lease != self._leader or ("lease", "leader") in self.broken.rows:
            self.changes.append(["leader", "", to_json(lease)])
            self.redo_leader(lease)

    def redo_leader(self, lease: Lease | None) -> None:
        """None: it cannot be read."""
        self._leader = lease or Lease()
        if lease is not None:
            self.broken.mended("lease", "leader")

    def mark_boot(self, boot: str | None) -> None:
        self.changes.append(["boot", "", boot])
        self.boot = boot

    def take_changes(self) -> list[Change]:
        taken = list(self.changes)
        self.changes.clear()
        return taken

    def mend_lease(self, at: Moment) -> None:
        """The next replica that asks for leadership gets it."""
        if broken := self.broken.rows.get(("lease", "leader")):
            self.leader = salvaged_lease(at, broken.salvaged)

    def to_move_out(self, keep: int) -> list[FireRecord]:
        return self.fires.to_move_out(keep, {record.tail for record in self.jobs.rows.values()})

    def dump(self, but: Collection[str] = ()) -> Iterator[Change]:
        """The whole state as changes to an empty one, but for these fires: as it is now, read when asked for."""
        jobs, fires = self.jobs, self.fires.rows
        copies = (
            list(self.targets.rows.values()),
            [(record, jobs.moments[record.id]) for record in jobs.rows.values()],
            {id: tuple(events) for id, events in jobs.events_by_job.items()},
            [fires[key] for key in sorted(fires.keys() - set(but))],
            self.replicas.every(),
            dict(self.entries.rows),
        )
        kept = [(*where, each) for where, each in self.broken.rows.items() if each.content is not None]
        broken = [as_change(kind, key, each, jobs.moments.get(key, [])) for kind, key, each in kept]
        return itertools.chain(_dumped(self.boot, self._leader, *copies), broken)


def find_recent(rows: Rows, at: Moment, query: FireQuery) -> tuple[list[FireRecord], Archive]:
    """What is at hand, and where the rest is. The archive can be searched without the lock."""
    assert isinstance(rows, LoggedState)
    keys, archive = keys_of(query), rows.fires.archive
    if keys is None:
        return rows.fires.find(query), archive
    found = filter(None, map(rows.fires.get, keys))
    return newest(found, query), Archive(archive.folder)


def _dumped(
    boot: str | None,
    leader: Lease,
    targets: list[TargetRecord],
    jobs: list[tuple[JobRecord, Change]],
    events: dict[str, tuple[JobEvent, ...]],
    fires: list[FireRecord],
    replicas: list[ReplicaRecord],
    entries: dict[str, str],
) -> Iterator[Change]:
    yield ["boot", "", boot]
    yield ["leader", "", to_json(leader)]
    for target in targets:
        yield ["target", target.name, to_json(target)]
    for record, moments in jobs:
        yield ["job", record.id, to_json(record), *moments]
    for id, some in events.items():
        yield ["events", id, to_json(some)]
    for fire in fires:
        yield ["fire", fire.key, to_json(fire)]
    for replica in replicas:
        yield ["replica", replica.id, to_json(replica)]
    for key, text in entries.items():
        yield ["entry", key, text]


def new_fields(before: Any, after: Any) -> dict[str, Json]:
    """The fields of a row that are new; all of them, if it is."""
    if before is None:
        whole: dict[str, Json] = to_json(after)
        return whole
    new = {}
    kind: Any = type(after)
    for name in hints_of(kind):
        one, other = getattr(before, name), getattr(after, name)
        # 1 and True are equal, and not the same JSON.
        if one is not other and (one != other or isinstance(other, dict | list)):
            new[name] = to_json(other)
    return new


def as_change(kind: str, key: str, broken: Broken, moments: Change) -> Change:
    if kind == "job":
        return [kind, key, broken.content, *moments]
    if kind == "event":
        return [kind, broken.row.job_id, broken.content]
    return ["leader", "", broken.content] if kind == "lease" else [kind, key, broken.content]


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
