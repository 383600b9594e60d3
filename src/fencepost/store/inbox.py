"""Fires that are asked for inside a caller's own transaction.

One row is inserted with the caller's connection, into a table beside the store's: it is committed with whatever else
the transaction does, or not at all. The leader moves committed rows into the ledger (`replica/intake.py`): it adds the
fire, then removes the row. The row holds the fire's key, and a key is added once, so a leader that dies in between
repeats nothing.

The table is made when it is first needed. Where it does not exist, looking for it now and then is all that this costs.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fencepost.errors import UsageError
from fencepost.model import checked_id, job_of, manual_key
from fencepost.model.values import json_text
from fencepost.store.base import NewFire, Store

Statements = Generator[tuple[str, Mapping[str, Any]], Any, None]
"""Statements with `:named` values; sent back is the first row of each answer, or None. The same flow, whether the
connection blocks or is awaited."""
Kind = Literal["sqlite", "postgresql"]

INSERT = "insert into {table} (key, args, if_active, asked_by) values (:key, :args, :if_active, :asked_by)"
NOT_HERE = (
    "this connection does not lead to the store's database ({store}), so a fire cannot be committed with it: use "
    "trigger_on_commit(…), or trigger(…) after the commit"
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A committed row."""

    number: int
    fire: NewFire | None
    """None: the row holds something else."""
    age_seconds: float


class Inbox(ABC):
    """Of one namespace. `prepare` and what follows it block; they are called on one thread at a time."""

    kind: Kind
    poll_every: float
    """Seconds between two looks of the leader."""
    check_table_every: float
    """The same as long as there is no table."""
    name: str
    """The store, without its secrets."""

    @abstractmethod
    def prepare(self) -> None:
        """Once, before anything is written."""

    @abstractmethod
    def write(self, fire: NewFire) -> Statements:
        """In the caller's transaction. Raises `UsageError` if its connection leads elsewhere."""

    @abstractmethod
    def waiting(self, most: int) -> list[Letter] | None:
        """The oldest; None: there is no table."""

    @abstractmethod
    def remove(self, numbers: Sequence[int]) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Until it is used again."""

    def end(self) -> None:
        """For good, perhaps while another thread uses it."""
        self.close()


def inbox_of(store: Store) -> Inbox | None:
    """None: this store is in no database that a caller could have a transaction in."""
    sqlite = sys.modules.get("fencepost.store.sqlite.store")  # a caller with such a store has imported it
    if sqlite is not None and isinstance(store, sqlite.SqliteStore):
        from fencepost.store.sqlite.inbox import SqliteInbox

        return SqliteInbox(store.path, store._namespace)
    postgres = sys.modules.get("fencepost.store.postgres.store")
    if postgres is not None and isinstance(store, postgres.PostgresStore):
        from fencepost.store.postgres.inbox import PostgresInbox

        return PostgresInbox(store._session.url, store._session.names)
    return None


def values_of(fire: NewFire) -> dict[str, Any]:
    args = None if fire.args is None else json_text(fire.args)
    return {"key": fire.key, "args": args, "if_active": fire.if_active, "asked_by": fire.by}


def letter_of(number: int, key: str, args: str | None, if_active: str, by: str, age: float) -> Letter:
    """Applications write here, so nothing is taken on trust."""
    try:
        job_id = checked_id(job_of(key), "job id")
        found = None if args is None else json.loads(args)
        fits = manual_key(job_id, key.partition("!")[2]) == key and if_active in ("queue", "refuse")
        if not fits or not isinstance(found, dict | None):
            raise ValueError(key)
        return Letter(number, NewFire(key, job_id, found, if_active, by), age)  # type: ignore[arg-type]
    except ValueError:
        return Letter(number, None, age)


# --- the caller's connection ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Callers:
    """A caller's connection, whatever made it."""

    kind: str
    execute: Callable[[str, Mapping[str, Any]], Any]
    """Runs a statement with `:named` values; the first row, or None. Of an async connection: to be awaited."""
    is_async: bool = False


def callers(connection: Any) -> Callers:
    """Of sqlite3, psycopg 3, SQLAlchemy (connection or session) or Django."""
    if isinstance(connection, sqlite3.Connection):
        return Callers("sqlite", lambda sql, values: _first(connection.execute(sql, values)))
    for known in (_psycopg, _sqlalchemy, _django):
        if (found := known(connection)) is not None:
            return found
    raise UsageError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection that a fire can be written "
        "with; give one of sqlite3, psycopg 3, SQLAlchemy (a Connection or Session) or Django"
    )


def _psycopg(connection: Any) -> Callers | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return None
    if isinstance(connection, psycopg.Connection):
        return Callers("postgresql", lambda sql, values: _first(connection.execute(_percent(sql), values)))

    async def execute(sql: str, values: Mapping[str, Any]) -> Any:
        cursor = await connection.execute(_percent(sql), values)
        return await cursor.fetchone() if cursor.description else None

    return Callers("postgresql", execute, is_async=True)


def _sqlalchemy(connection: Any) -> Callers | None:
    sqlalchemy = sys.modules.get("sqlalchemy")
    if sqlalchemy is None or not type(connection).__module__.startswith("sqlalchemy."):
        return None
    dialect = getattr(connection, "dialect", None) or connection.get_bind().dialect
    text = sqlalchemy.text

    def first(result: Any) -> Any:
        return result.first() if result.returns_rows else None

    if not type(connection).__module__.startswith("sqlalchemy.ext.asyncio"):
        return Callers(dialect.name, lambda sql, values: first(connection.execute(text(sql), values)))

    async def execute(sql: str, values: Mapping[str, Any]) -> Any:
        return first(await connection.execute(text(sql), values))

    return Callers(dialect.name, execute, is_async=True)


def _django(connection: Any) -> Callers | None:
    if not (hasattr(connection, "vendor") and hasattr(connection, "settings_dict")):
        return None

    def execute(sql: str, values: Mapping[str, Any]) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(_percent(sql) if values else sql, values or None)
            return cursor.fetchone() if cursor.description else None

    return Callers(connection.vendor, execute)


def _first(cursor: Any) -> Any:
    return cursor.fetchone() if cursor.description else None


def _percent(sql: str) -> str:
    """`:name` as these drivers have it. Statements here hold no other colons, and no per cent signs."""
    words = sql.split(":")
    return words[0] + "".join(f"%({name}){'s'}{rest}" for name, rest in map(_split, words[1:]))


def _split(word: str) -> tuple[str, str]:
    end = next(
        (place for place, letter in enumerate(word) if not (letter.isalnum() or letter == "_")), len(word)
    )
    return word[:end], word[end:]
