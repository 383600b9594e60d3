"""The connection to the database file: how it is opened, what SQLite asks one to be careful about, and what a fork or a
busy writer does to it."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from fencepost.clock import SystemClock
from fencepost.errors import NothingStored, StoreCorrupt, StoreUnavailable, StoreUnusable
from fencepost.store.closing import closed_on_error
from fencepost.store.local import check_writable, create_privately, refuse_network_file_system
from fencepost.store.sql.meta import namespaces
from fencepost.store.sqlite.preflight import wal_is_sound
from fencepost.store.sqlite.schema import FOREIGN_TABLES, tables
from fencepost.store.turn import PATIENCE


class SqliteConnection:
    def __init__(
        self,
        path: Path,
        namespace: str,
        folder: Path,
        turn: Path,
        set_up: Callable[[sqlite3.Connection], None],
    ) -> None:
        """`folder`, `turn`: what lies beside the database. `set_up`: what a new connection is used for first."""
        self._path = path
        self._namespace = namespace
        self._folder = folder
        self._turn = turn
        self._set_up = set_up
        self.db: sqlite3.Connection | None = None
        self._pid = 0

    def opened(self, creates: bool) -> sqlite3.Connection:
        """`creates`: the database, and what lies beside it, if it does not exist."""
        if self.db is None or self._pid != os.getpid():
            self.db, self._pid = self._open(creates), os.getpid()
        return self.db

    def close(self) -> None:
        if self.db is not None and self._pid == os.getpid():
            self.db.close()
        self.db = None

    def leave_to_parent(self) -> None:
        """In a forked child. The connection is the parent's: closing it here could undo what the parent does
        there, so it is kept and never touched again."""
        if self.db is not None:
            _parents.append(self.db)
        self.db = None

    def _open(self, creates: bool) -> sqlite3.Connection:
        self._check_path(creates)
        refuse_network_file_system(self._path.parent)
        try:
            db = self._connect(creates)
            with closed_on_error(db):
                self._make_ready(db, creates)
        except sqlite3.OperationalError as error:
            kind = StoreUnusable if _cannot_be_written(error) else StoreUnavailable
            raise kind(f"{self._path}: {error}") from error
        except OSError as error:
            raise StoreUnusable(f"cannot write {error.filename or self._path}: {error.strerror}") from error
        except sqlite3.DatabaseError as error:
            raise StoreCorrupt(
                f"{self._path} is not a database SQLite can read ({error}); it was left as it is: restore it from "
                "a backup, or move it away and a new one is made"
            ) from error
        return db

    def _check_path(self, creates: bool) -> None:
        if self._path.is_dir():
            raise StoreUnusable(
                f"{self._path} is a folder; name a database in it, such as sqlite:///{self._path / 'fencepost.db'}"
            )
        if creates:
            check_writable(self._path, self._folder, self._folder / self._namespace, self._turn)

    def _connect(self, creates: bool) -> sqlite3.Connection:
        """SQLite creates a missing file unless a URI says otherwise."""
        if creates:
            create_privately(self._path)
        where = self._path if creates else f"{self._path.resolve().as_uri()}?mode=rw"
        return sqlite3.connect(
            where, timeout=0, isolation_level=None, check_same_thread=False, uri=not creates
        )

    def _make_ready(self, db: sqlite3.Connection, creates: bool) -> None:
        if not creates:
            self._refuse_to_create(db)
        patiently(db, "pragma synchronous = full")
        _choose_journal(db)
        if creates:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        self._set_up(db)

    def _refuse_to_create(self, db: sqlite3.Connection) -> None:
        patiently(db, "begin")
        patiently(db, "select 1 from sqlite_master limit 1")  # takes the lock that begin does not
        found = namespaces(tables(db))
        patiently(db, "commit")
        if self._namespace not in found:
            raise NothingStored(f"sqlite:///{self._path}", self._namespace, found)


def patiently(db: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    """Our own writers come one by one; readers and other programs may be in the way. SQLite's own busy handler
    lets some starve; short waits of random length do not."""
    deadline = _patience.steady() + PATIENCE
    while True:
        try:
            return db.execute(statement)
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or _patience.steady() > deadline:
                raise
            time.sleep(_chance.uniform(0.0005, 0.004))


def _choose_journal(db: sqlite3.Connection) -> None:
    """WAL where it is sound. Up to 3.51.2 several processes that write and checkpoint can corrupt it; then
    the rollback journal is used. The mode of a database that others use as well is theirs to choose."""
    if patiently(db, FOREIGN_TABLES).fetchone() is not None:
        return
    mode = "wal" if wal_is_sound(sqlite3.sqlite_version_info) else "persist"
    patiently(db, f"pragma journal_mode = {mode}")


def _cannot_be_written(error: sqlite3.OperationalError) -> bool:
    """Not a passing trouble, as a database that is locked is."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


_parents: list[sqlite3.Connection] = []

_patience = SystemClock()  # waiting for a lock takes real time, whatever clock the store was given
_chance = random.Random()
