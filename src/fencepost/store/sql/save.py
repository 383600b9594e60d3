"""How what a step has changed is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from fencepost.model import FireRecord, JobEvent, changed
from fencepost.store.backend import Changes, JobChange, ReplicaChange, Save
from fencepost.store.codec import micros
from fencepost.store.reader import RowReader
from fencepost.store.rows import TargetRecord
from fencepost.store.rules.fast_path import ALWAYS
from fencepost.store.rules.history import needed_events
from fencepost.store.sql.rows import FIRE_FIELDS, OUTCOME, fire_row, hot_row, outcome_row
from fencepost.store.sql.statements import Statements
from fencepost.store.texts import same_but_hot, same_outcome, text, texts_of

HOT = ("token", "decided_through", "tail", "look_at", "plan_at", "plain")


class SqlSave(Save):
    def __init__(self, sql: Statements, reader: RowReader) -> None:
        self._sql = sql
        self._reader = reader

    def save(self, changes: Changes) -> None:
        if changes.jobs:
            self._save_jobs(changes.jobs)
        soon = [(micros(when), id) for id, when in changes.decide_soon.items()]
        self._sql.many("update {jobs} set look_at = ?, plain = 0 where id = ?", soon)
        events = [(event.job_id, micros(event.at), text(event)) for event in changes.events]
        self._sql.many("insert into {events} (job_id, at, event) values (?, ?, ?)", events)
        targets = [(target.name, text(target)) for target in changes.targets]
        self._sql.put("targets", ("name", "target"), targets)
        for change in changes.replicas:
            self._save_replica(change)
        if changes.fires:
            self.save_fires(changes.fires)
        if changes.entries:
            self._save_entries(changes.entries)
        if changes.lease is not None:
            self._sql.put("meta", ("name", "value"), [("leader", text(changes.lease))])

    def _save_jobs(self, changes: Sequence[JobChange]) -> None:
        hot, whole, outcomes, targets = [], [], [], dict[str, str]()
        for change in changes:
            record, before = change.record, change.before
            if not same_outcome(before, record):
                outcomes.append(outcome_row(record))
            job, values = record.job, (*hot_row(change), _is_fast(change))
            if before is not None and same_but_hot(before, record):
                hot.append((record.id, *values))
                continue
            if before is None or before.job.lane != job.lane:
                targets[job.lane] = text(TargetRecord(job.lane))
            whole.append(
                (
                    record.id,
                    job.lane,
                    "leader" if job.leader_only else "any",
                    *texts_of(record),
                    *values,
                    job.priority,
                )
            )
        self._sql.add_missing("targets", ("name", "target"), list(targets.items()))
        self._sql.change("jobs", ("id", *HOT), hot)
        self._sql.put("jobs", ("id", "target", "execute_on", "definition", "rest", *HOT, "priority"), whole)
        self._sql.put("outcomes", ("job_id", *OUTCOME), outcomes)

    def save_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        dropped = [key for key, fire in changes.items() if fire is None]
        altered = [fire_row(fire) for fire in changes.values() if fire is not None]
        self._drop("fires", dropped)
        self._sql.put("fires", (*FIRE_FIELDS, "extra"), altered)

    def _save_entries(self, changes: Mapping[str, str | None]) -> None:
        dropped = [key for key, entry in changes.items() if entry is None]
        put = [(key, entry) for key, entry in changes.items() if entry is not None]
        self._drop("entries", dropped)
        self._sql.put("entries", ("key", "entry"), put)

    def _drop(self, table: str, keys: Sequence[str]) -> None:
        if keys:
            self._sql.later(f"delete from {{{table}}} where `key` {self._sql.AMONG}", self._sql.listed(keys))

    def _save_replica(self, change: ReplicaChange) -> None:
        id, replica = change.id, change.replica
        targets = replica.targets if replica else ()
        if replica is None or targets != (change.before.targets if change.before else ()):
            self._sql.later("delete from {replica_targets} where replica = ?", id)
            self._sql.many("insert into {replica_targets} values (?, ?)", [(id, each) for each in targets])
        if replica is None:
            self._sql.later("delete from {replicas} where id = ?", id)
        else:
            row = text(changed(replica, targets=()))
            self._sql.put("replicas", ("id", "replica"), [(id, row)])

    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        planned = "state = 'pending' and scheduled and due_at > ? and finished_at is null"
        self._sql.later(f"delete from {{fires}} where job_id = ? and {planned}", job_id, micros(now))
        return ()

    def prune_before(self, before: datetime) -> int:
        gone = self._sql.do("delete from {fires} where finished_at < ?", micros(before))
        old = "select job_id from {events} where at < ? group by job_id having count(*) > 1"
        for (job_id,) in self._sql.all(old, micros(before)):
            events = self._numbered_events(job_id)
            needed = {id(event) for event in needed_events(list(events.values()), before)}
            gone_events = [(number,) for number, event in events.items() if id(event) not in needed]
            self._sql.many("delete from {events} where number = ?", gone_events)
        return gone

    def _numbered_events(self, job_id: str) -> dict[int, JobEvent]:
        rows = self._sql.all("select number, event from {events} where job_id = ? order by number", job_id)
        return {row[0]: event for row in rows if (event := self._reader.event(job_id, *row)) is not None}


def _is_fast(change: JobChange) -> bool:
    """Whether the fast path covers every fire after the last one decided."""
    decided = change.record.decided_through or ALWAYS
    return change.fast_from is not None and change.fast_from <= decided
