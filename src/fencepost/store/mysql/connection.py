"""Connections of our own: what is at the other end, how long to wait for it, and errors in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from fencepost.errors import ConfigurationError, FencepostError, StoreCorrupt, StoreUnavailable
from fencepost.model import checked_id
from fencepost.settings import redacted
from fencepost.store.closing import closed_on_error
from fencepost.store.mirror import T
from fencepost.store.mysql.address import options_of
from fencepost.store.sql.gathered import GatheredStatements, Result
from fencepost.store.sql.meta import prefix_of
from fencepost.store.sql.statements import into
from fencepost.store.threads import ReplyLost, Undone, WorkerThread

CONNECT_TIMEOUT = 3
PATIENCE = 6
"""Seconds to wait for an answer, unless a TTL is so short that this would be too long."""
OLDEST = {"MySQL": (8, 0), "MariaDB": (10, 6)}
SESSION = """
set session transaction isolation level read committed;
set session time_zone = '+00:00', innodb_lock_wait_timeout = {0}, lock_wait_timeout = {0},
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
"""
STEP = "left(concat('{step}.', database()), 64)"
"""The name of a lock that a session holds within a step that writes, beside that of the row: it shows who does."""
AT_REST = "set session wait_timeout = 86400"
"""Between two steps a session may be idle."""
MEET = "select version(), @@read_only, database(), @@innodb_flush_log_at_trx_commit, @@hostname, @@port, @@datadir"
# When it started. Both numbers are from one reading of its clock, so the difference is always the same.
STARTED = "select unix_timestamp() - variable_value from {}.global_status where variable_name = 'uptime'"
READ_ONLY = (1290, 1836, 1792)
"""It was the primary, or never was."""
REFUSED = (1044, 1045, 1049, 1142, 1143, 1227, 1665, 1698, 2061)
"""Until a person changes something."""
GONE = (1146, 1054)
PASSING = (pymysql.err.OperationalError, pymysql.err.InterfaceError, pymysql.err.InternalError)
"""Lost, locked, full, stopping."""
DEADLOCK = 1213
LONGEST = 38
"""Letters of a namespace: with ours around them a name must have no more than 64."""


class MysqlNames:
    def __init__(self, namespace: str) -> None:
        if len(checked_id(namespace, "namespace")) > LONGEST:
            raise ConfigurationError(
                f"namespace {namespace[:20]!r}… is too long for MySQL; use at most {LONGEST} characters"
            )
        self.namespace = namespace
        self.prefix = prefix_of(namespace)
        self._statements: dict[str, str] = {}

    def sql(self, statement: str) -> str:
        """With the names of tables for `{fires}`, and the driver's mark for `?`."""
        if statement not in self._statements:
            text = re.sub(r"\{(\w+)\}", self._table, statement)
            self._statements[statement] = text.replace("%", "%%").replace("?", "%s")
        return self._statements[statement]

    def _table(self, found: re.Match[str]) -> str:
        """No underscore: a namespace might end there."""
        return f"`{self.prefix}{found[1].replace('_', '')}`"


