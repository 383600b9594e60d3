"""A connection of our own: what is at its other end, how long to wait for it, and errors in our words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError, FencepostError, StoreCorrupt, StoreUnavailable
from fencepost.settings import QUOTE_IT
from fencepost.store.closing import closed_on_error
from fencepost.store.postgres.arrays import Bigints, BigintsDumper, Texts, TextsDumper
from fencepost.store.postgres.names import PostgresNames

OLDEST = 15
CONNECT_TIMEOUT = 3
PATIENCE = 6.0
"""Seconds to wait for an answer, unless a TTL is so short that this would be too long."""

DEFAULTS = {
    "connect_timeout": CONNECT_TIMEOUT,
    "application_name": "fencepost",
    # Keepalives alone do not notice a dead peer while something sent is unacknowledged; the user timeout does.
    "tcp_user_timeout": 3000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}

RV = TypeVar("RV")

_HISTORY = "system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
BEGIN = "begin isolation level read committed"
OWN_TIMEOUT = "select set_config('statement_timeout', '0', true)"
"""For the rest of a transaction. What the role has for the application may be less than a wait for a lock takes."""
_THROWN_OUT_SOON = "select set_config('idle_in_transaction_session_timeout', '500', true)"
"""A fast step is one statement. Behind a pooler it is a transaction of three requests, with locks that others wait
for. A replica has nothing to do between them: one that is silent for half a second is stopped, or out of reach."""
_BEGIN_AND_ASK = f"{BEGIN}; {OWN_TIMEOUT}; {_THROWN_OUT_SOON}; select {_HISTORY} from pg_control_system()"
_OWN_TIMEOUTS = """
select set_config(name, '0', false) from pg_settings
where name in ('statement_timeout', 'idle_session_timeout', 'transaction_timeout') and setting <> '0'
"""
"""For a session. A line whose session ends because it is idle would make its replica look dead."""


class AnotherServer(psycopg.OperationalError):
    """A pooler leads to another server than the one this connection began with."""


@dataclass(frozen=True, slots=True)
class PostgresServerInfo:
    """What is at the other end."""

    history: str
    """Which history of which database cluster it writes: another one after a failover or a restored backup."""
    started: int
    database: str
    """Which database of which cluster."""
    is_direct: bool
    """No pooler in between. One gives its clients process numbers of its own."""


def checked_by_driver(url: str) -> str:
    """The driver's own words are left out: what it calls a parameter may be a piece of the password."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ConfigurationError(
            f"the store URL ({url.partition('://')[0]}://…) has a parameter after ? that PostgreSQL does not know, "
            f"or is not complete; {QUOTE_IT}"
        ) from None
    return url


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Autocommit. Gives up on an answer that does not come: keepalives do not help against a server that is stopped."""

    patience = PATIENCE
    names: PostgresNames
    server: PostgresServerInfo

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: PQGen[RV]) -> PQGen[RV]:
        deadline = _clock.steady() + self.patience
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and _clock.steady() > deadline:
                    raise psycopg.OperationalError(f"no answer within {self.patience:.1f} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def begin(self) -> None:
        """A transaction, with the server that this connection began with.

        A pooler keeps its clients when its server fails over, and leads their next transaction to the new one. That may
        lack what was acknowledged, and nothing may be decided from it before it has been met.
        """
        if self.server.is_direct:
            self.execute(BEGIN)
            return
        cursor = self.execute(_BEGIN_AND_ASK)
        while cursor.nextset():
            pass
        if cursor.fetchone() != (self.server.history,):
            raise AnotherServer("another server answers behind the pooler: there was a failover")

    def call(self, statement: str, *values: Any) -> Any:
        """A function that is a whole step, in a transaction of its own."""
        if self.server.is_direct:
            return self.one(statement, *values)
        try:
            self.begin()
            row = self.one(statement, *values)
            self.execute("commit")
        finally:
            self.rollback_unfinished()
        return row

    def rollback_unfinished(self) -> None:
        """What was begun and not committed."""
        if self.info.transaction_status in _UNFINISHED:
            self.execute("rollback")

    def all(self, statement: str, *values: Any) -> list[Any]:
        return self._done(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> Any:
        return self._done(statement, values).fetchone()

    def do(self, statement: str, *values: Any) -> int:
        return self._done(statement, values).rowcount

    def _done(self, statement: str, values: Sequence[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.cursor(binary=True).execute(self.names.sql(statement), values or None)


def connect(url: str, names: PostgresNames) -> Connection:
    """To the primary. Refuses what cannot be worked with."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    options: dict[str, Any] = {
        **DEFAULTS,
        **{name: value for name, value in given.items() if value is not None},
    }
    connection = Connection.connect(**options, autocommit=True)
    with closed_on_error(connection):
        connection.names = names
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(Texts, TextsDumper)
        connection.adapters.register_dumper(Bigints, BigintsDumper)
        connection.server = _meet(connection)
        if connection.server.is_direct:
            connection.do(_OWN_TIMEOUTS)
        else:
            connection.prepare_threshold = None  # the next transaction may be with another server process
    return connection


