"""The tables and functions of a namespace, their version, and how they are made or brought up to date."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from psycopg import errors

from fencepost.errors import ConfigurationError
from fencepost.store.formats import UPGRADE, Format, format_of
from fencepost.store.postgres.connection import OWN_TIMEOUT, Connection
from fencepost.store.postgres.names import DEFAULT_SCHEMA

VERSION = 4
SCRIPTS = (
    "tables",
    "priority",
    "later",
    "outcomes",
    "enter",
    "listen",
    "close",
    "close_row",
    "claim",
    "settle",
    "plan",
    "beat",
    "prune",
    "entries",
    "jobs_by_pool",
    "turns",
    "ahead",
)

UPGRADES = {1: ("outcomes", "upgrade_1", "settle", "close_row"), 2: ("later",), 3: ("priority", "claim")}
"""By the version that is found: what brings it to the next. Functions that replicas of that version call stay."""
IN_WORDS = {
    1: "add the table of each job's last run, filled from the ledger, and the functions that write it",
    2: "add the table of fires that were asked for later, and the function that claims them",
    3: "add the priority of jobs, and the function that claims what is due in its order",
}
"""The same for people."""
ADDED = {"entries": ("entries",), "jobs_by_pool": ("jobs_by_pool", "turns", "ahead", "plan")}
"""By the table or index that is missing: what adds it. Without a new version, as older replicas do not mind."""
ADDED_IN_WORDS = {
    "entries": "add the table of notification rules and the outbox",
    "jobs_by_pool": "add the indexes of what is due by pool and by task, and the functions that use them",
}
"""The same for people."""

# Constant, because the schema whose name the other locks are made from is not there yet.
_ALONE = "select pg_advisory_xact_lock(1718972275, 0)"

_NO_STEPS = "select pg_advisory_xact_lock({lock})"
"""No step is in progress while tables, indexes and functions change under it."""

_EXISTS = """
select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s
union all
select 1 from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = %s and p.proname = %s
"""

MOST_NAMESPACES = 1000

_SCHEMAS = """
select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'meta' and c.relkind = 'r' and (n.nspname = %s or starts_with(n.nspname, 'fencepost_')) limit %s
"""


def prepare(connection: Connection, place: str, converts: bool) -> None:
    """Create what is missing, or check that this version can work with what is there, and convert it if it may.
    Replicas that start together wait for each other."""
    found = stored_format(connection)
    if found is not None and found.is_current:
        return
    with connection.transaction():
        connection.do(OWN_TIMEOUT)
        connection.do(_ALONE)
        found = stored_format(connection)
        if found is None:
            _create(connection)
            return
        found.check(place, converts)
        if found.is_current:
            return
        try:
            connection.do(_NO_STEPS)
            for number in range(found.stored, VERSION):
                _run(connection, UPGRADES[number])
                set_meta(connection, "schema", str(number + 1))
            for name, scripts in ADDED.items():
                if not _has(connection, name):
                    _run(connection, scripts)
        except errors.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"{place} has format {found.stored}, and this user may not convert it ({str(error).strip()}); let the "
                f"role that owns the schema call {UPGRADE}"
            ) from error


def stored_format(connection: Connection) -> Format | None:
    """None: there is nothing of ours yet."""
    found = version(connection)
    if found is None:
        return None
    missing = [words for name, words in ADDED_IN_WORDS.items() if not _has(connection, name)]
    return format_of(found, VERSION, IN_WORDS, missing)


def namespaces(connection: Connection) -> list[str]:
    """Those that exist in this database."""
    found = connection.all(_SCHEMAS, DEFAULT_SCHEMA, MOST_NAMESPACES)
    return sorted(name.removeprefix(DEFAULT_SCHEMA).removeprefix("_") or "default" for (name,) in found)


def version(connection: Connection) -> int | None:
    """None: there is nothing of ours yet."""
    # A look at the catalog's rows. `to_regclass` would answer from a cache that does not notice what another has made
    # while this one waited for the lock.
    if not _has(connection, "meta"):
        return None
    return int(meta(connection, "schema") or 0)


def _has(connection: Connection, name: str) -> bool:
    """A table, an index or a function."""
    what = connection.names.schema, name
    return connection.one(_EXISTS, *what, *what) is not None


def meta(connection: Connection, name: str) -> str | None:
    row = connection.one("select value from {schema}.meta where name = %s", name)
    return row[0] if row else None


def set_meta(connection: Connection, name: str, value: str) -> None:
    connection.do(
        "insert into {schema}.meta values (%s, %s) on conflict (name) do update set value = excluded.value",
        name,
        value,
    )


def script(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text()


def _run(connection: Connection, scripts: Sequence[str]) -> None:
    for name in scripts:
        connection.execute(connection.names.sql(script(name)))


def _create(connection: Connection) -> None:
    names = connection.names
    if not connection.one("select 1 from pg_namespace where nspname = %s", names.schema):
        try:
            connection.do("create schema {schema}")
        except errors.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"this user may not create a schema ({str(error).strip()}); let an administrator do it once: "
                f'create schema "{names.schema}" authorization {connection.info.user}'
            ) from error
    _run(connection, SCRIPTS)
    set_meta(connection, "schema", str(VERSION))
    set_meta(connection, "history", connection.server.history)
