"""SQLite's fast path."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fencepost.model import FireRecord
from fencepost.store.codec import micros
from fencepost.store.rows import Fast
from fencepost.store.sql.fast import SqlFastPath
from fencepost.store.sql.rows import FIRES, OUTCOME, extra_of
from fencepost.store.sqlite.values import NEXT, OUTCOME_MARKS


class SqliteFastPath(SqlFastPath):
    # The conditions repeat those of the partial indexes, word for word: only then are they used.
    DUE = f"""
        select jobs.id, fire.key, fire.due_at, ({NEXT}), definition, rest, jobs.token, decided_through, tail
        from {{jobs}} as jobs join {{fires}} as fire
            on fire.job_id = jobs.id and fire.finished_at is null and fire.due_at <= ?
        where jobs.id AMONG and plain
            and fire.state = 'pending' and scheduled and fire.count = 1 and fire.token = 0
            and fire.due_at > coalesce(decided_through, -1)
            and not exists (select 1 from {{fires}} as other where other.job_id = jobs.id
                and other.finished_at is null and other.due_at <= ? and other.key <> fire.key)
            and not exists (select 1 from {{fires}} as other where other.job_id = jobs.id
                and other.state in ('running', 'waiting'))
    """
    # What is due of a calendar that is behind may be a backlog, which waits for the planner: its job is not decided.
    RUNNING = f"""
        {FIRES} join {{jobs}} as jobs on jobs.id = fire.job_id
        where fire.key AMONG and fire.state = 'running' and plain
            and (look_at > ? is not false or plan_at > ? is not false)
    """
    RAN = f"""
        insert into {{outcomes}} values ({OUTCOME_MARKS}) on conflict (job_id) do update set
            {", ".join(f"{name} = excluded.{name}" for name in OUTCOME[:-2])},
            last_success_at = coalesce(excluded.last_success_at, last_success_at),
            failures_in_a_row = iif(excluded.last_success_at is null, failures_in_a_row + excluded.failures_in_a_row, 0)
    """

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

    def end(self, fires: Sequence[FireRecord]) -> None:
        ends = [
            (fire.state.value, fire.reason, fire.settled, micros(_finished(fire)), extra_of(fire), fire.key)
            for fire in fires
        ]
        columns = "state = ?, reason = ?, settled = ?, finished_at = ?, extra = ?"
        self._sql.many(f"update {{fires}} set {columns} where key = ?", ends)
        self._note_ends(fires)


def _started(fire: FireRecord) -> datetime:
    assert fire.started_at is not None
    return fire.started_at


def _finished(fire: FireRecord) -> datetime:
    assert fire.finished_at is not None
    return fire.finished_at
