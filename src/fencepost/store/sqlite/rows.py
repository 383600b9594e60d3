"""Rows in SQLite: the statements, and records as their values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from fencepost.model import (
    Attempt,
    FireRecord,
    JobEvent,
    JobRecord,
    LastRun,
    Lease,
    ReplicaRecord,
    State,
    changed,
    checked_id,
)
from fencepost.store.base import FireQuery, JobPage
from fencepost.store.codec import from_json, micros, moment, ticks, when
from fencepost.store.columns import fate_of, fate_row, settled_attempt
from fencepost.store.lazy import BrokenFire, JobChange, LazyRows
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.rules import is_plain, needed_events
from fencepost.store.sqlite.find import EXTRA, FIRE_FIELDS, FIRES, found
from fencepost.store.sqlite.schema import Names, meta, set_meta
from fencepost.store.state import keys_of, newest
from fencepost.store.texts import (
    KnownJobs,
    fields_of,
    job_record,
    lease_fields,
    read,
    replica_record,
    same_but_hot,
    same_outcome,
    target_record,
    text,
    texts_of,
)
from fencepost.store.unreadable import Registry, checked_fire


class SqliteRows(LazyRows):
    remembers_empty_claims = False
    may_lose_writes = False
    known_jobs: KnownJobs | None = None

    def __init__(
        self, db: sqlite3.Connection, names: Names, registry: Registry, with_targets: bool = True
    ) -> None:
        """`with_targets`: whether the replicas' targets are needed. There may be thousands, and finding what is
        due needs only the table they are registered in."""
        super().__init__(registry)
        self._with_targets = with_targets
        self._db = db
        self._names = names
        self._notes: list[tuple[str, int, str]] = []

    # --- jobs -----------------------------------------------------------------------------------------

    def fetch_jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        found = (
            self.read_job(id, self._job_in, id, (look_at, plan_at), row)
            for id, look_at, plan_at, *row in self._found("jobs", *_among(JOBS, ids))
        )
        return [record for record in found if record is not None]

    def _job_in(self, id: str, moments: tuple[Any, Any], row: Any) -> JobRecord:
        """What is never found due because a moment is damaged must be noticed all the same."""
        for each in moments:
            when(each)
        return job_of(row) if self.known_jobs is None else self.known_jobs.record(id, row, job_of)

    def fetch_hot(self, id: str) -> Mapping[str, Callable[[], Any]]:
        row = self._one("select target, token, decided_through from {jobs} where id = ?", id)
        if row is None:
            return {}
        target, token, decided = row
        return {
            "target": lambda: checked_id(target, "target"),
            "token": lambda: _number(token),
            "decided_through": lambda: when(decided),
        }

    def _but_aside(self, column: str) -> tuple[str, tuple[str, ...]]:
        """A condition, and its value: what is set aside stays due, and would be in the way of the others."""
        aside = self.registry.aside if self.registry else ()
        if not aside:
            return "", ()
        return f" and {column} not in (select value from json_each(?))", (json.dumps(aside),)

    def job_ids(self, page: JobPage) -> list[str]:
        query, values = "select id from {jobs} where id > ?", [page.after]
        if page.contains:
            query += " and instr(lower(id), ?)"
            values.append(page.contains.lower())
        return [row[0] for row in self._all(f"{query} order by id limit ?", *values, page.limit)]

    def fetch_job_ids(self, target: str | None) -> Sequence[str]:
        if target is None:
            return [row[0] for row in self._all("select id from {jobs}")]
        return [row[0] for row in self._all("select id from {jobs} where target = ?", target)]

    def due_looks(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        self.flush()
        but, aside = self._but_aside("id")
        which = f"look_at <= ? and {_known(leads)}{but}"
        query = f"select id from {{jobs}} where {which} order by look_at, id limit ?"
        return [row[0] for row in self._all(query, micros(now), replica.id, *aside, limit)]

    def soonest_look(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        self.flush()
        but, aside = self._but_aside("id")
        query = f"select look_at from {{jobs}} where look_at is not null{but}"
        if replica is None:
            row = self._one(f"{query} order by look_at limit 1", *aside)
        else:
            row = self._one(f"{query} and {_known(leads)} order by look_at limit 1", *aside, replica.id)
        return moment(row[0]) if row and type(row[0]) is int else None

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        self.flush()
        but, aside = self._but_aside("id")
        query = f"select id from {{jobs}} where plan_at <= ?{but} order by plan_at, id limit ?"
        return [row[0] for row in self._all(query, micros(until), *aside, limit)]

    def soonest_plan(self) -> datetime | None:
        self.flush()
        but, aside = self._but_aside("id")
        query = f"select plan_at from {{jobs}} where plan_at is not null{but} order by plan_at limit 1"
        row = self._one(query, *aside)
        return moment(row[0]) if row and type(row[0]) is int else None

    def write_jobs(self, changes: Sequence[JobChange]) -> None:
        hot, whole, targets = [], [], dict[str, str]()
        outcomes = []
        for change in changes:
            record, before = change.record, change.before
            if not same_outcome(before, record):
                outcomes.append(_outcome(record))
            job, values = record.job, (*_hot(change), self._is_plain(change))
            if before is not None and same_but_hot(before, record):
                hot.append((*values, record.id))
                continue
            if before is None or before.job.target != job.target:
                targets[job.target] = text(TargetRecord(job.target))
            whole.append((record.id, job.target, job.execute_on, *texts_of(record), *values))
        self._many("insert or ignore into {targets} values (?, ?)", list(targets.items()))
        columns = "token = ?, decided_through = ?, tail = ?, look_at = ?, plan_at = ?, plain = ?"
        self._many(f"update {{jobs}} set {columns} where id = ?", hot)
        self._many("insert or replace into {jobs} values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", whole)
        self._many(f"insert or replace into {{outcomes}} values ({OUTCOME_MARKS})", outcomes)

    def look_soon(self, job_id: str, when: datetime) -> None:
        self._do("update {jobs} set look_at = ?, plain = 0 where id = ?", micros(when), job_id)

    def _is_plain(self, change: JobChange) -> bool:
        record = change.record
        absences = self.target(record.job.target).gaps
        waiting = [fire.not_before for fire in super().active_fires(record.id) if fire.not_before is not None]
        moments = [*(fire.due_at for fire in self.open_fires(record.id)), *waiting]
        return is_plain(record, absences, change.look_at, moments)

    def note(self, event: JobEvent) -> None:
        self._notes.append((event.job_id, micros(event.at), text(event)))

    def flush(self) -> None:
        super().flush()
        notes, self._notes = self._notes, []
        self._many("insert into {events} (job_id, at, event) values (?, ?, ?)", notes)

    def events_of(self, job_id: str) -> Sequence[JobEvent]:
        self.flush()
        rows = self._all("select number, event from {events} where job_id = ? order by number", job_id)
        return [event for row in rows if (event := self.read_event(job_id, *row)) is not None]

    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        latest = "select job_id, number, at, event from {events} order by number desc limit ?"
        query = f"select job_id, number, event from ({latest}) where at >= ?"
        rows = reversed(self._all(query, MOST_EVENTS, micros(since)))
        return [event for row in rows if (event := self.read_event(*row)) is not None]

    # --- targets --------------------------------------------------------------------------------------

    def fetch_targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        rows = self._in("select name, target from {targets} where name", names)
        return [self.read_target(name, target_record, row) for name, row in rows]

    def unknown_targets(self) -> Sequence[TargetRecord]:
        self.flush()
        known = "select target from {replica_targets}"
        rows = self._all(f"select name, target from {{targets}} where name not in ({known}) order by name")
        return [self.read_target(name, target_record, row) for name, row in rows]

    def knowing(self, target: str) -> frozenset[str]:
        self.flush()  # a replica may have joined in the same transaction
        query = "select replica from {replica_targets} where target = ?"
        return frozenset(row[0] for row in self._all(query, target))

    def put_target(self, target: TargetRecord) -> None:
        self.targets[target.name] = target
        self._do("insert or replace into {targets} values (?, ?)", target.name, text(target))

    # --- fires ----------------------------------------------------------------------------------------

    def fetch_fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        return self._fires_of(self._in(f"{FIRES} where key", keys))

    def fetch_active(self, job_ids: Sequence[str]) -> Iterable[FireRecord]:
        return self._fires_of(self._in(f"{FIRES} where {_ACTIVE} and job_id", job_ids))

    def fetch_due(self, job_ids: Sequence[str], now: datetime) -> Iterable[FireRecord]:
        query = f"{FIRES} where finished_at is null and due_at <= ? and job_id"
        return self._fires_of(self._in(query, job_ids, micros(now)))

    def fetch_next(self, job_ids: Sequence[str], now: datetime) -> Mapping[str, datetime]:
        rows = self._in(f"select id, ({NEXT}) from {{jobs}} as jobs where id", job_ids, micros(now))
        return {id: moment(due_at) for id, due_at in rows if due_at is not None}

    def fetch_running(self, replica: str) -> Iterable[FireRecord]:
        return self._fires_of(self._all(f"{FIRES} where replica = ? and state = 'running'", replica))

    def _fires_of(self, rows: Iterable[Any]) -> list[FireRecord]:
        found = (
            self.read_fire(row[0], BrokenFire(row[1], row[17] is None, row[10]), fire_of, row) for row in rows
        )
        return [fire for fire in found if fire is not None]

    def delete_planned(self, job_id: str, now: datetime) -> None:
        planned = "state = 'pending' and scheduled and due_at > ? and finished_at is null"
        self._do(f"delete from {{fires}} where job_id = ? and {planned}", job_id, micros(now))

    def write_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        dropped = [(key,) for key, fire in changes.items() if fire is None]
        altered = [_row(fire) for fire in changes.values() if fire is not None]
        if dropped:
            self._many("delete from {fires} where key = ?", dropped)
        if altered:
            self._many(
                f"insert or replace into {{fires}} values ({', '.join('?' * (len(FIRE_FIELDS) + 1))})",
                altered,
            )

    def select_fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        if keys is not None:
            return newest(self.fetch_fires(keys), query)
        return self._fires_of(self._found("fires", *found(query)))

    def prune_before(self, before: datetime) -> int:
        self.flush()
        gone = self._do("delete from {fires} where finished_at < ?", micros(before)).rowcount
        old = self._all(
            "select job_id from {events} where at < ? group by job_id having count(*) > 1", micros(before)
        )
        for (job_id,) in old:
            rows = self._all("select number, event from {events} where job_id = ? order by number", job_id)
            events = {row[0]: event for row in rows if (event := self.read_event(job_id, *row)) is not None}
            needed = {id(event) for event in needed_events(list(events.values()), before)}
            gone_events = [(n,) for n, event in events.items() if id(event) not in needed]
            self._many("delete from {events} where number = ?", gone_events)
        return gone

    # --- replicas and the lease -------------------------------------------------------------------------

    def fetch_replicas(self) -> Iterable[ReplicaRecord]:
        rows = self._all("select id, replica from {replicas}")
        found = (
            self.read_replica(id, partial(self._fields_of, id, row), replica_record, row) for id, row in rows
        )
        replicas = [replica for replica in found if replica is not None]
        if not self._with_targets:
            return replicas
        return [changed(replica, targets=self._targets_of(replica.id)) for replica in replicas]

    def _fields_of(self, id: str, row: str) -> Mapping[str, Callable[[], Any]]:
        return {**fields_of(ReplicaRecord, row), "targets": lambda: self._targets_of(id)}

    def _targets_of(self, replica: str) -> tuple[str, ...]:
        query = "select target from {replica_targets} where replica = ? order by target"
        return tuple(row[0] for row in self._all(query, replica))

    def write_replica(self, id: str, replica: ReplicaRecord | None, before: ReplicaRecord | None) -> None:
        targets = replica.targets if replica else ()
        if replica is None or targets != (before.targets if before else ()):
            self._do("delete from {replica_targets} where replica = ?", id)
            self._many("insert into {replica_targets} values (?, ?)", [(id, target) for target in targets])
        if replica is None:
            self._do("delete from {replicas} where id = ?", id)
        else:
            self._do(
                "insert or replace into {replicas} values (?, ?)", id, text(changed(replica, targets=()))
            )

    def fetch_lease(self) -> Lease:
        value = meta(self._db, self._names, "leader")
        return self.read_lease(partial(lease_fields, value), read, Lease, value) if value else Lease()

    def write_lease(self, lease: Lease) -> None:
        set_meta(self._db, self._names, "leader", text(lease))

    # --- statements -----------------------------------------------------------------------------------

    def _do(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._db.execute(self._names.sql(statement), values)

    def _many(self, statement: str, rows: Sequence[Any]) -> None:
        if rows:
            self._db.executemany(self._names.sql(statement), rows)

    def _one(self, query: str, *values: Any) -> Any:
        return self._do(query, *values).fetchone()

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._do(query, *values).fetchall()

    def _in(self, query: str, values: Sequence[str], *others: Any) -> list[Any]:
        """`query` ends with the column whose value must be one of these; `others` stand before it."""
        return self._all(*_among(query, values, *others)) if values else []

    def _found(self, name: str, query: str, *values: Any) -> list[Any]:
        """Jobs or fires. A store that only reads copies them in one step, lets go of the lock, for which a writer waits
        unless the journal is WAL, and then looks at them. Row by row that would take long beside busy threads: after
        each row a thread must get hold of the interpreter again."""
        if self.known_jobs is None:
            return self._all(query, *values)
        self._do(f"delete from temp.found_{name}")
        self._do(f"insert into temp.found_{name} {query}", *values)
        if self._db.in_transaction:
            self._db.execute("commit")
        return self._all(f"select * from temp.found_{name} order by rowid")


def _among(query: str, values: Sequence[str], *others: Any) -> tuple[Any, ...]:
    return (f"{query} in (select value from json_each(?))", *others, json.dumps(values))


def _known(leads: bool) -> str:
    """Jobs whose task a replica knows. Registered once: a list sent with each claim would cost more than it."""
    known = "exists (select 1 from {replica_targets} as known where known.replica = ? and known.target = {jobs}.target)"
    return known if leads else f"execute_on = 'any' and {known}"


# --- values -------------------------------------------------------------------------------------------

OUTCOME = (
    "key",
    "state",
    "due_at",
    "started_at",
    "finished_at",
    "replica",
    "reason",
    "error_line",
    "last_success_at",
    "failures_in_a_row",
)
OUTCOME_MARKS = ", ".join("?" * (len(OUTCOME) + 1))
_JOB_COLUMNS = "definition, rest, jobs.token, decided_through, tail, " + ", ".join(
    f"outcome.{name}" for name in OUTCOME
)
JOBS = (
    f"select jobs.id, look_at, plan_at, {_JOB_COLUMNS}"
    " from {jobs} as jobs left join {outcomes} as outcome on outcome.job_id = jobs.id where jobs.id"
)
_NOTHING: dict[str, tuple[Any, ...]] = {name: (None,) for name in EXTRA} | {
    "by": ("",),
    "cancelled_by": ("",),
    "attempts": ((),),
}
PLACES_FOR_COPIES = (
    "pragma temp_store = memory",
    f"create temp table found_jobs as {JOBS} is null",
    f"create temp table found_fires as {FIRES} where key is null",
)
# Word for word the condition of an index: only then is it used.
_ACTIVE = "state in ('running', 'waiting')"
NEXT = (
    "select due_at from {fires} where job_id = jobs.id and finished_at is null and due_at > ?"
    " and state not in ('running', 'waiting') order by due_at limit 1"
)


_AS_PLANNED = (True, "pending", None, None)
_BLANK = (0, None, 0, 0, 0, 0, None, None, None, False, None)
"""The columns of a planned fire before and after those that it has."""


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.100} is no number")
    return value


def job_of(row: Any) -> JobRecord:
    definition, rest, token, decided_through, tail, *outcome = row
    record = job_record(definition, rest)
    record = changed(record, token=token, decided_through=when(decided_through), tail=tail)
    return changed(record, **_outcome_of(outcome)) if outcome and outcome[0] is not None else record


def _outcome_of(row: Any) -> dict[str, Any]:
    key, state, due_at, started_at, finished_at, replica, reason, line, success, failures = row
    times = (moment(due_at), moment(started_at), moment(finished_at))
    return {
        "last_run": LastRun(key, State(state), *times, replica, reason, line),
        "last_success_at": when(success),
        "failures_in_a_row": failures,
    }


def _outcome(record: JobRecord) -> tuple[Any, ...]:
    assert record.last_run is not None
    ended = run_row(record.last_run)
    return (record.id, *ended, ticks(record.last_success_at), record.failures_in_a_row)


def run_row(run: LastRun) -> tuple[Any, ...]:
    times = (micros(run.due_at), micros(run.started_at), micros(run.finished_at))
    return (run.key, run.state.value, *times, run.replica, run.reason, run.error_line)


def _hot(change: JobChange) -> tuple[Any, ...]:
    record = change.record
    return (
        record.token,
        ticks(record.decided_through),
        record.tail,
        ticks(change.look_at),
        ticks(change.plan_at),
    )


def extra_of(fire: FireRecord) -> str | None:
    """What most fires do not have. That its only attempt ended as the fire did goes without saying."""
    attempts = fire.attempts
    if (
        fire.progress is fire.args is fire.checkpoint is fire.error is fire.output is fire.result is None
        and fire.repeats is None
        and not fire.by
        and not fire.cancelled_by
        and attempts == _only_attempt(fire)
    ):
        return None
    extra = {name: value for name in EXTRA if (value := getattr(fire, name)) not in _NOTHING[name]}
    if attempts == _only_attempt(fire):
        extra.pop("attempts", None)
    elif not attempts:
        extra["attempts"] = ()
    return text(extra)


def _only_attempt(fire: FireRecord) -> tuple[Attempt, ...]:
    """The attempts of a fire that was settled at once."""
    return settled_attempt(fire) if fire.attempt == 1 else ()


def _row(fire: FireRecord) -> tuple[Any, ...]:
    if fire.scheduled and fire.state is State.PENDING:
        return (
            fire.key,
            fire.job_id,
            micros(fire.due_at),
            *_AS_PLANNED,
            fire.count,
            ticks(fire.last_due_at),
            *_BLANK,
        )
    return (
        fire.key,
        fire.job_id,
        micros(fire.due_at),
        fire.scheduled,
        *fate_row(fire),
        extra_of(fire),
    )


def fire_of(row: Any) -> FireRecord:
    extra = json.loads(row[19]) if row[19] else {}
    if "attempts" in extra:
        extra["attempts"] = from_json(tuple[Attempt, ...], extra["attempts"])
    fire = FireRecord(
        key=row[0],
        job_id=row[1],
        due_at=moment(row[2]),
        scheduled=bool(row[3]),
        **fate_of(row[4:19]),
        **extra,
    )
    checked_fire(fire)
    return fire if "attempts" in extra else changed(fire, attempts=_only_attempt(fire))
