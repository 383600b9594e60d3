"""How Redis loads rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.errors import StoreCorrupt
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State, checked_id
from fencepost.store.backend import Live, Load
from fencepost.store.codec import micros, moment
from fencepost.store.reader import BrokenFire, RowReader
from fencepost.store.redis import scripts
from fencepost.store.redis.batch import WriteConflict
from fencepost.store.redis.keys import due_of, join, split, split_place
from fencepost.store.redis.step import Step, chunks
from fencepost.store.redis.values import (
    Hot,
    cold_record,
    fire_of,
    holder_of,
    job_of,
    lease_fields,
    lease_of,
    planned_fire,
    replica_fields,
    replica_of,
    stamp,
    targets_digest,
    when,
)
from fencepost.store.rows import TargetRecord
from fencepost.store.texts import target_record

SETS_KEPT = 100
"""Of targets."""


@dataclass(slots=True)
class Loaded:
    """A job as it was read, with what lives of it."""

    id: str
    hot: Hot
    record: JobRecord | None
    """None: it cannot be read."""
    fires: list[FireRecord]
    upto: datetime
    """Its fires are here as far as this."""
    following: datetime | None
    """When the next one is due."""


class RedisLoad(Load):
    def __init__(self, step: Step, reader: RowReader, targets: dict[str, tuple[str, ...]]) -> None:
        """`targets`: what replicas know, by digest, kept from step to step."""
        self._step = step
        self._reader = reader
        self.targets_by_digest = targets
        self.loaded: dict[str, Loaded | None] = {}
        self.withdrawn: dict[str, tuple[datetime, datetime | None]] = {}
        """By job: planned fires due later than this were dropped; and when the first fire by hand is due after it."""
        self.stored: dict[str, FireRecord] = {}
        """Fires as they were read."""
        self.broken_rows: dict[str, tuple[str, str]] = {}
        """Of live fires that have a row which cannot be read: the job and the moment."""
        self.final_rows: dict[str, str] = {}
        """The texts of final ones: they are found by them."""
        self.known_targets: dict[str, TargetRecord] = {}
        self.known_by: dict[str, str | None] = {}
        """How many replicas know a target, as it was read."""
        self.unheard_of: set[str] = set()
        """Targets without a row: no job refers to them yet."""
        self.noted: dict[str, list[JobEvent]] = {}
        """Events that this step will write."""
        self._replicas: list[ReplicaRecord] | None = None

    # --- jobs, and what lives of them -------------------------------------------------------------------

    def jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        return [loaded.record for loaded in self.load(ids) if loaded.record is not None]

    def salvage(self, job_id: str) -> Mapping[str, Callable[[], Any]]:
        token, decided, group = self._step.call(
            "HMGET", self._step.keys.hot(job_id), "token", "decided", "group"
        )
        return {
            "target": lambda: checked_id(group.partition(":")[2], "target"),
            "token": lambda: int(token),
            "decided_through": lambda: when(decided),
        }

    def live(self, job_ids: Sequence[str], now: datetime) -> Live:
        loaded = self.load(job_ids, now)
        following = {each.id: self.following(each) for each in loaded}
        return Live(
            [fire for each in loaded for fire in each.fires],
            {id: due_at for id, due_at in following.items() if due_at is not None},
        )

    def following(self, loaded: Loaded) -> datetime | None:
        """When the first fire is due that was not read."""
        since, by_hand = self.withdrawn.get(loaded.id, (None, None))
        if since is not None and loaded.following is not None and loaded.following > since:
            return by_hand
        return loaded.following

    def load(self, ids: Iterable[str], upto: datetime | None = None) -> list[Loaded]:
        wanted = list(dict.fromkeys(ids))
        until = max(upto or self._step.at.wall, self._step.at.wall)
        missing = [id for id in wanted if not self._is_loaded(id, until)]
        for chunk in chunks(missing):
            for id, values in self._rows_of(chunk, until):
                self.loaded[id] = self._take(id, until, *values) if values else None
                if not values:
                    self._step.batch.check(self._step.keys.hot(id), "edition", "")
        return [loaded for id in wanted if (loaded := self.loaded[id]) is not None]

    def _rows_of(self, ids: Sequence[str], until: datetime) -> Iterable[tuple[str, Any]]:
        here = {id: self._step.jobs.pop(id) for id in ids if id in self._step.jobs}
        if until != self._step.at.wall:
            here = {}
        if missing := [id for id in ids if id not in here]:
            here.update(zip(missing, self._step.script(scripts.JOBS, micros(until), *missing), strict=True))
        return [(id, here[id]) for id in ids]

    def _is_loaded(self, id: str, until: datetime) -> bool:
        if id not in self.loaded:
            return False
        loaded = self.loaded[id]
        return loaded is None or loaded.upto >= until

    def _take(
        self,
        id: str,
        until: datetime,
        values: Sequence[Any],
        cold: str,
        live: Sequence[str],
        rows: Sequence[str | None],
        following: str | None,
        target: str | None,
    ) -> Loaded:
        record = self._reader.job(id, lambda: job_of(values, cold_record(cold)))
        hot = Hot.of(values)
        self._step.batch.check(self._step.keys.hot(id), "edition", values[0])
        if record is not None:
            self._learn_target(record.job.lane, target)
        fires = self.read_live(id, live, rows)
        next_due = moment(int(following)) if following else None
        return Loaded(id, hot, record, fires, max(until, moment(hot.reach)), next_due)

    def read_live(self, id: str, live: Sequence[str], rows: Sequence[str | None]) -> list[FireRecord]:
        found = []
        for n in range(0, len(live), 2):
            due = int(live[n + 1])
            running, waiting = rows[n : n + 2] if rows else (None, None)
            row, state = (waiting, State.PENDING) if running is None else (running, State.RUNNING)
            if row is None:
                fire: FireRecord | None = planned_fire(id, live[n], due)
            else:
                fire = self._read_live_fire(id, live[n], due, row, state)
            if fire is not None:
                found.append(self.stored.setdefault(fire.key, fire))
        return found

    def _read_live_fire(self, id: str, member: str, due: int, row: str, state: State) -> FireRecord | None:
        key = join(id, member)
        broken = BrokenFire(id, True, holder_of(row) if state is State.RUNNING else None)
        fire = self._reader.fire(key, broken, fire_of, id, due, row, state)
        if fire is None:
            self.broken_rows[key] = id, member
        return fire

    def events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[JobEvent]]:
        return {id: [*self._events_of(id), *self.noted.get(id, ())] for id in job_ids}

    def _events_of(self, job_id: str) -> list[JobEvent]:
        rows = self._step.call("LRANGE", self._step.keys.events(job_id), 0, -1)
        found = [self._reader.event(job_id, number, row) for number, row in enumerate(rows)]
        return [event for event in found if event is not None]

    def targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        for chunk in chunks([name for name in names if name not in self.known_targets]):
            rows = self._step.call("HMGET", self._step.keys.targets, *chunk)
            for name, row in zip(chunk, rows, strict=True):
                self._learn_target(name, row)
        return [self.known_targets[name] for name in names]

    def _learn_target(self, name: str, row: str | None) -> None:
        if name not in self.known_targets:
            self._step.batch.check(self._step.keys.targets, name, row or "")
            self.known_targets[name] = (
                self._reader.target(name, target_record, row) if row else TargetRecord(name)
            )
            if row is None:
                self.unheard_of.add(name)

    def entries(self, keys: Sequence[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for chunk in chunks(keys):
            texts = self._step.call("HMGET", self._step.keys.entries, *chunk)
            for key, text in zip(chunk, texts, strict=True):
                self._step.batch.check(self._step.keys.entries, key, text or "")
                if text is not None:
                    found[key] = text
        return found

    # --- fires --------------------------------------------------------------------------------------------

    def fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        places = {key: split(key) for key in keys}
        self.load(job_id for job_id, _ in places.values())
        elsewhere = [
            key for key, (job_id, _) in places.items() if key not in self.stored and self.loaded[job_id]
        ]
        for chunk in chunks(elsewhere):
            words: list[Any] = []
            for key in chunk:
                job_id, member = places[key]
                words += job_id, member, stamp(due_of(member))
            for key, found in zip(chunk, self._step.script(scripts.DONE, *words), strict=True):
                if found:
                    self._take_elsewhere(key, *places[key], *found)
        return [self.stored[key] for key in places if key in self.stored]

    def _take_elsewhere(
        self,
        key: str,
        job_id: str,
        member: str,
        due: str,
        rows: Sequence[str],
        planned: str | None,
        by_hand: str | None,
    ) -> None:
        if planned is not None and by_hand is not None:
            fire = self._read_live_fire(job_id, member, int(due), by_hand, State.PENDING)
            if fire is not None:
                self.stored[key] = fire
            return
        if planned is not None:
            self.stored[key] = planned_fire(job_id, member, int(due))
        for row in rows:
            # One that cannot be read, and ended at the moment of the fire asked for, may be that.
            fire = self._reader.fire(key, BrokenFire(job_id, False, None), fire_of, job_id, int(due), row)
            if fire is not None and fire.key == key:
                self.stored[key], self.final_rows[key] = fire, row
        if key in self.stored:
            self._reader.fires.pop(key, None)

    def running(self, replica: str) -> Iterable[FireRecord]:
        self._step.check_replica(replica)  # it changes with every claim
        found = []
        for place, row, due, edition in self._step.script(scripts.HELD, replica):
            job_id, member = split_place(place)
            self._step.batch.check(self._step.keys.hot(job_id), "edition", edition or "")
            fire = self._read_live_fire(job_id, member, int(due or 0), row or "", State.RUNNING)
            if fire is not None:
                found.append(self.stored.setdefault(fire.key, fire))
        return found

    # --- replicas and the lease -----------------------------------------------------------------------------

    def replicas(self) -> Iterable[ReplicaRecord]:
        if self._replicas is None:
            found = [self.replica(id) for id in self._step.replicas]
            self._replicas = [replica for replica in found if replica is not None]
        return self._replicas

    def replica(self, id: str) -> ReplicaRecord | None:
        values = self._step.replicas[id]

        def fields() -> Mapping[str, Callable[[], Any]]:
            return {**replica_fields(values), "targets": lambda: self.targets_stored(id)}

        return self._reader.replica(
            id, fields, lambda: replica_of(list(values.values()), self.targets_of(id))
        )

    def targets_stored(self, id: str) -> tuple[str, ...]:
        return tuple(sorted(self._step.call("SMEMBERS", self._step.keys.knows(id))))

    def targets_of(self, id: str) -> tuple[str, ...]:
        """What it knows. There may be thousands, and they rarely change."""
        wanted = self._step.replicas[id]["targets"]
        if not wanted:
            return ()
        known = self.targets_by_digest
        if wanted not in known:
            targets = self.targets_stored(id)
            if targets_digest(targets) != wanted:
                if self._step.call("HGET", self._step.keys.replica(id), "targets") == wanted:
                    raise StoreCorrupt("it does not know what it says it knows")
                raise WriteConflict  # they were changed just now
            if len(known) >= SETS_KEPT:
                known.clear()
            known[wanted] = targets
        return known[wanted]

    def lease(self) -> Lease:
        self._step.batch.check(self._step.keys.leader, "edition", self._step.lease[0] or "")
        return self._reader.lease(lambda: lease_fields(self._step.lease), lease_of, self._step.lease)
