"""Fenced effects over `sqlite3`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.errors import UsageError
from fencepost.runs.fenced.effect import FORGOTTEN_AT_ONCE, KEPT_DAYS, Asking, Effect, Scope
from fencepost.runs.fire import Fire
from fencepost.store.sqlite.inbox import is_same_file

TABLE = """
create table if not exists fencepost_effects (
    namespace text not null, fire_key text not null, name text not null,
    token integer not null, committed_at text not null default (datetime('now')),
    primary key (namespace, fire_key, name)
)
"""
INDEX = "create index if not exists fencepost_effects_age on fencepost_effects (committed_at)"
FORGET = (
    "delete from fencepost_effects where rowid in (select rowid from fencepost_effects"
    f" where committed_at < datetime('now', '-{KEPT_DAYS} days') limit {FORGOTTEN_AT_ONCE})"
)


@contextmanager
def transaction(
    fire: Fire, scope: Scope, connection: sqlite3.Connection, name: str
) -> Iterator[sqlite3.Connection]:
    effect = SqliteEffect(fire, scope, name)
    if connection.in_transaction:
        raise UsageError(
            "a transaction is open on this connection: commit it or roll it back before fire.fenced(connection), and "
            "do not connect with autocommit=False, where one always is"
        )
    connection.execute("begin immediate")
    try:
        # Gone if the body ended the transaction: then what followed was, or will be, committed outside of it.
        connection.execute("savepoint fencepost_effect")
        _ask(connection, effect.prepare())
        _ask(connection, effect.open())
        yield connection
        try:
            connection.execute("release fencepost_effect")
        except sqlite3.OperationalError:
            raise UsageError(
                "the transaction of fire.fenced(connection) was ended inside of it: leave out commit(), rollback() and "
                "executescript(), it commits at the end"
            ) from None
        _ask(connection, effect.close())
        connection.execute("commit")
    except BaseException:
        _rollback(connection)
        raise
    effect.committed()


class SqliteEffect(Effect):
    """No other process writes to the file from the beginning of the transaction to its end."""

    def prepare(self) -> Asking[None]:
        home = self.scope.home
        if home is not None and home.kind == "sqlite":
            row = yield "select file from pragma_database_list where name = 'main'", ()
            self.at_home = is_same_file(row[0] if row else None, home.database)
        yield TABLE, ()
        yield INDEX, ()

    def check_token(self) -> tuple[str, tuple[Any, ...]]:
        assert self.scope.home is not None
        table = self.scope.home.fires
        query = f"select 1 from {table} where key = ? and token = ? and state = 'running'"
        return query, (self.fire.key, self.fire.token)

    hold_token = check_token

    def check_effect(self) -> tuple[str, tuple[Any, ...]]:
        query = "select 1 from fencepost_effects where namespace = ? and fire_key = ? and name = ?"
        return query, self.key

    def record(self) -> Asking[bool]:
        yield FORGET, ()
        into = "fencepost_effects (namespace, fire_key, name, token)"
        yield f"insert or ignore into {into} values (?, ?, ?, ?)", (*self.key, self.fire.token)
        inserted = yield "select changes()", ()
        return bool(inserted[0])


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("rollback")


def _ask(connection: sqlite3.Connection, asking: Asking[Any]) -> None:
    cursor, row = connection.cursor(), None
    cursor.row_factory = None  # whatever the connection makes of its rows
    try:
        while True:
            statement, values = asking.send(row)
            row = cursor.execute(statement, values).fetchone()
    except StopIteration:
        return
