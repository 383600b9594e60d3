"""How SQLite finds rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from fencepost.model import FireRecord, JobEvent, ReplicaRecord
from fencepost.store.backend import Find
from fencepost.store.base import FireQuery, JobPage
from fencepost.store.codec import micros, moment
from fencepost.store.reader import RowReader
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.sqlite.load import SqliteLoad
from fencepost.store.sqlite.queries import found
from fencepost.store.sqlite.statements import Statements
from fencepost.store.tables import keys_of, newest
from fencepost.store.texts import target_record


class SqliteFind(Find):
    def __init__(self, sql: Statements, reader: RowReader, load: SqliteLoad) -> None:
        self._sql = sql
        self._reader = reader
        self._load = load

    def job_ids(self, page: JobPage) -> list[str]:
        query, values = "select id from {jobs} where id > ?", [page.after]
        if page.contains:
            query += " and instr(lower(id), ?)"
            values.append(page.contains.lower())
        return [row[0] for row in self._sql.all(f"{query} order by id limit ?", *values, page.limit)]

    def jobs_of(self, target: str | None) -> Sequence[str]:
        if target is None:
            return [row[0] for row in self._sql.all("select id from {jobs}")]
        return [row[0] for row in self._sql.all("select id from {jobs} where target = ?", target)]

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        but, aside = self._but_aside()
        which = f"look_at <= ? and {_known(leads)}{but}"
        query = f"select id from {{jobs}} where {which} order by look_at, id limit ?"
        return [row[0] for row in self._sql.all(query, micros(now), replica.id, *aside, limit)]

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        but, aside = self._but_aside()
        query = f"select look_at from {{jobs}} where look_at is not null{but}"
        if replica is None:
            row = self._sql.one(f"{query} order by look_at limit 1", *aside)
        else:
            row = self._sql.one(f"{query} and {_known(leads)} order by look_at limit 1", *aside, replica.id)
        return moment(row[0]) if row and type(row[0]) is int else None

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        but, aside = self._but_aside()
        query = f"select id from {{jobs}} where plan_at <= ?{but} order by plan_at, id limit ?"
        return [row[0] for row in self._sql.all(query, micros(until), *aside, limit)]

    def soonest_plan(self) -> datetime | None:
        but, aside = self._but_aside()
        query = f"select plan_at from {{jobs}} where plan_at is not null{but} order by plan_at limit 1"
        row = self._sql.one(query, *aside)
        return moment(row[0]) if row and type(row[0]) is int else None

    def _but_aside(self) -> tuple[str, tuple[str, ...]]:
        """A condition, and its value: what is set aside stays due, and would be in the way of the others."""
        aside = self._reader.registry.aside if self._reader.registry else ()
        if not aside:
            return "", ()
        return " and id not in (select value from json_each(?))", (json.dumps(aside),)

    def unknown_targets(self) -> Sequence[TargetRecord]:
        known = "select target from {replica_targets}"
        rows = self._sql.all(
            f"select name, target from {{targets}} where name not in ({known}) order by name"
        )
        return [self._reader.target(name, target_record, row) for name, row in rows]

    def knowing(self, target: str) -> frozenset[str]:
        query = "select replica from {replica_targets} where target = ?"
        return frozenset(row[0] for row in self._sql.all(query, target))

    def fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        if keys is not None:
            return newest(self._load.fires(keys), query)
        return self._load.fires_of(self._sql.found("fires", *found(query)))

    def events(self, since: datetime) -> Iterable[JobEvent]:
        latest = "select job_id, number, at, event from {events} order by number desc limit ?"
        query = f"select job_id, number, event from ({latest}) where at >= ?"
        rows = reversed(self._sql.all(query, MOST_EVENTS, micros(since)))
        return [event for row in rows if (event := self._reader.event(*row)) is not None]


def _known(leads: bool) -> str:
    """Jobs whose task a replica knows. Registered once: a list sent with each claim would cost more than it."""
    known = "exists (select 1 from {replica_targets} as known where known.replica = ? and known.target = {jobs}.target)"
    return known if leads else f"execute_on = 'any' and {known}"
