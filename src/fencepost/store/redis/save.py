"""How Redis saves what a step has changed: as one batch, when the step is over.

A step saves several times, because queries over all rows must see what it has changed. Here they put that in its place
themselves (`find.py`): jobs and replicas are noted until the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from fencepost.model import FireRecord, JobEvent, ReplicaRecord, State, changed
from fencepost.store.backend import Changes, JobChange, Save
from fencepost.store.codec import micros, moment
from fencepost.store.reader import RowReader
from fencepost.store.redis import pages, scripts
from fencepost.store.redis.commands import drop_row, lives, write_decide_at, write_fire
from fencepost.store.redis.load import RedisLoad
from fencepost.store.redis.step import Step, chunks
from fencepost.store.redis.values import (
    NEVER,
    Hot,
    cold_of,
    counted,
    digest,
    group_of,
    has_row,
    hot_values,
    lease_values,
    replica_values,
    same_cold,
    targets_digest,
)
from fencepost.store.rows import ORPHANED_AFTER, TargetRecord
from fencepost.store.texts import text


class RedisSave(Save):
    def __init__(self, step: Step, reader: RowReader, load: RedisLoad) -> None:
        self._step = step
        self._reader = reader
        self._load = load
        self.jobs: dict[str, JobChange] = {}
        self.decide_soon: dict[str, datetime] = {}
        """Of jobs that cannot be read."""
        self.replicas: dict[str, ReplicaRecord | None] = {}
        self._notify = False
        self._groups: dict[str, None] = {}
        """Of the jobs that were changed."""
        self._rows_gained: Counter[str] = Counter()
        self._reached: dict[str, int] = {}
        self._new_holders: dict[str, None] = {}
        """Replicas that run something now which they did not run before."""

    def save(self, changes: Changes) -> None:
        for change in changes.jobs:
            self._add_target(change.target)
            self.jobs[change.record.id] = change
        self.decide_soon.update(changes.decide_soon)
        for event in changes.events:
            self._add_event(event)
        for target in changes.targets:
            self._save_target(target)
        self.replicas.update({change.id: change.replica for change in changes.replicas})
        self._save_fires(changes.fires)
        for key, entry in changes.entries.items():
            self._save_entry(key, entry)
        if changes.lease is not None:
            edition = counted(self._step.lease[0]) + 1
            self._step.batch.do("HSET", self._step.keys.leader, *lease_values(changes.lease, edition))
        self._notify = self._notify or changes.notify

    def finish(self) -> None:
        """Put what was noted into the batch."""
        for id, replica in self.replicas.items():
            self._write_replica(id, replica)
        for id in self._new_holders:
            if id in self._step.replicas and id not in self.replicas:
                # A step that has read what it runs, and lets it go, must not be written after this one.
                self._step.check_replica(id)
                self._step.batch.do("HINCRBY", self._step.keys.replica(id), "edition", 1)
        for id in dict.fromkeys((*self.jobs, *self.decide_soon, *self._rows_gained)):
            self._write_job(id)
        for chunk in chunks(list(self._groups)):
            self._step.batch.do("LOOK", *chunk)
        if self._notify:
            self._step.batch.do("PUBLISH", self._step.keys.hint, "")

    # --- jobs, their events and targets -----------------------------------------------------------------------

    def _add_target(self, target: TargetRecord) -> None:
        if target.name in self._load.unheard_of:
            self._load.unheard_of.discard(target.name)
            self._step.batch.do("TARGET", target.name, text(target))

    def _add_event(self, event: JobEvent) -> None:
        self._load.noted.setdefault(event.job_id, []).append(event)
        self._step.batch.do("NOTE", event.job_id, text(event))
        self._step.batch.do("ZADD", self._step.keys.noted, "GT", micros(event.at), event.job_id)

    def _save_entry(self, key: str, entry: str | None) -> None:
        keys, batch = self._step.keys, self._step.batch
        if entry is None:
            batch.do("HDEL", keys.entries, key)
            batch.do("ZREM", keys.entry_keys, key)
        else:
            batch.do("HSET", keys.entries, key, entry)
            batch.do("ZADD", keys.entry_keys, 0, key)

    def _save_target(self, target: TargetRecord) -> None:
        if target.unknown_since is not None:  # and nobody must have come to know it meanwhile
            known_by = self._load.known_by.get(target.name)
            self._step.batch.check(self._step.keys.knowers, target.name, known_by or "")
        self._load.known_targets[target.name] = target
        self._step.batch.do("HSET", self._step.keys.targets, target.name, text(target))
        since = target.unknown_since
        act_at = 0 if since is None else "+inf" if target.orphaned else micros(since + ORPHANED_AFTER)
        self._step.batch.do("ZADD", self._step.keys.unknown, "XX", act_at, target.name)

    def _write_job(self, id: str) -> None:
        loaded, change = self._load.loaded.get(id), self.jobs.get(id)
        before = loaded.hot if loaded else Hot(0)
        edition, rows = before.edition + 1, before.rows + self._rows_gained[id]
        reach = max(before.reach, self._reached.get(id, 0))
        if change is None:
            self._step.batch.do(
                "HSET", self._step.keys.hot(id), "edition", edition, "rows", rows, "reach", reach
            )
            if id in self.decide_soon and before.group:
                self._step.batch.do("HSET", self._step.keys.hot(id), "plain", NEVER)
                self._step.batch.add(
                    "ZADD", self._step.keys.decisions(before.group), micros(self.decide_soon[id]), id
                )
                self._groups[before.group] = None
            return
        job = change.record.job
        short = before.text
        if loaded is None or loaded.record is None or not same_cold(loaded.record, change.record):
            cold = cold_of(change.record)
            short = digest(cold)
            self._step.batch.add("HSET", self._step.keys.jobs, id, cold)
        hot = Hot(edition, rows, reach, group_of(job), short)
        if job.priority and hot.group != before.group:
            self._step.batch.add("SADD", self._step.keys.priorities, job.priority)
        fast_from = NEVER if change.fast_from is None else str(micros(change.fast_from))
        self._step.batch.do("HSET", self._step.keys.hot(id), *hot_values(change.record, hot, fast_from))
        write_decide_at(self._step.batch, self._step.keys, before.group, hot.group, change)
        self._groups.update(dict.fromkeys(group for group in (before.group, hot.group) if group))

    # --- fires --------------------------------------------------------------------------------------------------

    def _save_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        for key, fire in changes.items():
            before = self._load.stored.get(key)
            if before is None and fire is None:
                continue
            if key in self._load.broken_rows:
                job_id, member = self._load.broken_rows[key]
                drop_row(self._step.batch, self._step.keys, job_id, member, list(self._step.replicas))
                self._rows_gained[job_id] -= 1
            job_id, gained = write_fire(
                self._step.batch, self._step.keys, before, fire, self._load.final_rows.get(key)
            )
            self._rows_gained[job_id] += gained
            holder = _holder(fire)
            if holder is not None and holder != _holder(before):
                self._new_holders[holder] = None
            if fire is not None and lives(fire) and has_row(fire) and not self._lies_ahead(fire):
                self._reached[job_id] = max(self._reached.get(job_id, 0), micros(fire.due_at))

    def _lies_ahead(self, fire: FireRecord) -> bool:
        """One that was asked for later: there may be a million of them, which need not be read until they are due."""
        return fire.state is State.PENDING and not fire.scheduled and fire.due_at > self._step.at.wall

    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        loaded = next(iter(self._load.load([job_id], now)), None)
        if loaded is None:
            return ()
        members, texts, by_hand = self._step.script(scripts.AHEAD, job_id, micros(now))
        ahead = self._load.read_live(job_id, members, texts)
        known = {fire.key for fire in loaded.fires}
        loaded.fires += [fire for fire in ahead if fire.key not in known]
        self._load.withdrawn[job_id] = now, moment(int(by_hand)) if by_hand else None
        return [fire.key for fire in ahead if fire.scheduled and fire.state is State.PENDING]

    def prune_before(self, before: datetime) -> int:
        return pages.prune(self._step.call, self._step.keys, before, self._reader.registry)

    # --- replicas -----------------------------------------------------------------------------------------------

    def _write_replica(self, id: str, replica: ReplicaRecord | None) -> None:
        read, key, batch = self._step.replicas.get(id), self._step.keys.replica(id), self._step.batch
        before = self._load.replica(id) if read else None
        steps_before = before.steps if before else 0
        if before is not None and replica is not None and changed(before, steps=replica.steps) == replica:
            # Its steps are counted at the same time by what else the replica does: that is no conflict.
            batch.do("HINCRBY", key, "steps", replica.steps - steps_before)
            return
        self._step.check_replica(id)
        known = set(before.targets if before else self._load.targets_stored(id) if read else ())
        knows = set(replica.targets if replica else ())
        for chunk in chunks(sorted(known - knows)):
            batch.do("FORGET", id, *chunk)
        for chunk in chunks(sorted(knows - known)):
            batch.do("KNOW", id, *chunk)
        if before is None:
            batch.do("DEL", key)  # a row that cannot be read goes as a whole
        if replica is None:
            batch.do("SREM", self._step.keys.replicas, id)
            batch.do("DEL", key)
            return
        short = targets_digest(replica.targets)
        self._load.targets_by_digest[short] = replica.targets
        edition = counted(read["edition"]) + 1 if read else 1
        batch.do("SADD", self._step.keys.replicas, id)
        batch.do("HSET", key, *replica_values(replica, edition, short))
        batch.do("HINCRBY", key, "steps", replica.steps - steps_before)


def _holder(fire: FireRecord | None) -> str | None:
    return fire.replica if fire is not None and fire.state is State.RUNNING else None