class MysqlConnection(GatheredStatements):
    def __init__(self, url: str, names: MysqlNames, patience: int = PATIENCE) -> None:
        """To the primary. Refuses what cannot be worked with."""
        self.names = names
        self.patience = patience
        self.hold = max(1, patience // 2)
        """Seconds after which the server ends a session that is silent within a step."""
        # Who waits for the lock outlasts a holder that is thrown out; and it is the server that says so.
        lock_wait = max(self.hold + 1, patience - 1)
        self.raw = pymysql.connect(
            **options_of(url),
            charset="utf8mb4",
            collation="utf8mb4_bin",
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=lock_wait + 1,
            write_timeout=lock_wait + 1,
            program_name="fencepost",
            client_flag=CLIENT.MULTI_STATEMENTS,
        )
        super().__init__(names.sql, self.raw.escape)
        with closed_on_error(self.raw):
            self._meet(SESSION.format(lock_wait))

    def _meet(self, session: str) -> None:
        flavour = "MariaDB" if "mariadb" in self.raw.get_server_info().lower() else "MySQL"
        schema = "information_schema" if flavour == "MariaDB" else "performance_schema"
        *_, met, started = self.request(f"{session}; {MEET}; {STARTED.format(schema)}")
        version, read_only, self.database, flush, *place = met.rows[0]
        number = version.split("-")[0]
        self.version = f"{flavour} {number}"
        if tuple(int(part) for part in number.split(".")[:2]) < OLDEST[flavour]:
            needed = ".".join(map(str, OLDEST[flavour]))
            raise ConfigurationError(f"this is {self.version}; Fencepost needs {needed} or newer: upgrade it")
        if str(read_only) not in ("0", "OFF"):
            raise StoreUnavailable("this server is read-only: is it a replica? Name the primary in the URL")
        self.started = int(started.rows[0][0])
        self.is_durable = flush == 1
        # Where a crash may cost the last second, each start of the server begins another history.
        self.history = "/".join(map(str, place if self.is_durable else (*place, self.started)))

    def request(self, text: str) -> list[Result]:
        with self.raw.cursor() as cursor:
            cursor.execute(text)
            results = [Result(cursor.fetchall(), cursor.rowcount)]
            while cursor.nextset():
                results.append(Result(cursor.fetchall(), cursor.rowcount))
        return results

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        self.many(upsert(table, tuple(columns), tuple(columns[1:])), rows)

    change = put
    """Columns that are left out need no value, so this inserts nothing where a row exists."""

    def add_missing(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        self.many(upsert(table, tuple(columns), tuple(columns[:1])), rows)

    def close(self, forked: bool = False) -> None:
        """`forked`: in a child, without a word to the server. The session is the parent's."""
        if forked:
            self.raw._force_close()
        elif self.raw.open:
            self.raw.close()


class Session:
    def __init__(self, url: str, namespace: str, set_up: Callable[[MysqlConnection], None]) -> None:
        """`set_up`: what a new connection needs."""
        self.name = redacted(url)
        self.url = url
        self.names = MysqlNames(namespace)
        self.patience = PATIENCE
        self.thread = WorkerThread()
        self.db: MysqlConnection | None = None
        self._set_up = set_up

    def ask(self, work: Callable[[MysqlConnection], T]) -> T:
        """On the thread. A connection that had an error is not used again."""
        try:
            return work(self._connection())
        except pymysql.err.Error as error:
            before = self.db
            self.hang_up()
            ours = wrapped(error, self.name)
            ended = error.args[:1] in ((2006,), (2013,)) and not isinstance(error.__context__, TimeoutError)
            if before and ended and self.ask(lambda db: db.started) == before.started:
                ours = ReplyLost(str(ours))
            raise ours from error

    def _connection(self) -> MysqlConnection:
        if self.db is not None and self.db.patience != self.patience:
            self.hang_up()
        if self.db is None:
            db = MysqlConnection(self.url, self.names, self.patience)
            with closed_on_error(db):
                self._set_up(db)
            self.db = db
        return self.db

    def hang_up(self, forked: bool = False) -> None:
        """`forked`: in a child, where the session is the parent's."""
        if self.db is not None:
            self.db.close(forked)
        self.db = None

    async def close(self) -> None:
        await self.thread.run(self.hang_up)
        self.thread.end()


@cache
def upsert(table: str, columns: tuple[str, ...], changing: tuple[str, ...]) -> str:
    """Insert rows, or change these columns of those that exist: an update of many rows in one statement."""
    changes = ", ".join(f"`{name}` = values(`{name}`)" for name in changing)
    return f"insert {into(table, columns)} on duplicate key update {changes}"


def wrapped(error: pymysql.err.Error, name: str) -> FencepostError:
    """The error as one of ours; `name`: the store in messages, without secrets."""
    code, words = (*error.args, "", "")[:2]
    text = f"{name}: {words or code or type(error).__name__}"
    if code == DEADLOCK:
        return Undone(text)
    if code in READ_ONLY:
        return StoreUnavailable(f"{text}; has another server become the primary?")
    if code in REFUSED:
        return ConfigurationError(f"{text}; check the URL, the user and what it may do")
    if code in GONE:
        remedy = "restore them from a backup, or stop all replicas and start anew"
        return StoreCorrupt(f"{text}; tables of Fencepost are gone: {remedy}")
    if isinstance(error, PASSING):
        return StoreUnavailable(text)
    return StoreCorrupt(f"{text}; this should not happen: please report it")
