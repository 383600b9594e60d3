"""Statements on one connection, within one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fencepost.store.sql.statements import Statements, into

if TYPE_CHECKING:
    from fencepost.store.sqlite.schema import SqliteNames


class SqliteStatements(Statements):
    AMONG = "in (select value from json_each(?))"

    def __init__(self, db: sqlite3.Connection, names: SqliteNames, copies: bool = False) -> None:
        """`copies`: for a store that only reads. It copies the jobs or fires that a query finds in one step, lets go of
        the lock, for which a writer waits unless the journal is WAL, and then reads them. Row by row that would take
        long beside busy threads: after each row a thread must get hold of the interpreter again."""
        self.db = db
        self.names = names
        self._copies = copies

    def listed(self, values: Sequence[str]) -> str:
        return json.dumps(values)

    def do(self, statement: str, *values: Any) -> int:
        return self.db.execute(self.names.sql(statement), values).rowcount

    def many(self, statement: str, rows: Sequence[Any]) -> None:
        if rows:
            self.db.executemany(self.names.sql(statement), rows)

    def all(self, query: str, *values: Any) -> list[Any]:
        return self.db.execute(self.names.sql(query), values).fetchall()

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        self.many(f"insert or replace {into(table, tuple(columns))}", rows)

    def change(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        self.many(_update(table, tuple(columns)), rows)

    def add_missing(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        self.many(f"insert or ignore {into(table, tuple(columns))}", rows)

    def found(self, name: str, query: str, *values: Any) -> list[Any]:
        """Jobs or fires, with the columns of their temporary table if this store only reads."""
        if not self._copies:
            return self.all(query, *values)
        self.do(f"delete from temp.found_{name}")
        self.do(f"insert into temp.found_{name} {query}", *values)
        if self.db.in_transaction:
            self.db.execute("commit")
        return self.all(f"select * from temp.found_{name} order by rowid")


@cache
def _update(table: str, columns: tuple[str, ...]) -> str:
    key, *others = columns
    changes = ", ".join(f"`{name}` = ?{number}" for number, name in enumerate(others, start=2))
    return f"update {{{table}}} set {changes} where `{key}` = ?1"
