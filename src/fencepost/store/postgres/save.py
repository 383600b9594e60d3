"""How PostgreSQL saves what a step has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, State
from fencepost.store.backend import Changes, JobChange, ReplicaChange, Save
from fencepost.store.codec import micros, ticks
from fencepost.store.postgres.arrays import Bigints, Texts, columns
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.load import PostgresLoad
from fencepost.store.postgres.records import (
    FIRE_COLUMNS,
    FIRE_KINDS,
    LEASE_COLUMNS,
    OUTCOME_COLUMNS,
    REPLICA_COLUMNS,
    TARGET_COLUMNS,
    fire_row,
    head_of,
    lease_row,
    outcome_row,
    place_of,
    replica_row,
    without_cursor,
)
from fencepost.store.reader import RowReader
from fencepost.store.rows import TargetRecord
from fencepost.store.rules.history import needed_events
from fencepost.store.texts import same_but_hot, same_outcome, text, texts_of


class PostgresSave(Save):
    """Changes are noted, and written in one statement: at the end of the step, or before a query that must see them."""

    def __init__(self, db: Connection, reader: RowReader, load: PostgresLoad) -> None:
        self._db = db
        self._reader = reader
        self._load = load
        self.jobs: dict[str, JobChange] = {}
        self._decide_soon: dict[str, datetime] = {}
        self._events: list[JobEvent] = []
        self._targets: dict[str, TargetRecord] = {}
        self._replicas: dict[str, ReplicaChange] = {}
        self.has_written_replicas = False
        self._fires: Mapping[str, FireRecord | None] = {}
        self._lease: Lease | None = None
        self._entries: dict[str, str | None] = {}
        self._notify = False
        self._parts: list[tuple[str, Sequence[Any]]] = []
        """Of the statement that is being made, with their values."""

    def save(self, changes: Changes) -> None:
        for job in changes.jobs:
            known = self.jobs.get(job.record.id)
            self.jobs[job.record.id] = replace(job, before=known.before) if known else job
            self._decide_soon.pop(job.record.id, None)
        self._decide_soon.update(changes.decide_soon)
        self._events += changes.events
        for event in changes.events:
            self._load.noted.setdefault(event.job_id, []).append(event)
        self._targets.update({target.name: target for target in changes.targets})
        for change in changes.replicas:
            earlier = self._replicas.get(change.id)
            self._replicas[change.id] = replace(change, before=earlier.before) if earlier else change
        self._fires = {**self._fires, **changes.fires}
        self._lease = changes.lease or self._lease
        self._entries.update(changes.entries)
        self._notify = self._notify or changes.notify

    def finish(self) -> None:
        self.write()

    def write(self) -> None:
        """Everything that was noted."""
        jobs, self.jobs = self.jobs, {}
        targets, self._targets = self._targets, {}
        if jobs:
            self._save_jobs(list(jobs.values()), targets)
        if self._decide_soon:
            self._save_moments(self._decide_soon)
        if self._events:
            self._save_events(self._events)
        if targets:
            self._save_targets(list(targets.values()))
        for change in self._replicas.values():
            self._save_replica(change)
            self.has_written_replicas = True
        if self._fires:
            self._save_fires(self._fires)
        if self._lease is not None:
            self._save_lease(self._lease)
        if self._entries:
            self._save_entries(self._entries)
            self._entries = {}
        self._decide_soon, self._events, self._replicas, self._fires, self._lease = {}, [], {}, {}, None
        self._load.noted.clear()
        self._run_parts()

    def _run_parts(self) -> None:
        """Each writes rows of its own: it does not matter in which order the server takes them."""
        parts, self._parts = self._parts, []
        last = "select {schema}.hint()" if self._notify else "select 1"
        self._notify = False
        if parts or last != "select 1":
            steps = ", ".join(f"s{number} as ({sql})" for number, (sql, _) in enumerate(parts))
            values = [value for _, some in parts for value in some]
            self._db.do(f"with {steps} {last}" if parts else last, *values)

    def _do(self, sql: str, *values: Any) -> None:
        self._parts.append((sql, values))

    def _save_jobs(self, changes: Sequence[JobChange], explicit: Collection[str]) -> None:
        wide, calendars, hot, targets = [], [], [], set()
        outcomes = [
            outcome_row(each.record) for each in changes if not same_outcome(each.before, each.record)
        ]
        for change in changes:
            record, before = change.record, change.before
            job, cold = record.job, without_cursor(record)
            if before is None or not same_but_hot(without_cursor(before), cold):
                wide.append((record.id, job.lane, *texts_of(cold)))
            if before is None or before.job.lane != job.lane:
                targets.add(job.lane)
            if before is None or not self._same_calendar(change, before):
                calendars.append(_calendar_row(change))
            hot.append(
                (
                    record.id,
                    job.lane,
                    int(job.leader_only),
                    job.misfire_after // timedelta(microseconds=1),
                    int(job.misfire == "latest" and not record.watch),
                    int(job.overlap.kind == "skip"),
                    ticks(change.fast_from),
                    record.token,
                    ticks(record.decided_through),
                    _due_of(record.tail),
                    ticks(change.decide_at),
                    job.priority,
                )
            )
        if targets := targets.difference(explicit):
            self._do(
                "insert into {schema}.targets (name) select unnest(%s::text[]) on conflict do nothing",
                Texts(sorted(targets)),
            )
        if wide:
            self._upsert("definitions", "job_id, target, definition, rest", "tttt", wide, key="job_id")
        if outcomes:
            self._upsert("outcomes", f"job_id, {OUTCOME_COLUMNS}", "tbttbbtttbb", outcomes, key="job_id")
        if calendars:
            names = "job_id, version, cursor, until, next_at, plan_at"
            self._upsert("calendars", names, "tbbbbb", calendars, key="job_id")
            self._load.plan_at.update({row[0]: row[-1] for row in calendars})
        self._upsert(
            "jobs",
            "id, target, leader_only, misfire_after, wants_latest, skips_overlap, plain_since, token, decided_through,"
            " tail, look_at, priority",
            "ttBbBBbbbbbb",
            hot,
            key="id",
        )

    def _same_calendar(self, change: JobChange, before: JobRecord) -> bool:
        known = self._load.plan_at.get(before.id, ...)
        return known == ticks(change.plan_at) and head_of(before) == head_of(change.record)

    def _save_moments(self, moments: Mapping[str, datetime]) -> None:
        rows = [(id, micros(when)) for id, when in moments.items()]
        some = "unnest(%s, %s) as u (id, look_at) where j.id = u.id"
        self._do(f"update {{schema}}.jobs j set look_at = u.look_at from {some}", *columns(rows, "tb"))

    def _save_events(self, events: Sequence[JobEvent]) -> None:
        rows = [(event.job_id, micros(event.at), text(event)) for event in events]
        self._do(
            "insert into {schema}.events (job_id, at, event) select * from unnest(%s, %s, %s)",
            *columns(rows, "tbt"),
        )

    def _save_targets(self, targets: Sequence[TargetRecord]) -> None:
        rows = [
            (each.name, ticks(each.unknown_since), int(each.orphaned), text(each.gaps) if each.gaps else None)
            for each in targets
        ]
        self._upsert("targets", TARGET_COLUMNS, "tbBt", rows, key="name")

    def _save_entries(self, changes: Mapping[str, str | None]) -> None:
        gone = [key for key, entry in changes.items() if entry is None]
        put = [(key, entry) for key, entry in changes.items() if entry is not None]
        if gone:
            self._do("delete from {schema}.entries where key = any(%s)", Texts(gone))
        if put:
            self._upsert("entries", "key, entry", "tt", put, key="key")

    def _save_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        gone: dict[str, list[tuple[Any, ...]]] = {}
        put: dict[str, list[tuple[Any, ...]]] = {}
        for key, fire in changes.items():
            before = self._load.places.get(key)
            table = None if fire is None else _table_of(fire, self._reader.at.wall)
            if before is not None and before[0] != table:
                gone.setdefault(before[0], []).append(before[1:])
            if fire is not None and table is not None:
                put.setdefault(table, []).append(fire_row(fire))
        for table, places in gone.items():
            condition = "t.job_id = w.job_id and t.due_at = w.due_at"
            condition += "" if table == "planned" else " and t.name = w.name"
            some = f"unnest(%s, %s, %s) as w (job_id, due_at, name) where {condition}"
            self._do(f"delete from {{schema}}.{table} t using {some}", *columns(places, "tbt"))
        for table, rows in put.items():
            if table == "planned":
                planned = [(row[0], row[1], row[6], row[7]) for row in rows]
                self._upsert(
                    table, "job_id, due_at, count, last_due_at", "tbbb", planned, key="job_id, due_at"
                )
            else:
                key = "job_id, name" if table == "later" else "job_id, due_at, name"
                self._upsert(table, FIRE_COLUMNS, FIRE_KINDS, rows, key)

    def _save_replica(self, change: ReplicaChange) -> None:
        id, replica, before = change.id, change.replica, change.before
        targets = replica.targets if replica else ()
        if targets != (before.targets if before else ()) or replica is None:
            others = "delete from {schema}.replica_targets where replica = %s and target <> all(%s)"
            self._do(others, id, Texts(targets))
            if targets:
                insert = "insert into {schema}.replica_targets select %s, unnest(%s::text[])"
                self._do(f"{insert} on conflict do nothing", id, Texts(targets))
        if replica is None:
            self._do("delete from {schema}.replicas where id = %s", id)
            self._do("delete from {schema}.beacons where replica = %s", id)
        else:
            # The number of its targets is that of the heartbeat which brought them.
            values = replica_row(replica)
            which = replica.beat_no if before is None or before.targets != targets else None
            marks = ", ".join(["%s"] * len(values))
            self._do(
                f"insert into {{schema}}.replicas as r ({REPLICA_COLUMNS}, targets_no)"
                f" values ({marks}, coalesce(%s, 0)) on conflict (id) do update set"
                f" ({REPLICA_COLUMNS}, targets_no) = ({marks}, coalesce(%s, r.targets_no))",
                *values,
                which,
                *values,
                which,
            )

    def _save_lease(self, lease: Lease) -> None:
        values = lease_row(lease)
        marks = ", ".join(["%s"] * len(values))
        self._do(f"update {{schema}}.lease set ({LEASE_COLUMNS}) = ({marks})", *values)

    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        self._db.do("delete from {schema}.planned where job_id = %s and due_at > %s", job_id, micros(now))
        return ()

    def prune_before(self, before: datetime) -> int:
        """Job events; fires are pruned a batch at a time, outside of this step."""
        self.write()
        old = self._db.all(
            "select job_id from {schema}.events where at < %s group by job_id having count(*) > 1",
            micros(before),
        )
        for (job_id,) in old:
            rows = self._db.all(
                "select number, event from {schema}.events where job_id = %s order by number", job_id
            )
            events = {
                row[0]: event for row in rows if (event := self._reader.event(job_id, *row)) is not None
            }
            needed = {id(event) for event in needed_events(list(events.values()), before)}
            gone = [n for n, event in events.items() if id(event) not in needed]
            if gone:
                self._db.do("delete from {schema}.events where number = any(%s)", Bigints(gone))
        return 0

    def _upsert(self, table: str, names: str, kinds: str, rows: Sequence[tuple[Any, ...]], key: str) -> None:
        """Insert rows, or replace those with the same key. `kinds`: as for `columns`, and B for a truth value."""
        each = names.split(", ")
        values = ", ".join(
            f"{name} = 1" if kind == "B" else name for name, kind in zip(each, kinds, strict=True)
        )
        marks = ", ".join(["%s"] * len(each))
        self._do(
            f"insert into {{schema}}.{table} ({names}) select {values} from unnest({marks}) as u ({names})"
            f" on conflict ({key}) do update set ({names}) = ({', '.join(f'excluded.{name}' for name in each)})",
            *columns(rows, kinds.replace("B", "b")),
        )


def _calendar_row(change: JobChange) -> tuple[Any, ...]:
    head = head_of(change.record)
    if head is None:
        return (change.record.id, None, None, None, None, ticks(change.plan_at))
    times = (micros(head.cursor), ticks(head.until), ticks(head.next_at), ticks(change.plan_at))
    return (change.record.id, head.version, *times)


def _due_of(key: str | None) -> int | None:
    place = place_of(key) if key else None
    return place.due_at if place else None


def _table_of(fire: FireRecord, now: datetime) -> str:
    if fire.state.final:
        return "final"
    if fire.state is State.PENDING and fire.scheduled:
        return "planned"
    return "later" if fire.state is State.PENDING and fire.due_at > now else "live"
