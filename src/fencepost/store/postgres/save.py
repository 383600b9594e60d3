"""How PostgreSQL saves what a step has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from fencepost.model import FireRecord, JobEvent, Lease, State
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
    plain_since,
    replica_row,
    without_cursor,
)
from fencepost.store.reader import RowReader
from fencepost.store.rows import TargetRecord
from fencepost.store.rules.history import needed_events
from fencepost.store.texts import same_but_hot, same_outcome, text, texts_of


class PostgresSave(Save):
    def __init__(self, db: Connection, reader: RowReader, load: PostgresLoad) -> None:
        self._db = db
        self._reader = reader
        self._load = load

    def save(self, changes: Changes) -> None:
        if changes.jobs:
            self._save_jobs(changes.jobs)
        for id, when in changes.decide_soon.items():
            self._db.do("update {schema}.jobs set look_at = %s where id = %s", micros(when), id)
        if changes.events:
            self._save_events(changes.events)
        if changes.targets:
            self._save_targets(changes.targets)
        for change in changes.replicas:
            self._save_replica(change)
        if changes.fires:
            self._save_fires(changes.fires)
        if changes.lease is not None:
            self._save_lease(changes.lease)
        if changes.notify:
            self._db.do("select {schema}.hint()")

    def _save_jobs(self, changes: Sequence[JobChange]) -> None:
        wide, calendars, hot, targets = [], [], [], set()
        outcomes = [
            outcome_row(each.record) for each in changes if not same_outcome(each.before, each.record)
        ]
        for change in changes:
            record, before = change.record, change.before
            job, head = record.job, head_of(record)
            cold = without_cursor(record)
            if before is None or not same_but_hot(without_cursor(before), cold):
                wide.append((record.id, job.target, *texts_of(cold)))
            if before is None or before.job.target != job.target:
                targets.add(job.target)
            calendars.append(
                (
                    record.id,
                    head.version,
                    micros(head.cursor),
                    ticks(head.until),
                    ticks(head.next_at),
                    ticks(change.plan_at),
                )
                if head
                else (record.id, None, None, None, None, None)
            )
            hot.append(
                (
                    record.id,
                    job.target,
                    int(job.execute_on == "leader"),
                    job.misfire_after // timedelta(microseconds=1),
                    int(job.misfire == "latest"),
                    int(job.overlap.kind == "skip"),
                    plain_since(record, change.target),
                    record.token,
                    ticks(record.decided_through),
                    _due_of(record.tail),
                    ticks(change.decide_at),
                )
            )
        if targets:
            self._db.do(
                "insert into {schema}.targets (name) select unnest(%s::text[]) on conflict do nothing",
                Texts(sorted(targets)),
            )
        if wide:
            self._upsert("definitions", "job_id, target, definition, rest", "tttt", wide, key="job_id")
        if outcomes:
            self._upsert("outcomes", f"job_id, {OUTCOME_COLUMNS}", "tbttbbtttbb", outcomes, key="job_id")
        self._upsert(
            "calendars", "job_id, version, cursor, until, next_at, plan_at", "tbbbbb", calendars, key="job_id"
        )
        self._upsert(
            "jobs",
            "id, target, leader_only, misfire_after, wants_latest, skips_overlap, plain_since, token, decided_through,"
            " tail, look_at",
            "ttBbBBbbbbb",
            hot,
            key="id",
        )

    def _save_events(self, events: Sequence[JobEvent]) -> None:
        rows = [(event.job_id, micros(event.at), text(event)) for event in events]
        self._db.do(
            "insert into {schema}.events (job_id, at, event) select * from unnest(%s, %s, %s)",
            *columns(rows, "tbt"),
        )

    def _save_targets(self, targets: Sequence[TargetRecord]) -> None:
        rows = [
            (each.name, ticks(each.unknown_since), int(each.orphaned), text(each.gaps) if each.gaps else None)
            for each in targets
        ]
        self._upsert("targets", TARGET_COLUMNS, "tbBt", rows, key="name")

    def _save_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        gone: dict[str, list[tuple[Any, ...]]] = {}
        put: dict[str, list[tuple[Any, ...]]] = {}
        for key, fire in changes.items():
            before = self._load.places.get(key)
            table = None if fire is None else _table_of(fire)
            if before is not None and before[0] != table:
                gone.setdefault(before[0], []).append(before[1:])
            if fire is not None and table is not None:
                put.setdefault(table, []).append(fire_row(fire))
        for table, places in gone.items():
            condition = "t.job_id = w.job_id and t.due_at = w.due_at"
            condition += "" if table == "planned" else " and t.name = w.name"
            some = f"unnest(%s, %s, %s) as w (job_id, due_at, name) where {condition}"
            self._db.do(f"delete from {{schema}}.{table} t using {some}", *columns(places, "tbt"))
        for table, rows in put.items():
            if table == "planned":
                planned = [(row[0], row[1], row[6], row[7]) for row in rows]
                self._upsert(
                    table, "job_id, due_at, count, last_due_at", "tbbb", planned, key="job_id, due_at"
                )
            else:
                self._upsert(table, FIRE_COLUMNS, FIRE_KINDS, rows, key="job_id, due_at, name")

    def _save_replica(self, change: ReplicaChange) -> None:
        id, replica, before = change.id, change.replica, change.before
        targets = replica.targets if replica else ()
        if targets != (before.targets if before else ()) or replica is None:
            self._db.do("delete from {schema}.replica_targets where replica = %s", id)
            if targets:
                insert = "insert into {schema}.replica_targets select %s, unnest(%s::text[])"
                self._db.do(insert, id, Texts(targets))
        if replica is None:
            self._db.do("delete from {schema}.replicas where id = %s", id)
            self._db.do("delete from {schema}.beacons where replica = %s", id)
        else:
            # The number of its targets is that of the beat which brought them.
            values = replica_row(replica)
            which = replica.beat_no if before is None or before.targets != targets else None
            marks = ", ".join(["%s"] * len(values))
            self._db.do(
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
        self._db.do(f"update {{schema}}.lease set ({LEASE_COLUMNS}) = ({marks})", *values)

    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        self._db.do("delete from {schema}.planned where job_id = %s and due_at > %s", job_id, micros(now))
        return ()

    def prune_before(self, before: datetime) -> int:
        """Job events; fires are pruned a batch at a time, outside of this step."""
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
        self._db.do(
            f"insert into {{schema}}.{table} ({names}) select {values} from unnest({marks}) as u ({names})"
            f" on conflict ({key}) do update set ({names}) = ({', '.join(f'excluded.{name}' for name in each)})",
            *columns(rows, kinds.replace("B", "b")),
        )


def _due_of(key: str | None) -> int | None:
    place = place_of(key) if key else None
    return place.due_at if place else None


def _table_of(fire: FireRecord) -> str:
    if fire.state.final:
        return "final"
    return "planned" if fire.state is State.PENDING and fire.scheduled else "live"
