"""How rows are found, where SQLite has a way of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fencepost.model import ReplicaRecord
from fencepost.store.base import FireQuery, Upcoming
from fencepost.store.reader import RowReader
from fencepost.store.sql.find import SqlFind
from fencepost.store.sql.load import SqlLoad
from fencepost.store.sql.statements import Statements
from fencepost.store.sqlite.due import DueForReplica
from fencepost.store.sqlite.queries import found


class SqliteFind(SqlFind):
    def __init__(self, sql: Statements, reader: RowReader, load: SqlLoad) -> None:
        super().__init__(sql, reader, load)
        self._due = DueForReplica(sql, reader)

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        return self._due.jobs(now, replica, leads, limit)

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        return self._due.soonest(replica, leads)

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        return self._due.upcoming(replica, leads, limit)

    def _found(self, query: FireQuery) -> Sequence[Any]:
        return self._sql.found("fires", *found(query))
