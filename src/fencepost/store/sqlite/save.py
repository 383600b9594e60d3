"""How SQLite saves what a step has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from fencepost.model import FireRecord, JobEvent, changed
from fencepost.store.backend import Changes, JobChange, ReplicaChange, Save
from fencepost.store.codec import micros
from fencepost.store.reader import RowReader
from fencepost.store.rows import TargetRecord
from fencepost.store.rules.fast_path import is_covered
from fencepost.store.rules.history import needed_events
from fencepost.store.sqlite.queries import FIRE_FIELDS
from fencepost.store.sqlite.schema import set_meta
from fencepost.store.sqlite.statements import Statements
from fencepost.store.sqlite.values import OUTCOME_MARKS, fire_row, hot_row, outcome_row
from fencepost.store.texts import same_but_hot, same_outcome, text, texts_of


class SqliteSave(Save):
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
        self._sql.many("insert or replace into {targets} values (?, ?)", targets)
        for change in changes.replicas:
            self._save_replica(change)
        if changes.fires:
            self.save_fires(changes.fires)
        if changes.lease is not None:
            set_meta(self._sql.db, self._sql.names, "leader", text(changes.lease))

    def _save_jobs(self, changes: Sequence[JobChange]) -> None:
        hot, whole, outcomes, targets = [], [], [], dict[str, str]()
        for change in changes:
            record, before = change.record, change.before
            if not same_outcome(before, record):
                outcomes.append(outcome_row(record))
            job, values = record.job, (*hot_row(change), _is_covered(change))
            if before is not None and same_but_hot(before, record):
                hot.append((*values, record.id))
                continue
            if before is None or before.job.target != job.target:
                targets[job.target] = text(TargetRecord(job.target))
            whole.append((record.id, job.target, job.execute_on, *texts_of(record), *values))
        self._sql.many("insert or ignore into {targets} values (?, ?)", list(targets.items()))
        columns = "token = ?, decided_through = ?, tail = ?, look_at = ?, plan_at = ?, plain = ?"
        self._sql.many(f"update {{jobs}} set {columns} where id = ?", hot)
        self._sql.many("insert or replace into {jobs} values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", whole)
        self._sql.many(f"insert or replace into {{outcomes}} values ({OUTCOME_MARKS})", outcomes)

    def save_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        dropped = [(key,) for key, fire in changes.items() if fire is None]
        altered = [fire_row(fire) for fire in changes.values() if fire is not None]
        self._sql.many("delete from {fires} where key = ?", dropped)
        self._sql.many(f"insert or replace into {{fires}} values ({_FIRE_MARKS})", altered)

    def _save_replica(self, change: ReplicaChange) -> None:
        id, replica = change.id, change.replica
        targets = replica.targets if replica else ()
        if replica is None or targets != (change.before.targets if change.before else ()):
            self._sql.do("delete from {replica_targets} where replica = ?", id)
            self._sql.many("insert into {replica_targets} values (?, ?)", [(id, each) for each in targets])
        if replica is None:
            self._sql.do("delete from {replicas} where id = ?", id)
        else:
            row = text(changed(replica, targets=()))
            self._sql.do("insert or replace into {replicas} values (?, ?)", id, row)

    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        planned = "state = 'pending' and scheduled and due_at > ? and finished_at is null"
        self._sql.do(f"delete from {{fires}} where job_id = ? and {planned}", job_id, micros(now))
        return ()

    def prune_before(self, before: datetime) -> int:
        gone = self._sql.do("delete from {fires} where finished_at < ?", micros(before)).rowcount
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


_FIRE_MARKS = ", ".join("?" * (len(FIRE_FIELDS) + 1))


def _is_covered(change: JobChange) -> bool:
    moments = [*change.open_at, *change.waiting_until]
    return is_covered(change.record, change.target.gaps, change.decide_at, moments)
