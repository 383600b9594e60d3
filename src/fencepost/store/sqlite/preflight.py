"""What can be said of a database before it is opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fencepost.errors import NothingStored, StoreCorrupt, StoreUnavailable
from fencepost.store import forks
from fencepost.store.formats import Contents
from fencepost.store.local import KEPT, refuse_network_file_system, unless_rebooted
from fencepost.store.preflight import Preflight, nothing_there, ok, problem, unless_outdated, warning
from fencepost.store.sql.contents import contents_of
from fencepost.store.sql.meta import meta, namespaces
from fencepost.store.sqlite.schema import FOREIGN_TABLES, SqliteNames, stored_format, tables
from fencepost.store.sqlite.statements import SqliteStatements

MOST_COUNTED = 2**62
"""All of them: counting is quick where the file is at hand."""


def wal_is_sound(version: tuple[int, ...]) -> bool:
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


def preflight(path: Path, namespace: str) -> Preflight:
    refuse_network_file_system(path.parent)
    try:
        with _for_reading(path) as db:
            names = SqliteNames(namespace)
            if (found := stored_format(db, names)) is None:
                return nothing_there(f"sqlite:///{path}", namespace, namespaces(tables(db)))
            (mode,) = db.execute("pragma journal_mode").fetchone()
            is_ours = db.execute(FOREIGN_TABLES).fetchone() is None
            boot = meta(SqliteStatements(db, names), "boot")
    except StoreCorrupt:
        return Preflight(())  # opening it says so, and leaves it as it is
    journal = _journal(mode, is_ours)
    checked = unless_rebooted(boot, Preflight((ok(KEPT), *journal.findings), journal.may_open))
    return unless_outdated(found, checked)


def contents(path: Path, namespace: str) -> Contents:
    names = SqliteNames(namespace)
    with _for_reading(path) as db:
        if (found := stored_format(db, names)) is None:
            raise NothingStored(f"sqlite:///{path}", namespace, namespaces(tables(db)))
        return contents_of(SqliteStatements(db, names), found, MOST_COUNTED)


@contextmanager
def _for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        where = f"{path.resolve().as_uri()}?mode=ro"
        with forks.put_off, closing(sqlite3.connect(where, uri=True, timeout=1)) as db:
            yield db
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(f"{path}: {error}") from error


def _journal(mode: str, is_ours: bool) -> Preflight:
    """A replica that starts here chooses the mode of a database that is ours alone. Then opening it is writing."""
    version, sound = sqlite3.sqlite_version, wal_is_sound(sqlite3.sqlite_version_info)
    uses_wal = mode == "wal"
    if uses_wal and not sound:
        what = f"the journal is WAL, and SQLite {version} here may corrupt it when several processes write"
        remedy = "use SQLite 3.51.3 or newer, " + (
            "or stop all replicas: the next one to start here leaves WAL"
            if is_ours
            else "or set journal_mode to delete: other tables are in there, so that is not ours to do"
        )
        return Preflight((problem(what, remedy),), may_open=not is_ours)
    if sound and not uses_wal and is_ours:
        what = f"the journal is {mode}: with SQLite {version} a replica that starts here changes it to WAL"
        remedy = "look from an environment as the replicas have it, with their version of SQLite"
        return Preflight((warning(what, remedy),), may_open=False)
    why = "sound in this version" if uses_wal else "safe, whatever the version; WAL is faster from 3.51.3 on"
    return Preflight((ok(f"SQLite {version}, journal {mode}: {why}"),))