def _meet(connection: Connection) -> PostgresServerInfo:
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        raise ConfigurationError(
            f"this is PostgreSQL {version}; Fencepost needs {OLDEST} or newer: upgrade the server"
        )
    connection.prepare_threshold = None
    pid, standby, started = connection.one(
        "select pg_backend_pid(), pg_is_in_recovery(),"
        " (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint"
    )
    if standby:
        raise StoreUnavailable(
            "this PostgreSQL is a standby and takes no writes; name the primary in the URL, or all hosts with "
            "target_session_attrs=primary"
        )
    history, database = connection.one(
        f"select {_HISTORY},"
        " system_identifier || '/' || (select oid from pg_database where datname = current_database())"
        " from pg_control_system()"
    )
    connection.prepare_threshold = 5
    return PostgresServerInfo(history, started, database, is_direct=pid == connection.info.backend_pid)


_UNFINISHED = (TransactionStatus.INTRANS, TransactionStatus.INERROR)

LEFT = (
    AnotherServer,
    errors.ReadOnlySqlTransaction,
    errors.ObjectNotInPrerequisiteState,
    errors.CannotConnectNow,
)
"""Errors of a server that is not the primary, or not the one that was met: the connection is given up, and the next
one may lead to another."""

REFUSED = ("authentication failed", "pg_hba.conf", "does not exist", "permission denied")
"""Words of a server that will not let us in until a person changes something."""
NO_ROOM = ("too many clients", "too many connections", "connection slots are reserved")

REMEDIES: Mapping[type[psycopg.Error], str] = {
    errors.DiskFull: "free space on the server's disk; nothing is started until then",
    errors.QueryCanceled: "if the role has a short statement_timeout: alter role … set statement_timeout = 0",
    errors.ReadOnlySqlTransaction: "is it a standby, or is default_transaction_read_only set?",
    errors.TooManyConnections: "raise max_connections; each replica needs two",
}
"""Of what passes by itself or when a person has helped."""


def wrapped(error: psycopg.Error, name: str) -> FencepostError:
    """The error as one of ours; `name`: the store in messages, without secrets."""
    text = f"{name}: {error.diag.message_primary or str(error).strip() or type(error).__name__}"
    if isinstance(error, errors.InsufficientPrivilege | errors.FeatureNotSupported):
        hint = error.diag.message_hint
        return ConfigurationError(f"{text}; {hint}" if hint else text)
    if isinstance(error, errors.UndefinedTable | errors.UndefinedFunction | errors.InvalidSchemaName):
        return StoreCorrupt(
            f"{text}; tables of Fencepost are gone: restore them from a backup, or stop all replicas and start anew"
        )
    if isinstance(error, psycopg.OperationalError | errors.ReadOnlySqlTransaction):
        if error.sqlstate is None and any(word in text for word in REFUSED):
            return ConfigurationError(f"{text}; check the URL, the user and what it may do")
        kind = errors.TooManyConnections if any(word in text for word in NO_ROOM) else type(error)
        return StoreUnavailable(f"{text}; {REMEDIES[kind]}" if kind in REMEDIES else text)
    if isinstance(error, psycopg.InternalError | psycopg.InterfaceError):
        return StoreUnavailable(text)
    return StoreCorrupt(f"{text}; this should not happen: please report it")


_clock = SystemClock()  # waiting takes real time, whatever clock the store was given
