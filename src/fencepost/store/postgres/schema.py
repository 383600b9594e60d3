"""The tables and functions of a namespace, their version, and how they are made or brought up to date."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from psycopg import errors

from fencepost.errors import ConfigurationError
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.names import DEFAULT_SCHEMA

VERSION = 2
SCRIPTS = (
    "tables",
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
)

UPGRADES = {1: ("outcomes", "upgrade_1", "claim", "settle", "close_row")}
"""By the version that is found: what brings it to the next. Functions that replicas of that version call stay."""

# Constant, because the schema whose name the other locks are made from is not there yet.
_ALONE = "select pg_advisory_xact_lock(1718972275, 0)"

_EXISTS = """
select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = 'meta'
"""

MOST_NAMESPACES = 1000

_SCHEMAS = """
select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = 'meta' and c.relkind = 'r' and (n.nspname = %s or starts_with(n.nspname, 'fencepost_')) limit %s
"""


def prepare(connection: Connection) -> None:
    """Create what is missing, or check that this version can work with what is there. Replicas that start together
    wait for each other."""
    if version(connection) == VERSION:
        return
    with connection.transaction():
        connection.do(_ALONE)
        found = version(connection)
        if found is None:
            _create(connection)
        elif found > VERSION:
            raise ConfigurationError(
                f"this database has schema {found}, newer than the {VERSION} this version of Fencepost knows; "
                "upgrade Fencepost on this replica"
            )
        else:
            for number in range(found, VERSION):
                _run(connection, UPGRADES[number])
                set_meta(connection, "schema", str(number + 1))


def namespaces(connection: Connection) -> list[str]:
    """Those that exist in this database."""
    found = connection.all(_SCHEMAS, DEFAULT_SCHEMA, MOST_NAMESPACES)
    return sorted(name.removeprefix(DEFAULT_SCHEMA).removeprefix("_") or "default" for (name,) in found)


def version(connection: Connection) -> int | None:
    """None: there is nothing of ours yet."""
    # A look at the catalog's rows. `to_regclass` would answer from a cache that does not notice what another has made
    # while this one waited for the lock.
    if connection.one(_EXISTS, connection.names.schema) is None:
        return None
    return int(meta(connection, "schema") or 0)


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
