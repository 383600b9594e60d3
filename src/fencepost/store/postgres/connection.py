"""A connection of our own: what is at its other end, how long to wait for it, and errors in our words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError, FencepostError, StoreCorrupt, StoreUnavailable
from fencepost.settings import QUOTE_IT
from fencepost.store.postgres.arrays import Bigints, BigintsDumper, Texts, TextsDumper
from fencepost.store.postgres.names import Names

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


@dataclass(frozen=True, slots=True)
class Server:
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
    names: Names
    server: Server

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

    def all(self, statement: str, *values: Any) -> list[Any]:
        return self._done(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> Any:
        return self._done(statement, values).fetchone()

    def do(self, statement: str, *values: Any) -> int:
        return self._done(statement, values).rowcount

    def _done(self, statement: str, values: Sequence[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.cursor(binary=True).execute(self.names.sql(statement), values or None)


def connect(url: str, names: Names) -> Connection:
    """To the primary. Refuses what cannot be worked with."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    options: dict[str, Any] = {
        **DEFAULTS,
        **{name: value for name, value in given.items() if value is not None},
    }
    connection = Connection.connect(**options, autocommit=True)
    try:
        connection.names = names
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.adapters.register_dumper(Texts, TextsDumper)
        connection.adapters.register_dumper(Bigints, BigintsDumper)
        connection.server = _meet(connection)
        if not connection.server.is_direct:
            connection.prepare_threshold = None  # the next transaction may be with another server process
    except BaseException:
        connection.close()
        raise
    return connection


def _meet(connection: Connection) -> Server:
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
        "select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8),"
        " system_identifier || '/' || (select oid from pg_database where datname = current_database())"
        " from pg_control_system()"
    )
    connection.prepare_threshold = 5
    return Server(history, started, database, is_direct=pid == connection.info.backend_pid)


REFUSED = ("authentication failed", "pg_hba.conf", "does not exist", "permission denied")
"""Words of a server that will not let us in until somebody changes something."""


def told(error: psycopg.Error, name: str) -> FencepostError:
    """The error as one of ours; `name`: the store in messages, without secrets."""
    text = f"{name}: {error.diag.message_primary or str(error).strip() or type(error).__name__}"
    if isinstance(error, errors.InsufficientPrivilege | errors.FeatureNotSupported):
        hint = error.diag.message_hint
        return ConfigurationError(f"{text}; {hint}" if hint else text)
    if isinstance(error, errors.UndefinedTable | errors.UndefinedFunction | errors.InvalidSchemaName):
        return StoreCorrupt(
            f"{text}; tables of Fencepost are gone: restore them from a backup, or stop all replicas and start anew"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(f"{text}; is it a standby, or is default_transaction_read_only set?")
    if isinstance(error, psycopg.OperationalError):
        if error.sqlstate is None and any(word in text for word in REFUSED):
            return ConfigurationError(f"{text}; check the URL, the user and what it may do")
        return StoreUnavailable(text)
    if isinstance(error, psycopg.InternalError | psycopg.InterfaceError):
        return StoreUnavailable(text)
    return StoreCorrupt(f"{text}; this should not happen: please report it")


_clock = SystemClock()  # waiting takes real time, whatever clock the store was given
