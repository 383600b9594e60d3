"""Fenced effects over psycopg, blocking or awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fencepost.errors import ConfigurationError, UsageError
from fencepost.runs.fenced.effect import FORGOTTEN_AT_ONCE, KEPT_DAYS, Asking, Effect, Scope
from fencepost.runs.fire import Fire
from fencepost.store.codec import micros

TABLE = """
create table if not exists fencepost_effects (
    namespace text not null, fire_key text not null, name text not null,
    token bigint not null, committed_at timestamptz not null default clock_timestamp(),
    primary key (namespace, fire_key, name)
)
"""
INDEX = "create index if not exists fencepost_effects_age on fencepost_effects (committed_at)"

# "If not exists" alone does not help when two sessions create it at the same moment.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(1718972275, 1)"

WHERE_IS_TABLE = """
select quote_ident(n.nspname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = to_regclass('fencepost_effects')
"""

# A role that may not read the store's tables is treated as another database: the effect still happens once.
IS_HOME = """
select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = 'live' and has_schema_privilege(n.oid, 'usage')
        and has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'update')
        and %s = (select system_identifier from pg_control_system()) || '/' ||
            (select oid from pg_database where datname = current_database())
"""

# Nothing of the user's comes after this. A process that is stopped here would keep others waiting: the server ends its
# session.
LAST_ROUND_TRIPS = "select set_config('idle_in_transaction_session_timeout', '3000', true)"

RECORD = f"""
with forgotten as (
    delete from {{table}} where (namespace, fire_key, name) in (
        select namespace, fire_key, name from {{table}}
        where committed_at < now() - interval '{KEPT_DAYS} days'
        limit {FORGOTTEN_AT_ONCE} for update skip locked))
insert into {{table}} (namespace, fire_key, name, token) values (%s, %s, %s, %s)
    on conflict do nothing returning 1
"""


@contextmanager
def transaction(
    fire: Fire, scope: Scope, connection: psycopg.Connection[Any], name: str
) -> Iterator[psycopg.Connection[Any]]:
    effect = PostgresEffect(fire, scope, name)
    _refuse_if_open(connection)
    with connection.transaction():
        _ask(connection, effect.survey())
    if not effect.table:
        with _creating(), connection.transaction():
            _ask(connection, effect.create())
    with connection.transaction():
        _ask(connection, effect.open())
        yield connection
        _ask(connection, effect.close())
    effect.committed()


@asynccontextmanager
async def async_transaction(
    fire: Fire, scope: Scope, connection: psycopg.AsyncConnection[Any], name: str
) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    effect = PostgresEffect(fire, scope, name)
    _refuse_if_open(connection)
    async with connection.transaction():
        await _ask_async(connection, effect.survey())
    if not effect.table:
        with _creating():
            async with connection.transaction():
                await _ask_async(connection, effect.create())
    async with connection.transaction():
        await _ask_async(connection, effect.open())
        yield connection
        await _ask_async(connection, effect.close())
    effect.committed()


class PostgresEffect(Effect):
    table = ""
    """With its schema: what the user does to the search path inside the block must not lead to another one."""

    def survey(self) -> Asking[None]:
        yield from self._find_table()
        home = self.scope.home
        if home is not None and home.kind == "postgresql":
            self.at_home = (yield IS_HOME, (home.fires, home.database)) is not None

    def create(self) -> Asking[None]:
        yield ONE_AT_A_TIME, ()
        yield TABLE, ()
        yield INDEX, ()
        yield from self._find_table()

    def _find_table(self) -> Asking[None]:
        found = yield WHERE_IS_TABLE, ()
        self.table = f"{found[0]}.fencepost_effects" if found else ""

    def check_token(self) -> tuple[str, tuple[Any, ...]]:
        assert self.scope.home is not None
        name = "" if self.fire.scheduled else self.fire.key.partition("!")[2]
        return (
            f'select 1 from "{self.scope.home.fires}".live'
            " where job_id = %s and due_at = %s and name = %s and token = %s and state = 'running'",
            (self.fire.job_id, micros(self.fire.record.due_at), name, self.fire.token),
        )

    def hold_token(self) -> tuple[str, tuple[Any, ...]]:
        """A step that ends this run, or takes it away, waits for the commit; or has been quicker."""
        query, values = self.check_token()
        return f"{query} for share", values

    def check_effect(self) -> tuple[str, tuple[Any, ...]]:
        query = f"select 1 from {self.table} where namespace = %s and fire_key = %s and name = %s"
        return query, self.key

    def close(self) -> Asking[None]:
        yield LAST_ROUND_TRIPS, ()
        yield from super().close()

    def record(self) -> Asking[bool]:
        """If another attempt has inserted it and not committed yet, this waits until that is decided."""
        return (yield RECORD.format(table=self.table), (*self.key, self.fire.token)) is not None


def _refuse_if_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError(
            "a transaction is open on this connection, or it is broken: commit() or rollback() before "
            "fire.fenced(connection), which begins and commits its own"
        )


@contextmanager
def _creating() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"this role may not create the table fencepost_effects ({error.diag.message_primary}); let an "
            "administrator create it once, as docs/execution.md shows, and grant select, insert, update, delete on it"
        ) from error


def _ask(connection: psycopg.Connection[Any], asking: Asking[Any]) -> None:
    row = None
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        try:
            while True:
                statement, values = asking.send(row)
                cursor.execute(statement.encode(), values or None)
                row = cursor.fetchone() if cursor.description else None
        except StopIteration:
            return


async def _ask_async(connection: psycopg.AsyncConnection[Any], asking: Asking[Any]) -> None:
    row = None
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        try:
            while True:
                statement, values = asking.send(row)
                await cursor.execute(statement.encode(), values or None)
                row = await cursor.fetchone() if cursor.description else None
        except StopIteration:
            return
