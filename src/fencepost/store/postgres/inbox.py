"""The inbox in PostgreSQL: a table in the namespace's schema. The insert notifies, so replicas hear of the commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from fencepost.errors import NothingStored, StoreUnavailable, UsageError
from fencepost.settings import redacted
from fencepost.store.base import NewFire
from fencepost.store.inbox import INSERT, NOT_HERE, Inbox, Letter, Statements, letter_of, values_of
from fencepost.store.postgres import schema
from fencepost.store.postgres.arrays import Bigints
from fencepost.store.postgres.connection import Connection, connect, wrapped
from fencepost.store.postgres.names import PostgresNames

TABLE = """
create table if not exists {schema}.inbox (
    number bigint generated always as identity primary key, key text not null, args text, if_active text not null,
    asked_by text not null, written_at timestamptz not null default now()
)
"""
# Two that create a table at once would fail on each other, whatever "if not exists" says.
ALONE = "select pg_advisory_xact_lock(1718972275, 1)"
EXISTS = """
select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = 'inbox'
"""
WAITING = """
select number, key, args, if_active, asked_by, extract(epoch from clock_timestamp() - written_at)::float8
    from {schema}.inbox order by number limit %s
"""
IS_HERE = (
    "select 1 from pg_database where datname = current_database()"
    " and (select system_identifier from pg_control_system()) || '/' || oid = :database"
)


class PostgresInbox(Inbox):
    kind = "postgresql"
    poll_every = 2.0  # beside hints, which come with the commit
    check_table_every = 60.0  # takes a connection, and the first commit gives a hint

    def __init__(self, url: str, names: PostgresNames) -> None:
        self._url = url
        self._names = names
        self.name = redacted(url)
        self._db: Connection | None = None
        self._ended = False
        self._database: str | None = None

    def prepare(self) -> None:
        """With a connection of its own: the caller's transaction must not wait for others that create it, too."""
        if self._database is not None:
            return
        with self._connected() as db:
            if schema.version(db) is None:
                raise NothingStored(self.name, self._names.namespace, schema.namespaces(db))
            if not self._exists(db):
                with db.transaction():
                    db.do(ALONE)
                    db.do(TABLE)
            self._database = db.server.database
        self.close()

    def write(self, fire: NewFire) -> Statements:
        if (yield IS_HERE, {"database": self._database}) is None:
            raise UsageError(NOT_HERE.format(store=self.name))
        yield INSERT.format(table=f'"{self._names.schema}".inbox'), values_of(fire)
        yield "select pg_notify(:channel, '')", {"channel": self._names.channel}

    def waiting(self, most: int) -> list[Letter] | None:
        with self._connected() as db:
            if not self._exists(db):
                return None
            return [letter_of(*row) for row in db.all(WAITING, most)]

    def remove(self, numbers: Sequence[int]) -> None:
        with self._connected() as db:
            db.do("delete from {schema}.inbox where number = any(%s)", Bigints(numbers))

    def end(self) -> None:
        self._ended = True  # a thread that is connecting right now closes what it gets
        self.close()

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _exists(self, db: Connection) -> bool:
        return db.one(EXISTS, self._names.schema) is not None

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            if self._db is None:
                self._db = connect(self._url, self._names)
            yield self._db
        except psycopg.Error as error:
            self.close()
            raise wrapped(error, self.name) from error
        except StoreUnavailable:
            self.close()
            raise
        finally:
            if self._ended:
                self.close()
