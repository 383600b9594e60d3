"""New contents of tables, loaded aside and put in place in one transaction that the fencing token guards.

Readers see all of the old rows or all of the new ones. What is loaded lies in temporary tables: no other session sees
it, and if this process dies it is gone. Rows are exchanged, not tables: views, grants, foreign keys and statements that
others have prepared stay as they are, and a reader whose transaction began before keeps what it has seen
(docs/decisions/0023-pipelines.md).
"""

from __future__ import annotations

import hashlib
import logging
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from fencepost.errors import EffectCommitted, UsageError
from fencepost.runs.fire import Fire

log = logging.getLogger("fencepost")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")


@contextmanager
def published(
    fire: Fire, connection: Any, tables: Sequence[str], *, name: str = "tables"
) -> Iterator[Mapping[str, str]]:
    """Gives by table the name of the one to load. They are named in the order in which rows may refer to each other:
    what is referred to comes first. The connection is one of sqlite3 or psycopg, with no transaction open.

    If an earlier attempt of this fire has published already, what was loaded now is dropped: its own stands.
    """
    staging = _staging(connection, tables)
    effect = f"publish:{name[:150]}:{hashlib.sha256(','.join(tables).encode()).hexdigest()[:8]}"
    try:
        yield staging.prepare()
        connection.commit()  # of what was loaded, which only this connection sees
        try:
            with fire.fenced(connection, name=effect):
                staging.exchange()
        except EffectCommitted:
            log.info("%s: an earlier attempt has published %s", fire.key, ", ".join(tables))
    finally:
        staging.drop()


class _Staging(Protocol):
    def prepare(self) -> Mapping[str, str]:
        """Empty tables like the named ones."""

    def exchange(self) -> None:
        """The loaded rows for the old ones, inside a transaction."""

    def drop(self) -> None: ...


def _staging(connection: Any, tables: Sequence[str]) -> _Staging:
    if isinstance(tables, str) or not tables or len(set(tables)) < len(tables):
        raise UsageError("name the tables to publish, each once")
    for table in tables:
        if not _NAME.fullmatch(table):
            raise UsageError(f"{table!r} is not usable as the name of a table; write stops or public.stops")
    if isinstance(connection, sqlite3.Connection):
        return _Sqlite(connection, tables)
    psycopg = sys.modules.get("psycopg")  # a caller with such a connection has imported it
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return _Postgres(connection, tables, psycopg.Error)
    raise UsageError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection that can be published to; "
        "give one of sqlite3 or psycopg 3 that blocks, as the driver made it"
    )


class _Tables:
    """What both have in common."""

    schema: str
    """Of temporary tables."""

    def __init__(self, connection: Any, tables: Sequence[str], errors: type[Exception]) -> None:
        self._connection = connection
        self._errors = errors
        self._new = {table: self._name(number, table) for number, table in enumerate(tables)}

    def _name(self, number: int, table: str) -> str:
        """None that would be taken for the table itself."""
        return f"{self.schema}.{_quoted(f'fencepost_new_{number}_{table}'.replace('.', '_')[:63])}"

    def exchange(self) -> None:
        for table in reversed(self._new):
            self._connection.execute(f"delete from {_quoted(table)}")
        for table, new in self._new.items():
            columns = ", ".join(_quoted(column) for column in self._columns(table))
            self._connection.execute(self._copy(_quoted(table), new, columns))

    def drop(self) -> None:
        # Where the connection is broken they are gone with it, and what broke it is already on its way.
        with suppress(self._errors):
            self._connection.rollback()
            for new in self._new.values():
                self._connection.execute(f"drop table if exists {new}")
            self._connection.commit()

    def _copy(self, table: str, new: str, columns: str) -> str:
        return f"insert into {table} ({columns}) select {columns} from {new}"

    def _columns(self, table: str) -> list[str]:
        raise NotImplementedError


class _Sqlite(_Tables):
    schema = "temp"

    def __init__(self, connection: sqlite3.Connection, tables: Sequence[str]) -> None:
        super().__init__(connection, tables, sqlite3.Error)
        if connection.in_transaction:
            raise UsageError("a transaction is open on this connection: commit it or roll it back first")

    def prepare(self) -> Mapping[str, str]:
        for table, new in self._new.items():
            columns = [
                f"{_quoted(name)} {kind}{' not null' if required else ''}{f' default ({default})' if default else ''}"
                for name, kind, required, default in self._described(table)
            ]
            self._connection.execute(f"drop table if exists {new}")
            self._connection.execute(f"create table {new} ({', '.join(columns)})")
        self._connection.commit()
        return self._new

    def _columns(self, table: str) -> list[str]:
        return [name for name, *_ in self._described(table)]

    def _described(self, table: str) -> list[tuple[str, str, int, str | None]]:
        """Its columns, but for those it makes itself."""
        if "." in table:
            raise UsageError(f"{table}: name tables of the main database, without a schema")
        cursor = self._connection.cursor()
        cursor.row_factory = None
        query = (
            "select name, type, \"notnull\", dflt_value from pragma_table_xinfo(?, 'main') where hidden = 0"
        )
        columns: list[tuple[str, str, int, str | None]] = cursor.execute(query, (table,)).fetchall()
        if not columns:
            raise UsageError(f"there is no table {table!r} to publish to; create it first")
        return columns


class _Postgres(_Tables):
    schema = "pg_temp"

    def __init__(self, connection: Any, tables: Sequence[str], errors: type[Exception]) -> None:
        super().__init__(connection, tables, errors)
        if connection.info.transaction_status.name != "IDLE":
            raise UsageError(
                "a transaction is open on this connection, or it is broken: commit() or rollback() first"
            )

    def prepare(self) -> Mapping[str, str]:
        for table, new in self._new.items():
            self._columns(table)
            like = f"like {_quoted(table)} including all"
            self._connection.execute(f"drop table if exists {new}")
            self._connection.execute(f"create temporary table {new.removeprefix('pg_temp.')} ({like})")
        self._connection.commit()
        return self._new

    def exchange(self) -> None:
        # Readers go on. Another run that publishes to the same tables waits: both would insert their rows.
        names = ", ".join(_quoted(table) for table in self._new)
        self._connection.execute(f"lock table {names} in exclusive mode")
        super().exchange()

    def _copy(self, table: str, new: str, columns: str) -> str:
        return f"insert into {table} ({columns}) overriding system value select {columns} from {new}"

    def _columns(self, table: str) -> list[str]:
        query = (
            "select attname from pg_attribute where attrelid = to_regclass(%s) and attnum > 0"
            " and not attisdropped and attgenerated = '' order by attnum"
        )
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            columns = cursor.execute(query, (_quoted(table),)).fetchall()
        if not columns:
            raise UsageError(f"there is no table {table!r} to publish to; create it first")
        return [name for (name,) in columns]


def _quoted(name: str) -> str:
    """Each part of it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
