"""The operations over SQLite rows.

A step begins with nothing in memory. What it asks for is loaded, what it changes is noted, and all of it is
written before the commit: the rules run on the same dictionaries as in the reference model, and a batch of
fires costs a few statements.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any, get_type_hints

from fencepost.model import (
    Attempt,
    FireRecord,
    Job,
    JobEvent,
    JobRecord,
    Lease,
    ReplicaRecord,
    State,
    changed,
)
from fencepost.store.base import FireQuery
from fencepost.store.codec import from_json, micros, moment, to_json
from fencepost.store.rows import TargetRecord
from fencepost.store.rules import needed_events
from fencepost.store.sqlite.schema import Names, meta, set_meta
from fencepost.store.state import StoreState

HOT = ("token", "decided_through", "tail")
"""Fields of a job that change with every fire; the others are one JSON text, rarely written."""
EXTRA = ("args", "by", "error", "checkpoint", "progress", "attempts")
"""Fields of a fire that most fires do not have."""


class SqliteRows(StoreState):
    remembers_empty_claims = False

    def __init__(self, db: sqlite3.Connection, names: Names, with_targets: bool = True) -> None:
        """`with_targets`: whether the replicas' targets are needed. There may be thousands, and finding what is
        due needs only the table they are registered in."""
        super().__init__()
        self._with_targets = with_targets
        self._db = db
        self._names = names
        self._jobs_loaded: dict[str, JobRecord | None] = {}
        self._live_loaded: dict[str, int] = {}
        """By job: up to which due time."""
        self._next_stored: dict[str, datetime | None] = {}
        """By job: when the next stored fire falls due that is not loaded."""
        self._changed_fires: dict[str, FireRecord | None] = {}
        self._changed_jobs: dict[str, tuple[int | None, int | None]] = {}
        self._replicas_loaded: dict[str, ReplicaRecord] | None = None
        self._changed_replicas: dict[str, ReplicaRecord | None] = {}
        self._lease: Lease | None = None
        self._lease_changed = False

    def preload(self, now: datetime, jobs: Sequence[str] = (), fires: Sequence[str] = ()) -> None:
        """A few statements for all of them, where asking one by one would cost a few for each."""
        for keys in _chunks([key for key in fires if key not in self.fires]):
            query = f"select {_FIRE_COLUMNS} from {{fires}} where key in ({_marks(keys)})"
            self._load_fires(self._all(query, *keys))
        known = dict.fromkeys((*jobs, *(self.fires[key].job_id for key in fires if key in self.fires)))
        for ids in _chunks([id for id in known if id not in self._live_loaded]):
            which = f"in ({_marks(ids)})"
            for row in self._all(f"select {_JOB_COLUMNS} from {{jobs}} where id {which}", *ids):
                if row[0] not in self._jobs_loaded:
                    self._load_job(row[0], row)
            known_by = f"select target from {{jobs}} where id {which}"
            for name, text in self._all(f"select * from {{targets}} where name in ({known_by})", *ids):
                self.targets.setdefault(name, _target(text))
            self._load_fires(self._all(f"{_LIVE} where job_id {which} and {_ACTIVE}", *ids))
            self._load_fires(self._all(f"{_LIVE} where job_id {which} and {_DUE}", *ids, micros(now)))
            planned = dict(
                self._all(f"select id, ({_NEXT}) from {{jobs}} where id {which}", micros(now), *ids)
            )
            for id in ids:
                self._jobs_loaded.setdefault(id, None)
                self._live_loaded[id] = micros(now)
                self._next_stored[id] = _moment(planned.get(id))

    # --- jobs -----------------------------------------------------------------------------------------

    def job(self, id: str) -> JobRecord | None:
        if id not in self._jobs_loaded:
            row = self._one(f"select {_JOB_COLUMNS} from {{jobs}} where id = ?", id)
            self._load_job(id, row)
        return self.jobs_by_id.get(id)

    def every_job(self, target: str | None = None) -> Iterable[JobRecord]:
        self._write_jobs()
        where = "" if target is None else " where target = ?"
        rows = self._all(f"select {_JOB_COLUMNS} from {{jobs}}{where}", *([target] if target else []))
        for row in rows:
            if row[0] not in self._jobs_loaded:
                self._load_job(row[0], row)
        return [self.jobs_by_id[row[0]] for row in rows]

    def put_job_row(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None:
        self._jobs_loaded.setdefault(record.id, None)
        self.jobs_by_id[record.id] = record
        self._changed_jobs[record.id] = (_micros(look_at), _micros(plan_at))

    def due_looks(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        self._write_jobs()
        query = f"select id from {{jobs}} where look_at <= ? and {_known(leads)} order by look_at, id limit ?"
        return [row[0] for row in self._all(query, micros(now), replica.id, limit)]

    def soonest_look(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        self._write_jobs()
        query = "select look_at from {jobs} where look_at is not null"
        if replica is None:
            row = self._one(f"{query} order by look_at limit 1")
        else:
            row = self._one(f"{query} and {_known(leads)} order by look_at limit 1", replica.id)
        return moment(row[0]) if row else None

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        self._write_jobs()
        query = "select id from {jobs} where plan_at <= ? order by plan_at, id limit ?"
        return [row[0] for row in self._all(query, micros(until), limit)]

    def soonest_plan(self) -> datetime | None:
        self._write_jobs()
        row = self._one("select plan_at from {jobs} where plan_at is not null order by plan_at limit 1")
        return moment(row[0]) if row else None

    def note(self, event: JobEvent) -> None:
        text = _text(event)
        self._do(
            "insert into {events} (job_id, at, event) values (?, ?, ?)", event.job_id, micros(event.at), text
        )

    def events_of(self, job_id: str) -> Sequence[JobEvent]:
        rows = self._all("select event from {events} where job_id = ? order by number", job_id)
        return [_read(JobEvent, row[0]) for row in rows]

    def _load_job(self, id: str, row: Any) -> None:
        self._jobs_loaded[id] = None
        if row is not None:
            _, definition, rest, token, decided_through, tail = row
            record = changed(
                _record(definition, rest), token=token, decided_through=_moment(decided_through), tail=tail
            )
            self._jobs_loaded[id] = self.jobs_by_id[id] = record

    def _write_jobs(self) -> None:
        changed, self._changed_jobs = self._changed_jobs, {}
        hot, whole = [], []
        for id, (look_at, plan_at) in changed.items():
            record, loaded = self.jobs_by_id[id], self._jobs_loaded[id]
            values = (record.token, _micros(record.decided_through), record.tail, look_at, plan_at)
            if loaded is not None and _same_but_hot(loaded, record):
                hot.append((*values, id))
                continue
            job = record.job
            if loaded is None or loaded.job.target != job.target:
                self._do(
                    "insert or ignore into {targets} values (?, ?)",
                    job.target,
                    _text(TargetRecord(job.target)),
                )
            definition = _remember(_text(job), job)
            whole.append((id, job.target, job.execute_on, definition, _rest(record), *values))
            self._jobs_loaded[id] = record
        if hot:
            self._many(
                "update {jobs} set token = ?, decided_through = ?, tail = ?, look_at = ?, plan_at = ? where id = ?",
                hot,
            )
        if whole:
            self._many("insert or replace into {jobs} values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", whole)

    # --- targets --------------------------------------------------------------------------------------

    def target(self, name: str) -> TargetRecord:
        if name not in self.targets:
            row = self._one("select target from {targets} where name = ?", name)
            self.targets[name] = _target(row[0]) if row else TargetRecord(name)
        return self.targets[name]

    def unknown_targets(self) -> Sequence[TargetRecord]:
        self._write_jobs()
        gone = [id for id, replica in self._changed_replicas.items() if replica is None]
        query = "select target from {targets} where name not in (select target from {replica_targets}"
        rows = self._all(f"{query} where replica not in ({_marks(gone)})) order by name", *gone)
        return [_target(row[0]) for row in rows]

    def put_target(self, target: TargetRecord) -> None:
        self.targets[target.name] = target
        self._do("insert or replace into {targets} values (?, ?)", target.name, _text(target))

    # --- fires ----------------------------------------------------------------------------------------

    def fire(self, key: str) -> FireRecord | None:
        if key not in self.fires and key not in self._changed_fires:
            row = self._one(f"select {_FIRE_COLUMNS} from {{fires}} where key = ?", key)
            if row:
                super().put_fire(_fire(row))
        return self.fires.get(key)

    def put_fire(self, fire: FireRecord) -> None:
        super().put_fire(fire)
        self._changed_fires[fire.key] = fire

    def drop_fire(self, fire: FireRecord) -> None:
        if fire.key in self.fires:
            super().drop_fire(fire)
        self._changed_fires[fire.key] = None

    def due_fires(self, job_id: str, now: datetime) -> list[FireRecord]:
        self._load_live(job_id, now)
        return super().due_fires(job_id, now)

    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        stored = self._next_stored.get(job_id)
        if job_id not in self._next_stored or (stored is not None and stored <= now):
            row = self._one(f"select ({_NEXT}) from {{jobs}} where id = ?", micros(now), job_id)
            stored = self._next_stored[job_id] = _moment(row[0]) if row else None
        fresh = super().next_planned(job_id, now)
        return min((when for when in (stored, fresh) if when), default=None)

    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        super().withdraw_planned(job_id, now)
        self._next_stored.pop(job_id, None)
        self._do(
            "delete from {fires} where job_id = ? and state = 'pending' and scheduled and due_at > ?"
            " and finished_at is null",
            job_id,
            micros(now),
        )

    def active_fires(self, job_id: str) -> list[FireRecord]:
        self._load_live(job_id)
        return super().active_fires(job_id)

    def running_of(self, replica: str) -> list[FireRecord]:
        query = f"select {_FIRE_COLUMNS} from {{fires}} where replica = ? and state = 'running'"
        self._load_fires(self._all(query, replica))
        return super().running_of(replica)

    def select_fires(self, query: FireQuery) -> list[FireRecord]:
        where, values = ["1"], list[Any]()
        if query.key is not None:
            where.append("key = ?")
            values.append(query.key)
        if query.job_id is not None:
            where.append("job_id = ?")
            values.append(query.job_id)
        if query.states:
            where.append(f"state in ({', '.join('?' * len(query.states))})")
            values += [state.value for state in query.states]
        if query.since is not None:
            where.append("coalesce(last_due_at, due_at) >= ?")
            values.append(micros(query.since))
        if query.until is not None:
            where.append("due_at < ?")
            values.append(micros(query.until))
        order = "order by due_at desc, key desc limit ?"
        rows = self._all(
            f"select {_FIRE_COLUMNS} from {{fires}} where {' and '.join(where)} {order}", *values, query.limit
        )
        return [_fire(row) for row in rows]

    def prune_before(self, before: datetime) -> int:
        gone = self._do("delete from {fires} where finished_at < ?", micros(before)).rowcount
        old = self._all(
            "select job_id from {events} where at < ? group by job_id having count(*) > 1", micros(before)
        )
        for (job_id,) in old:
            rows = self._all("select number, event from {events} where job_id = ? order by number", job_id)
            events = [_read(JobEvent, text) for _, text in rows]
            needed = {id(event) for event in needed_events(events, before)}
            gone_events = [
                (n,) for (n, _), event in zip(rows, events, strict=True) if id(event) not in needed
            ]
            self._many("delete from {events} where number = ?", gone_events)
        return gone

    def _load_live(self, job_id: str, now: datetime | None = None) -> None:
        """What is active, and what has fallen due. Fires planned ahead stay where they are."""
        due, loaded = micros(now) if now else 0, self._live_loaded.get(job_id)
        if loaded is None or due > loaded:
            self._live_loaded[job_id] = due
            if loaded is None:
                self._load_fires(self._all(f"{_LIVE} where job_id = ? and {_ACTIVE}", job_id))
            self._load_fires(self._all(f"{_LIVE} where job_id = ? and {_DUE}", job_id, due))

    def _load_fires(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row[0] not in self.fires and row[0] not in self._changed_fires:
                super().put_fire(_fire(row))

    # --- replicas and the lease -------------------------------------------------------------------------

    def replica(self, id: str) -> ReplicaRecord | None:
        return self._loaded_replicas().get(id)

    def every_replica(self) -> list[ReplicaRecord]:
        replicas = self._loaded_replicas()
        return [replicas[id] for id in sorted(replicas)]

    def put_replica(self, replica: ReplicaRecord) -> None:
        known = self._loaded_replicas().get(replica.id)
        if self._with_targets and (known is None or known.targets != replica.targets):
            self._do("delete from {replica_targets} where replica = ?", replica.id)
            rows = [(replica.id, target) for target in replica.targets]
            self._many("insert into {replica_targets} values (?, ?)", rows)
        self._loaded_replicas()[replica.id] = replica
        self._changed_replicas[replica.id] = replica

    def drop_replica(self, id: str) -> None:
        self._loaded_replicas().pop(id, None)
        self._changed_replicas[id] = None

    @property
    def leader(self) -> Lease:
        if self._lease is None:
            text = meta(self._db, self._names, "leader")
            self._lease = _read(Lease, text) if text else Lease()
        return self._lease

    @leader.setter
    def leader(self, lease: Lease) -> None:
        self._lease = lease
        self._lease_changed = True

    def _loaded_replicas(self) -> dict[str, ReplicaRecord]:
        if self._replicas_loaded is None:
            rows = self._all("select replica from {replicas}")
            self._replicas_loaded = {replica.id: replica for replica in (_replica(row[0]) for row in rows)}
            if self._with_targets:
                for id, replica in self._replicas_loaded.items():
                    found = self._all(
                        "select target from {replica_targets} where replica = ? order by target", id
                    )
                    self._replicas_loaded[id] = changed(replica, targets=tuple(row[0] for row in found))
        return self._replicas_loaded

    # --- writing --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Everything that changed. Called once, before the commit."""
        self._write_jobs()
        dropped = [(key,) for key, fire in self._changed_fires.items() if fire is None]
        altered = [_row(fire) for fire in self._changed_fires.values() if fire is not None]
        if dropped:
            self._many("delete from {fires} where key = ?", dropped)
        if altered:
            self._many(
                f"insert or replace into {{fires}} values ({', '.join('?' * len(_FIRE_FIELDS))}, ?)", altered
            )
        for id, replica in self._changed_replicas.items():
            if replica is None:
                self._do("delete from {replicas} where id = ?", id)
                self._do("delete from {replica_targets} where replica = ?", id)
            else:
                self._do(
                    "insert or replace into {replicas} values (?, ?)", id, _text(changed(replica, targets=()))
                )
        if self._lease_changed:
            set_meta(self._db, self._names, "leader", _text(self.leader))

    def _do(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._db.execute(self._names.sql(statement), values)

    def _many(self, statement: str, rows: Sequence[Any]) -> None:
        self._db.executemany(self._names.sql(statement), rows)

    def _one(self, query: str, *values: Any) -> Any:
        return self._do(query, *values).fetchone()

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._do(query, *values).fetchall()


def _chunks(values: Sequence[str], size: int = 500) -> Iterable[Sequence[str]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _known(leads: bool) -> str:
    """Jobs whose task a replica knows. Registered once: a list sent with each claim would cost more than it."""
    known = "exists (select 1 from {replica_targets} as known where known.replica = ? and known.target = {jobs}.target)"
    return known if leads else f"execute_on = 'any' and {known}"


# --- values -------------------------------------------------------------------------------------------

_JOB_COLUMNS = "id, definition, rest, token, decided_through, tail"
_HINTS = get_type_hints(JobRecord)
_REST = [field.name for field in fields(JobRecord) if field.name not in (*HOT, "job")]
_DEFAULTS = {field.name: field.default for field in fields(JobRecord)}
_NOTHING: dict[str, tuple[Any, ...]] = {
    name: (None,) if name != "by" else ("",) for name in EXTRA if name != "attempts"
} | {"attempts": ((),)}
_FIRE_FIELDS = [field.name for field in fields(FireRecord) if field.name not in EXTRA]
_FIRE_COLUMNS = (
    "key, job_id, due_at, scheduled, state, reason, refers_to, count, last_due_at, token, replica, claim_no, "
    "attempt, crashes, settled, not_before, started_at, finished_at, cancel_requested, extra"
)

# Each condition is word for word that of an index: only then is it used.
_LIVE = f"select {_FIRE_COLUMNS} from {{fires}}"
_ACTIVE = "state in ('running', 'waiting')"
_DUE = "finished_at is null and due_at <= ?"
_NEXT = (
    "select due_at from {fires} where job_id = {jobs}.id and finished_at is null and due_at > ?"
    " order by due_at limit 1"
)


def _micros(when: datetime | None) -> int | None:
    return None if when is None else micros(when)


def _moment(when: int | None) -> datetime | None:
    return None if when is None else moment(when)


def _text(value: Any) -> str:
    return json.dumps(to_json(value), separators=(",", ":"))


def _read(kind: Any, text: str) -> Any:
    return from_json(kind, json.loads(text))


_jobs_read: dict[str, Job] = {}


def _job(definition: str) -> Job:
    """Most of a job never changes: it is read from its text once, and not at all by who wrote it."""
    if definition not in _jobs_read:
        _remember(definition, _read(Job, definition))
    return _jobs_read[definition]


def _remember(definition: str, job: Job) -> str:
    if len(_jobs_read) >= 20_000:
        _jobs_read.clear()
    _jobs_read[definition] = job
    return definition


@lru_cache(maxsize=20_000)
def _record(definition: str, rest: str) -> JobRecord:
    values = {name: from_json(_HINTS[name], value) for name, value in json.loads(rest).items()}
    return JobRecord(job=_job(definition), **values)


@lru_cache(maxsize=20_000)
def _target(text: str) -> TargetRecord:
    target: TargetRecord = _read(TargetRecord, text)
    return target


@lru_cache(maxsize=100)
def _replica(text: str) -> ReplicaRecord:
    replica: ReplicaRecord = _read(ReplicaRecord, text)
    return replica


def _rest(record: JobRecord) -> str:
    values = {name: getattr(record, name) for name in _REST}
    return _text({name: value for name, value in values.items() if value != _DEFAULTS.get(name, ...)})


def _same_but_hot(one: JobRecord, other: JobRecord) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("job", *_REST))
    return all(before is after or before == after for before, after in pairs)


def _row(fire: FireRecord) -> tuple[Any, ...]:
    extra = {name: value for name in EXTRA if (value := getattr(fire, name)) not in _NOTHING[name]}
    return (
        fire.key,
        fire.job_id,
        micros(fire.due_at),
        fire.scheduled,
        fire.state.value,
        fire.reason,
        fire.refers_to,
        fire.count,
        _micros(fire.last_due_at),
        fire.token,
        fire.replica,
        fire.claim_no,
        fire.attempt,
        fire.crashes,
        fire.settled,
        _micros(fire.not_before),
        _micros(fire.started_at),
        _micros(fire.finished_at),
        fire.cancel_requested,
        _text(extra) if extra else None,
    )


def _fire(row: Any) -> FireRecord:
    extra = json.loads(row[19]) if row[19] else {}
    if "attempts" in extra:
        extra["attempts"] = from_json(tuple[Attempt, ...], extra["attempts"])
    return FireRecord(
        key=row[0],
        job_id=row[1],
        due_at=moment(row[2]),
        scheduled=bool(row[3]),
        state=State(row[4]),
        reason=row[5],
        refers_to=row[6],
        count=row[7],
        last_due_at=_moment(row[8]),
        token=row[9],
        replica=row[10],
        claim_no=row[11],
        attempt=row[12],
        crashes=row[13],
        settled=row[14],
        not_before=_moment(row[15]),
        started_at=_moment(row[16]),
        finished_at=_moment(row[17]),
        cancel_requested=bool(row[18]),
        **extra,
    )
