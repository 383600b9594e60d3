"""SQLite's fast path: fires that are simply claimed, run and settled, a few narrow statements for many."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from fencepost.model import FireRecord, LastRun
from fencepost.store.backend import FastPath
from fencepost.store.codec import micros, moment, ticks
from fencepost.store.reader import RowReader
from fencepost.store.rows import Fast
from fencepost.store.sqlite.load import SqliteLoad
from fencepost.store.sqlite.queries import FIRE_COLUMNS
from fencepost.store.sqlite.statements import Statements
from fencepost.store.sqlite.values import NEXT, OUTCOME, OUTCOME_MARKS, extra_of, job_of, run_row

# One due fire that was never claimed, and no other live one but those planned ahead. The conditions repeat those of
# the partial indexes, word for word: only then are they used.
_DUE = f"""
select jobs.id, fire.key, fire.due_at, ({NEXT}), definition, rest, jobs.token, decided_through, tail
from {{jobs}} as jobs join {{fires}} as fire
    on fire.job_id = jobs.id and fire.finished_at is null and fire.due_at <= ?
where jobs.id in (select value from json_each(?)) and plain
    and fire.state = 'pending' and scheduled and fire.count = 1 and fire.token = 0
    and fire.due_at > coalesce(decided_through, -1)
    and not exists (select 1 from {{fires}} as other where other.job_id = jobs.id
        and other.finished_at is null and other.due_at <= ? and other.key <> fire.key)
    and not exists (select 1 from {{fires}} as other where other.job_id = jobs.id
        and other.state in ('running', 'waiting'))
"""

_RUNNING = f"""
select {FIRE_COLUMNS} from {{fires}} as fire join {{jobs}} as jobs on jobs.id = fire.job_id
where fire.key in (select value from json_each(?)) and fire.state = 'running' and plain
    and (look_at > ? is not false or plan_at > ? is not false)
"""
"""What is due of a calendar that is behind may be a backlog, which waits for the planner: its job is not decided."""


_RAN = f"""
insert into {{outcomes}} values ({OUTCOME_MARKS}) on conflict (job_id) do update set
    {", ".join(f"{name} = excluded.{name}" for name in OUTCOME[:-2])},
    last_success_at = coalesce(excluded.last_success_at, last_success_at),
    failures_in_a_row = iif(excluded.last_success_at is null, failures_in_a_row + excluded.failures_in_a_row, 0)
"""


class SqliteFastPath(FastPath):
    def __init__(self, sql: Statements, reader: RowReader, load: SqliteLoad) -> None:
        self._sql = sql
        self._reader = reader
        self._load = load

    def due(self, now: datetime, job_ids: Sequence[str]) -> Mapping[str, Fast]:
        due: dict[str, Fast] = {}
        at = micros(now)
        for id, key, due_at, next_at, *job in self._sql.all(_DUE, at, at, json.dumps(job_ids), at):
            record, due_time = self._reader.job(id, job_of, job), moment(due_at)
            if record is None or record.foreign is not None:
                continue
            if now - due_time <= record.job.misfire_after:
                next_due = None if next_at is None else moment(next_at)
                due[id] = Fast(record, FireRecord(key, id, due_time), next_due)
        return due

    def claim(self, claims: Sequence[Fast]) -> None:
        now = micros(_started(claims[0].fire))
        fires = [
            (fire.token, fire.replica, fire.claim_no, now, fire.key)
            for fire in (each.fire for each in claims)
        ]
        jobs = [
            (
                each.record.token,
                micros(each.fire.due_at),
                each.next_at and micros(each.next_at),
                each.record.id,
            )
            for each in claims
        ]
        columns = "state = 'running', token = ?, replica = ?, claim_no = ?, attempt = 1, started_at = ?"
        self._sql.many(f"update {{fires}} set {columns} where key = ?", fires)
        self._sql.many("update {jobs} set token = ?, decided_through = ?, look_at = ? where id = ?", jobs)

    def running(self, now: datetime, keys: Sequence[str]) -> Mapping[str, FireRecord]:
        at = micros(now)
        fires = self._load.fires_of(self._sql.all(_RUNNING, json.dumps(keys), at, at))
        return {fire.key: fire for fire in fires}

    def end(self, fires: Sequence[FireRecord]) -> None:
        ends = [
            (fire.state.value, fire.reason, fire.settled, micros(_finished(fire)), extra_of(fire), fire.key)
            for fire in fires
        ]
        columns = "state = ?, reason = ?, settled = ?, finished_at = ?, extra = ?"
        self._sql.many(f"update {{fires}} set {columns} where key = ?", ends)
        runs = [(fire.job_id, run) for fire in fires if (run := LastRun.of(fire))]
        self._sql.many(
            _RAN,
            [(id, *run_row(run), ticks(run.succeeded_at), int(run.is_failure)) for id, run in runs],
        )


def _started(fire: FireRecord) -> datetime:
    assert fire.started_at is not None
    return fire.started_at


def _finished(fire: FireRecord) -> datetime:
    assert fire.finished_at is not None
    return fire.finished_at
