"""How PostgreSQL finds rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, JobEvent, ReplicaRecord
from fencepost.store.backend import Find, JobChange
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.codec import micros, moment
from fencepost.store.postgres.arrays import Texts
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.load import PostgresLoad
from fencepost.store.postgres.queries import found
from fencepost.store.postgres.records import TARGET_COLUMNS, target_of
from fencepost.store.postgres.save import PostgresSave
from fencepost.store.reader import RowReader
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.tables import after_all, keys_of, newest

UNKNOWN = "not exists (select 1 from {schema}.replica_targets k where k.target = t.name)"
"""Of a target: no replica knows it."""


class PostgresFind(Find):
    def __init__(self, db: Connection, reader: RowReader, load: PostgresLoad, save: PostgresSave) -> None:
        self._db = db
        self._reader = reader
        self._load = load
        self._save = save

    def job_ids(self, page: JobPage) -> list[str]:
        self._save.write()
        query, values = "select id from {schema}.jobs where id > %s", [page.after]
        if page.contains:
            query += " and strpos(lower(id), %s) > 0"
            values.append(page.contains.lower())
        return [row[0] for row in self._db.all(f"{query} order by id limit %s", *values, page.limit)]

    def jobs_of(self, target: str | None) -> Sequence[str]:
        self._save.write()
        if target is None:
            return [row[0] for row in self._db.all("select id from {schema}.jobs")]
        return [
            row[0]
            for row in self._db.all("select job_id from {schema}.definitions where target = %s", target)
        ]

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        """They are locked, without those that others have locked."""
        self._save.write()
        aside = Texts(self._reader.registry.aside if self._reader.registry else ())
        query = "select {schema}.turns(%s, %s, %s, %s, %s)"
        (ids,) = self._db.one(query, replica.id, leads, micros(now), limit, aside)
        return list(ids or ())

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        """What is noted, and not yet written, is put in its place."""
        noted, aside = self._save.jobs, set(self._reader.registry.aside)
        passed = Texts([*noted, *aside])
        if replica is None:
            row = self._db.one("select {schema}.soonest_of_all(%s)", passed)
        else:
            row = self._db.one("select {schema}.soonest(%s, %s, %s)", replica.id, leads, passed)
        others = (change for id, change in noted.items() if id not in aside)
        moments = [change.decide_at for change in others if _may_run(change, replica, leads)]
        stored = moment(row[0]) if row and row[0] is not None else None
        return min((at for at in (*moments, stored) if at is not None), default=None)

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        """The same, one per job."""
        noted, aside = self._save.jobs, set(self._reader.registry.aside)
        query = "select moments, ids, leader_only from {schema}.upcoming(%s, %s, %s, %s)"
        stored, ids, only = self._db.one(query, replica.id, leads, Texts([*noted, *aside]), limit)
        if stored is None:
            return ()
        found = list(zip(stored, ids, only, strict=True))
        for id, change in noted.items():
            if id not in aside and change.decide_at is not None and _may_run(change, replica, leads):
                found.append((micros(change.decide_at), id, change.record.job.leader_only))
        return [Upcoming(moment(at), is_only) for at, _, is_only in sorted(found)[:limit]]

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        self._save.write()
        but, aside = self._but_aside("job_id")
        due = f"select job_id from {{schema}}.calendars where plan_at <= %s{but}"
        query = f"{due} order by plan_at, job_id limit %s"
        return [row[0] for row in self._db.all(query, micros(until), *aside, limit)]

    def soonest_plan(self) -> datetime | None:
        self._save.write()
        but, aside = self._but_aside("job_id")
        due = f"select plan_at from {{schema}}.calendars where plan_at is not null{but}"
        row = self._db.one(f"{due} order by plan_at limit 1", *aside)
        return moment(row[0]) if row else None

    def _but_aside(self, column: str) -> tuple[str, tuple[Any, ...]]:
        """A condition, and its value: what is set aside stays due, and would be in the way of the others."""
        aside = self._reader.registry.aside if self._reader.registry else ()
        return (f" and {column} <> all(%s)", (Texts(aside),)) if aside else ("", ())

    def unknown_targets(self) -> Sequence[TargetRecord]:
        self._save.write()
        query = f"select {TARGET_COLUMNS} from {{schema}}.targets t where {UNKNOWN} order by name"
        return [self._reader.target(row[0], target_of, row) for row in self._db.all(query)]

    def knowing(self, target: str) -> frozenset[str]:
        """From the replicas, which have been loaded with what they know, unless some were changed."""
        self._save.write()
        if self._save.has_written_replicas:
            query = "select replica from {schema}.replica_targets where target = %s"
            return frozenset(row[0] for row in self._db.all(query, target))
        return frozenset(replica.id for replica in self._load.replicas() if target in replica.targets)

    def fires(self, query: FireQuery) -> list[FireRecord]:
        self._save.write()
        keys = keys_of(query)
        if keys is not None:
            return newest(self._load.fires(keys), query)
        fires = (self._load.fire_in(row) for row in found(self._db, query))
        return [fire for fire in fires if fire is not None]

    def events(self, since: datetime) -> Iterable[JobEvent]:
        self._save.write()
        latest = "select job_id, number, at, event from {schema}.events order by number desc limit %s"
        query = f"select job_id, number, event from ({latest}) as latest where at >= %s order by number"
        rows = self._db.all(query, MOST_EVENTS, micros(since))
        return [event for row in rows if (event := self._reader.event(*row)) is not None]

    def entries(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        condition = "key > %s and key >= %s and key < %s"
        query = f"select key, entry from {{schema}}.entries where {condition} order by key limit %s"
        return [(row[0], row[1]) for row in self._db.all(query, after, prefix, after_all(prefix), limit)]

    def count_entries(self, prefix: str) -> int:
        query = "select count(*) from {schema}.entries where key >= %s and key < %s"
        return int(self._db.one(query, prefix, after_all(prefix))[0])


def _may_run(change: JobChange, replica: ReplicaRecord | None, leads: bool) -> bool:
    job = change.record.job
    return replica is None or (job.lane in replica.targets and (leads or not job.leader_only))
