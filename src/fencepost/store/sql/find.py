"""How rows are found."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, JobEvent
from fencepost.store.backend import Find
from fencepost.store.base import FireQuery, JobPage
from fencepost.store.codec import micros, moment
from fencepost.store.reader import RowReader
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.sql.load import SqlLoad
from fencepost.store.sql.statements import Statements
from fencepost.store.tables import after_all, keys_of, newest
from fencepost.store.texts import target_record


class SqlFind(Find):
    def __init__(self, sql: Statements, reader: RowReader, load: SqlLoad) -> None:
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

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        but, aside = self._but_aside()
        query = f"select id from {{jobs}} where plan_at <= ?{but} order by plan_at, id limit ?"
        return [row[0] for row in self._sql.all(query, micros(until), *aside, limit)]

    def soonest_plan(self) -> datetime | None:
        but, aside = self._but_aside()
        query = f"select plan_at from {{jobs}} where plan_at is not null{but} order by plan_at limit 1"
        row = self._sql.one(query, *aside)
        return moment(row[0]) if row and type(row[0]) is int else None

    def _but_aside(self) -> tuple[str, tuple[Any, ...]]:
        return but_aside(self._sql, self._reader)

    def unknown_targets(self) -> Sequence[TargetRecord]:
        known = "select target from {replica_targets}"
        rows = self._sql.all(
            f"select name, target from {{targets}} where name not in ({known}) order by name"
        )
        return [self._reader.target(name, target_record, row) for name, row in rows]

    def knowing(self, target: str) -> frozenset[str]:
        query = "select replica from {replica_targets} where target = ?"
        return frozenset(row[0] for row in self._sql.all(query, target))

    def events(self, since: datetime) -> Iterable[JobEvent]:
        latest = "select job_id, number, at, event from {events} order by number desc limit ?"
        query = f"select job_id, number, event from ({latest}) as latest where at >= ? order by number"
        rows = self._sql.all(query, MOST_EVENTS, micros(since))
        return [event for row in rows if (event := self._reader.event(*row)) is not None]

    def entries(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        query = "select `key`, entry from {entries} where `key` > ? and `key` >= ? and `key` < ?"
        return list(self._sql.all(f"{query} order by `key` limit ?", after, prefix, after_all(prefix), limit))

    def count_entries(self, prefix: str) -> int:
        query = "select count(*) from {entries} where `key` >= ? and `key` < ?"
        return int(self._sql.one(query, prefix, after_all(prefix))[0])

    def fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        if keys is not None:
            return newest(self._load.fires(keys), query)
        return self._load.fires_of(self._found(query))

    @abstractmethod
    def _found(self, query: FireQuery) -> Sequence[Any]:
        """Rows of fires, newest first. Not for a query that names keys."""


def but_aside(sql: Statements, reader: RowReader) -> tuple[str, tuple[Any, ...]]:
    """A condition, and its value: what is set aside stays due, and would be in the way of the others."""
    aside = reader.registry.aside if reader.registry else ()
    if not aside:
        return "", ()
    return f" and id not {sql.AMONG}", (sql.listed(aside),)
