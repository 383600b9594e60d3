"""The inbox in SQLite: a table in the same file, made in the transaction that first needs it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from fencepost.errors import StoreUnavailable, UsageError
from fencepost.store import forks
from fencepost.store.base import NewFire
from fencepost.store.inbox import INSERT, NOT_HERE, Inbox, Letter, Statements, letter_of, values_of

TABLE = """
create table if not exists {table} (
    number integer primary key autoincrement, key text not null, args text, if_active text not null,
    asked_by text not null, written_at integer not null default (strftime('%s', 'now'))
)
"""
PATIENCE = 4.0
"""Seconds to wait for a lock."""


class SqliteInbox(Inbox):
    kind = "sqlite"
    poll_every = 0.5  # a commit gives no hint
    check_table_every = 2.0

    def __init__(self, path: Path, namespace: str) -> None:
        self._path = path
        self.name = f"sqlite:///{path}"
        self._table_name = "fencepost_inbox" if namespace == "default" else f"fencepost_{namespace}_inbox"
        self._table = f'"{self._table_name}"'

    def prepare(self) -> None:
        """Nothing from outside: the caller may hold the file's only lock for writing."""

    def write(self, fire: NewFire) -> Statements:
        row = yield "select file from pragma_database_list where name = 'main'", {}
        if not is_same_file(row[0] if row else None, str(self._path)):
            raise UsageError(NOT_HERE.format(store=self.name))
        exists = yield f"select 1 from sqlite_master where name = '{self._table_name}'", {}
        if exists is None:
            yield TABLE.format(table=self._table), {}
        yield INSERT.format(table=self._table), values_of(fire)

    def waiting(self, most: int) -> list[Letter] | None:
        with self._connected() as db:
            if not db.execute("select 1 from sqlite_master where name = ?", (self._table_name,)).fetchone():
                return None
            rows = db.execute(
                "select number, key, args, if_active, asked_by, strftime('%s', 'now') - written_at"
                f" from {self._table} order by number limit ?",
                (most,),
            ).fetchall()
        return [letter_of(*row) for row in rows]

    def remove(self, numbers: Sequence[int]) -> None:
        with self._connected() as db:
            db.executemany(f"delete from {self._table} where number = ?", [(number,) for number in numbers])
            db.commit()

    def close(self) -> None:
        """Nothing is kept open."""

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            uri = f"{self._path.resolve().as_uri()}?mode=rw"
            with forks.put_off, closing(sqlite3.connect(uri, timeout=PATIENCE, uri=True)) as db:
                yield db
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error


def is_same_file(file: str | bytes | None, other: str) -> bool:
    try:
        return bool(file) and os.path.samefile(file or "", other)
    except FileNotFoundError:
        return False
