"""The model's rows, with every change put on record.

What is logged is not the operation but what it did to the rows. A replica of another version, whose rules
differ in some detail, then still arrives at the very same rows: an upgrade cannot change what was decided.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar, get_type_hints

from fencepost.clock import Moment
from fencepost.errors import ConfigurationError
from fencepost.model import (
    Era,
    FireRecord,
    JobEvent,
    JobRecord,
    Json,
    Lease,
    ReplicaRecord,
    State,
    changed,
    job_of,
)
from fencepost.store.base import FireQuery
from fencepost.store.codec import from_json, micros, moment, ticks, to_json, when
from fencepost.store.file.archive import Archive
from fencepost.store.rows import TargetRecord
from fencepost.store.state import Broken, StoreState, keys_of, newest
from fencepost.store.unreadable import (
    DAMAGE,
    Kind,
    Registry,
    Unreadable,
    checked_fire,
    checked_job,
    reason_of,
    salvaged,
    salvaged_lease,
)

Change = list[Json]
"""What kind of row, which one, and its fields that are new."""

Row = TypeVar("Row")


class LoggedState(StoreState):
    may_lose_writes = False

    def __init__(self, archive: Archive, registry: Registry | None = None) -> None:
        super().__init__()
        self.archive = archive
        self.registry = self.registry if registry is None else registry
        self.boot: str | None = None
        self.changes: list[Change] = []
        """Made since the last commit, in their order."""
        self._leader = Lease()
        self._moments: dict[str, Change] = {}
        """By job: when to look at it, when to plan it."""

    # --- changes, as the operations make them ---------------------------------------------------------

    def put_job_row(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None:
        new = _new_fields(self.jobs_by_id.get(record.id), record)
        moments: Change = [ticks(look_at), ticks(plan_at)]
        if new or self._moments.get(record.id) != moments:
            self._log("job", record.id, new, *moments)
            self._put_job_at(record, look_at, plan_at)

    def look_soon(self, job_id: str, when: datetime) -> None:
        _, plan_at = self._moments.get(job_id, (None, None))
        self._moments[job_id] = [ticks(when), plan_at]
        self._log(*_as_change("job", job_id, self.broken["job", job_id], self._moments[job_id]))
        super().look_soon(job_id, when)

    def note(self, event: JobEvent) -> None:
        self._log("event", event.job_id, to_json(event))
        super().note(event)

    def put_target(self, target: TargetRecord) -> None:
        self._log("target", target.name, to_json(target))
        super().put_target(target)

    def put_fire(self, fire: FireRecord) -> None:
        if new := _new_fields(self.fires.get(fire.key), fire):
            self._log("fire", fire.key, new)
            super().put_fire(fire)

    def drop_fire(self, fire: FireRecord) -> None:
        self._log("no fire", fire.key)
        super().drop_fire(fire)

    def put_replica(self, replica: ReplicaRecord) -> None:
        if new := _new_fields(self.replicas.get(replica.id), replica):
            self._log("replica", replica.id, new)
            super().put_replica(replica)

    def drop_replica(self, id: str) -> None:
        if id in self.replicas or ("replica", id) in self.broken:
            self._log("no replica", id)
            super().drop_replica(id)

    @property
    def leader(self) -> Lease:
        return self._leader

    @leader.setter
    def leader(self, lease: Lease) -> None:
        if lease != self._leader or ("lease", "leader") in self.broken:
            self._log("leader", "", to_json(lease))
            self._leader = lease
            self._mended("lease", "leader")

    def prune_before(self, before: datetime) -> int:
        archived = self.archive.count_before(before)
        events = dict(self.events)
        logged, self.changes = self.changes, []
        gone = super().prune_before(before)
        self.changes = logged
        self._log("prune", "", micros(before))
        self.archive = self.archive.pruned(before)
        for job_id, kept in self.events.items():
            if len(kept) != len(events[job_id]):
                self._log("events", job_id, to_json(kept))
        return gone + archived

    def mark_boot(self, boot: str | None) -> None:
        self._log("boot", "", boot)
        self.boot = boot

    def _log(self, *change: Json) -> None:
        self.changes.append(list(change))

    # --- fires that have been moved out -----------------------------------------------------------------

    def fire(self, key: str) -> FireRecord | None:
        return super().fire(key) or self.archive.find(key)

    def broken_fire(self, key: str) -> bool:
        return super().broken_fire(key) or self.archive.is_broken(key)

    def find_recent(self, at: Moment, query: FireQuery) -> tuple[list[FireRecord], Archive]:
        """What is at hand, and where the rest is. The archive can be searched without the lock."""
        keys = keys_of(query)
        if keys is None:
            return self.select_fires(query), self.archive
        found = filter(None, map(self.fire, keys))
        return newest(found, query), Archive(self.archive.folder)

    def to_move_out(self, keep: int) -> list[FireRecord]:
        """Final fires but the latest, and but those that may still grow."""
        tails = {record.tail for record in self.jobs_by_id.values()}
        final = [fire for fire in self.fires.values() if fire.finished_at is not None]
        final.sort(key=lambda fire: (fire.finished_at, fire.key))
        old = final[: max(0, len(final) - keep)]
        # One that was finished before what has been pruned already waits here for the next pruning.
        return [fire for fire in old if fire.key not in tails and not self.archive.hides(fire)]

    def moved_out(self, keys: Collection[str], archive: Archive) -> None:
        self.archive = archive
        for key in keys:
            if fire := self.fires.get(key):
                super().drop_fire(fire)
        if keys:
            self._final = [entry for entry in self._final if entry[1] in self.fires]
            heapq.heapify(self._final)

    # --- changes, as the log tells them -----------------------------------------------------------------

    def redo(self, change: Change) -> None:
        kind, id, *rest = change
        steps: dict[str, Callable[..., None]] = {
            "job": self._redo_job,
            "event": self._redo_event,
            "events": self._redo_events,
            "target": self._redo_target,
            "fire": self._redo_fire,
            "no fire": self._redo_no_fire,
            "replica": self._redo_replica,
            "no replica": super().drop_replica,
            "leader": self._redo_leader,
            "prune": self._redo_prune,
            "boot": lambda id, boot: setattr(self, "boot", boot),
        }
        if kind not in steps:
            raise ConfigurationError(
                f"it holds a {kind!r}, which this version does not know: upgrade Fencepost"
            )
        steps[kind](id, *rest)

    def _redo_job(self, id: str, new: Json, look_at: int | None, plan_at: int | None) -> None:
        self._moments[id] = [look_at, plan_at]
        before = self.jobs_by_id.get(id)
        record = self._read("job", id, JobRecord, before, new, lambda row: checked_job(row, id), id)
        if record is not None:
            self._put_job_at(record, when(look_at), when(plan_at))

    def _put_job_at(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None:
        self._moments[record.id] = [ticks(look_at), ticks(plan_at)]
        super().put_job_row(record, look_at, plan_at)

    def _redo_event(self, id: str, event: Json) -> None:
        key = f"{id} {len(self.events.get(id, ()))}"
        found = self._read("event", key, JobEvent, None, event, job_id=id)
        if found is not None:
            super().note(found)

    def _redo_events(self, id: str, events: Json) -> None:
        self.events[id] = []
        for event in events:
            self._redo_event(id, event)

    def _redo_target(self, name: str, target: Json) -> None:
        found = self._read("target", name, TargetRecord, None, target)
        if found is not None:
            super().put_target(found)

    def _redo_fire(self, key: str, new: Json) -> None:
        before = self.fires.get(key)
        fire = self._read("fire", key, FireRecord, before, new, checked_fire, job_of(key))
        if fire is not None:
            super().put_fire(fire)

    def _redo_no_fire(self, key: str) -> None:
        if fire := self.fires.get(key):
            super().drop_fire(fire)
        self._mended("fire", key)

    def _redo_replica(self, id: str, new: Json) -> None:
        before = self.replicas.get(id)
        replica = self._read("replica", id, ReplicaRecord, before, new)
        if replica is not None:
            super().put_replica(replica)

    def _redo_leader(self, id: str, lease: Json) -> None:
        found = self._read("lease", "leader", Lease, None, lease)
        self._leader = found or Lease()
        if found is not None:
            self._mended("lease", "leader")

    def _read(
        self,
        kind: Kind,
        key: str,
        row: Any,
        before: Any,
        new: Json,
        check: Callable[[Any], Any] = lambda row: row,
        job_id: str | None = None,
    ) -> Any:
        """The row as the log has changed it. None: it cannot be read, and is kept as it is. Such a row is changed
        as JSON, until it is written as a whole, or what is wrong with it."""
        broken = self.broken.get((kind, key))
        kept = None if broken is None or broken.row.foreign else broken.content
        try:
            return check(_patched(row, before, new) if kept is None else _made_whole(row, kept, new))
        except ConfigurationError:
            raise
        except DAMAGE as error:
            why = reason_of(error)
        content = _joined(to_json(before) if before is not None else kept, new)
        holds = kind == "job" or (kind == "fire" and _is_live(content))
        self.set_aside(Unreadable(kind, key, why, job_id, holds), content, _salvaged(row, content))
        return None

    def mend_lease(self, at: Moment) -> None:
        """Whoever asks for leadership next gets it."""
        if broken := self.broken.get(("lease", "leader")):
            self.leader = salvaged_lease(at, broken.salvaged)

    def _redo_prune(self, id: str, before: int) -> None:
        limit = moment(before)
        for fire in list(self.fires.values()):
            if fire.finished_at is not None and fire.finished_at < limit:
                super().drop_fire(fire)
        self.archive = self.archive.pruned(limit)

    def dump(self, but: Collection[str] = ()) -> Iterator[Change]:
        """The whole state as changes to an empty one, but for these fires: as it is now, read when asked for."""
        copies = (
            list(self.targets.values()),
            [(record, self._moments[record.id]) for record in self.jobs_by_id.values()],
            {id: tuple(events) for id, events in self.events.items()},
            [self.fires[key] for key in sorted(self.fires.keys() - set(but))],
            self.every_replica(),
        )
        kept = [(kind, key, each) for (kind, key), each in self.broken.items() if each.content is not None]
        broken = [_as_change(kind, key, each, self._moments.get(key, [])) for kind, key, each in kept]
        return itertools.chain(_dumped(self.boot, self._leader, *copies), broken)


def _dumped(
    boot: str | None,
    leader: Lease,
    targets: list[TargetRecord],
    jobs: list[tuple[JobRecord, Change]],
    events: dict[str, tuple[JobEvent, ...]],
    fires: list[FireRecord],
    replicas: list[ReplicaRecord],
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


# --- rows and their fields --------------------------------------------------------------------------------


def _new_fields(before: Any, after: Any) -> dict[str, Json]:
    """The fields of a row that are new; all of them, if it is."""
    if before is None:
        whole: dict[str, Json] = to_json(after)
        return whole
    new = {}
    kind: Any = type(after)
    for name in _hints(kind):
        one, other = getattr(before, name), getattr(after, name)
        # 1 and True are equal, and not the same JSON.
        if one is not other and (one != other or isinstance(other, dict | list)):
            new[name] = to_json(other)
    return new


def _patched(kind: Any, before: Row | None, new: dict[str, Json]) -> Row:
    if before is None:
        row: Row = from_json(kind, new)
        return row
    hints = _hints(kind)
    if unknown := new.keys() - hints.keys():
        raise ConfigurationError(
            f"it holds {sorted(unknown)}, which this version does not know: upgrade Fencepost"
        )
    return changed(before, **{name: from_json(hints[name], value) for name, value in new.items()})


def _made_whole(kind: Any, kept: Json, new: Json) -> Any:
    try:
        return from_json(kind, new)
    except DAMAGE:
        return from_json(kind, _joined(kept, new))


def _joined(before: Json, new: Json) -> Json:
    return {**before, **new} if isinstance(before, dict) and isinstance(new, dict) else new


def _is_live(fire: Json) -> bool:
    if not isinstance(fire, dict) or fire.get("finished_at") is None:
        return True
    return fire.get("state") not in {state.value for state in State if state.final}


def _salvaged(kind: Any, content: Json) -> dict[str, Any]:
    if not isinstance(content, dict):
        return {}
    if kind is JobRecord:
        content = {"token": 0, "decided_through": None, **content}
    elif kind is Lease and isinstance(content.get("era", {}), dict):
        content = {**to_json(Era()), "lost_through": None, "term": 0, **content.get("era", {}), **content}
    hints = {**_hints(Era), **_hints(kind)} if kind is Lease else _hints(kind)
    return salvaged(
        {name: partial(from_json, hints[name], content[name]) for name in hints if name in content}
    )


def _as_change(kind: str, key: str, broken: Broken, moments: Change) -> Change:
    if kind == "job":
        return [kind, key, broken.content, *moments]
    if kind == "event":
        return [kind, broken.row.job_id, broken.content]
    return ["leader", "", broken.content] if kind == "lease" else [kind, key, broken.content]


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
