"""Statements on one connection, within one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from fencepost.store.sqlite.schema import Names


class Statements:
    def __init__(self, db: sqlite3.Connection, names: Names, copies: bool = False) -> None:
        """`copies`: for a store that only reads. It copies the jobs or fires that a query finds in one step, lets go of
        the lock, for which a writer waits unless the journal is WAL, and then reads them. Row by row that would take
        long beside busy threads: after each row a thread must get hold of the interpreter again."""
        self.db = db
        self.names = names
        self._copies = copies

    def do(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self.db.execute(self.names.sql(statement), values)

    def many(self, statement: str, rows: Sequence[Any]) -> None:
        if rows:
            self.db.executemany(self.names.sql(statement), rows)

    def one(self, query: str, *values: Any) -> Any:
        return self.do(query, *values).fetchone()

    def all(self, query: str, *values: Any) -> list[Any]:
        return self.do(query, *values).fetchall()

    def among(self, query: str, values: Sequence[str], *others: Any) -> list[Any]:
        """`query` ends with the column whose value must be one of these; `others` stand before it."""
        return self.all(f"{query} {AMONG}", *others, json.dumps(values)) if values else []

    def found(self, name: str, query: str, *values: Any) -> list[Any]:
        """Jobs or fires, with the columns of their temporary table if this store only reads."""
        if not self._copies:
            return self.all(query, *values)
        self.do(f"delete from temp.found_{name}")
        self.do(f"insert into temp.found_{name} {query}", *values)
        if self.db.in_transaction:
            self.db.execute("commit")
        return self.all(f"select * from temp.found_{name} order by rowid")


AMONG = "in (select value from json_each(?))"
