"""The store itself: connections, transactions, time, and what SQLite asks one to be careful about."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import NothingStored, StoreCorrupt, StoreUnavailable, StoreUnusable
from fencepost.store import forks
from fencepost.store.backend import Backend
from fencepost.store.base import Home
from fencepost.store.formats import Contents
from fencepost.store.local import (
    EVIDENCE_EVERY,
    EVIDENCE_EVERY_WATCHED,
    Hint,
    LocalBeacons,
    LocalProof,
    boot_id,
    check_writable,
    checked_namespace,
    create_privately,
    refuse_network_file_system,
)
from fencepost.store.mirror import T
from fencepost.store.preflight import Preflight
from fencepost.store.reader import RowReader
from fencepost.store.rules import presence
from fencepost.store.sql.counting import SqlCounting
from fencepost.store.sql.meta import meta, namespaces, set_meta
from fencepost.store.sql.save import SqlSave
from fencepost.store.sql.store import ABOUT_REPLICAS, SqlStore
from fencepost.store.sqlite.counting import SqliteCounting
from fencepost.store.sqlite.fast import SqliteFastPath
from fencepost.store.sqlite.find import SqliteFind
from fencepost.store.sqlite.load import SqliteLoad
from fencepost.store.sqlite.preflight import contents, preflight, wal_is_sound
from fencepost.store.sqlite.schema import FOREIGN_TABLES, SqliteNames, prepare, tables
from fencepost.store.sqlite.statements import SqliteStatements
from fencepost.store.sqlite.values import PLACES_FOR_COPIES
from fencepost.store.texts import KnownJobs
from fencepost.store.threads import QueuedStep, StepQueue, WorkerThread
from fencepost.store.turn import PATIENCE, Turn
from fencepost.store.unit_of_work import UnitOfWork

log = logging.getLogger("fencepost")

READERS_CACHE = 16_000
"""Kilobytes: readers go far back, and SQLite's own 2 MB hold little of a large ledger."""


class SqliteStore(SqlStore):
    """Replicas on one machine share a database file.

    Leases are measured on `CLOCK_BOOTTIME`, which no clock step touches and all processes of one kernel share;
    what is due is judged by the host's wall clock. A replica's death is proven by its beacon.
    """

    remembers_empty_claims = False
    may_lose_writes = False

    def __init__(self, path: str | Path, namespace: str = "default", clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._namespace = checked_namespace(namespace)
        self._names = SqliteNames(namespace)
        self._clock = clock or SystemClock()
        self.home = Home("sqlite", str(self.path.absolute()), self._names["fires"])
        self._folder = self.path.with_name(self.path.name + "-fencepost")
        self._beacons = LocalBeacons(self._folder / namespace)
        self._hint = Hint(self._folder / f"{namespace}.hint", self._folder / namespace)
        self._thread = WorkerThread()
        self._proof = LocalProof(self._beacons, self._thread)
        self._queue = StepQueue(self._thread, self._serve)
        # Not in the folder, where a namespace could have its name, and which a person may remove.
        self._turn = Turn(self.path.with_name(self.path.name + "-fencepost.turn"))
        self._busy = threading.Lock()
        """Held during a transaction. SQLite keeps its locks' state in memory: a child forked in the middle of one would
        inherit the belief that the database is locked, and never find it free."""
        self._known_jobs: KnownJobs | None = None
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._chance = random.Random()
        forks.follow(self)
        forks.hold(self._busy)

    def for_reading(self) -> SqliteStore:
        store = SqliteStore(self.path, self._namespace, self._clock)
        store._known_jobs = KnownJobs()
        # Those who only read gain nothing by sharing a transaction, and would hold its lock for longer.
        store._queue.most = 1
        return store

    async def preflight(self, name: str) -> Preflight:
        return await asyncio.to_thread(preflight, self.path, self._namespace)

    async def contents(self) -> Contents:
        return await asyncio.to_thread(contents, self.path, self._namespace)

    async def open(self) -> None:
        await self._thread.run(self._open_safely)

    async def close(self) -> None:
        await self._thread.run(self._close)
        self._thread.end()
        self._hint.close()

    @property
    def descriptors(self) -> Sequence[int]:  # type: ignore[override]
        return self._beacons.descriptors

    @property
    def evidence_every(self) -> float:  # type: ignore[override]
        return EVIDENCE_EVERY_WATCHED if self._hint.is_watched else EVIDENCE_EVERY

    async def wait(self, seconds: float) -> bool:
        return await self._hint.wait(seconds)

    # --- transactions ---------------------------------------------------------------------------------

    def _serve(self, steps: list[QueuedStep]) -> list[Any]:
        """In one transaction. None is left open across an await."""
        with self._busy:
            db = self._connection()
            if not any(step.writes for step in steps):
                return self._in_transaction(db, steps)
            with self._turn.taken():
                steps += self._queue.gathered(self._queue.most - len(steps))
                return self._in_transaction(db, steps)

    def _in_transaction(self, db: sqlite3.Connection, steps: Sequence[QueuedStep]) -> list[Any]:
        writes = any(step.writes for step in steps)
        try:
            self._patiently(db, "begin immediate" if writes else "begin")
            try:
                if not writes:
                    # A plain begin takes no lock: the first look does, and may meet a writer.
                    self._patiently(db, "select 1 from sqlite_master limit 1")
                with_targets = any(step.take in ABOUT_REPLICAS for step in steps)
                rows = self._rows(db, with_targets, None if writes else self._known_jobs)
                # The time is read under the lock: steps follow each other in the order of their moments.
                replies = [self._reply(rows, step) for step in steps]
                if writes:
                    rows.save()
                if db.in_transaction:  # those who read are through with it when they have what they want
                    self._patiently(db, "commit")
            except BaseException:
                if db.in_transaction:
                    db.execute("rollback")
                raise
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreCorrupt(f"{self.path}: {error}; restore it from a backup, or move it away") from error
        if rows.notify:
            self._hint.give()
        return replies

    def _reply(self, rows: UnitOfWork, step: QueuedStep) -> Any:
        rows.at = moment_of(self._clock)
        return step.take(rows, rows.at, *step.args, **step.kwargs)

    def _rows(
        self, db: sqlite3.Connection, with_targets: bool = True, known_jobs: KnownJobs | None = None
    ) -> UnitOfWork:
        sql, reader = (
            SqliteStatements(db, self._names, copies=known_jobs is not None),
            RowReader(self.unreadable),
        )
        load = SqliteLoad(sql, reader, with_targets, known_jobs)
        find, save, fast = (
            SqliteFind(sql, reader, load),
            SqlSave(sql, reader),
            SqliteFastPath(sql, reader, load),
        )
        return UnitOfWork(
            Backend(reader, load, find, save, fast, remembers_empty_claims=False, may_lose_writes=False)
        )

    def _patiently(self, db: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
        """Our own writers come one by one; readers and other programs may be in the way. SQLite's own busy handler
        lets some starve; short waits of random length do not."""
        deadline = _patience.steady() + PATIENCE
        while True:
            try:
                return db.execute(statement)
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or _patience.steady() > deadline:
                    raise
                time.sleep(self._chance.uniform(0.0005, 0.004))

    def _counted(self, count: Callable[[SqlCounting], T]) -> T:
        try:
            with self._busy:
                return count(SqliteCounting(SqliteStatements(self._connection(), self._names)))
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error

    # --- connections ----------------------------------------------------------------------------------

    def _connection(self) -> sqlite3.Connection:
        if self._db is None or self._pid != os.getpid():
            self._open()
        assert self._db is not None
        return self._db

    def _open_safely(self) -> None:
        with self._busy:
            self._open()

    def _open(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            return
        self._check_path()
        refuse_network_file_system(self.path.parent)
        try:
            db = self._connect()
            try:
                self._set_up(db)
            except BaseException:
                db.close()
                raise
        except sqlite3.OperationalError as error:
            kind = StoreUnusable if _cannot_be_written(error) else StoreUnavailable
            raise kind(f"{self.path}: {error}") from error
        except OSError as error:
            raise StoreUnusable(f"cannot write {error.filename or self.path}: {error.strerror}") from error
        except sqlite3.DatabaseError as error:
            raise StoreCorrupt(
                f"{self.path} is not a database SQLite can read ({error}); it was left as it is: restore it from "
                "a backup, or move it away and a new one is made"
            ) from error
        self._db, self._pid = db, os.getpid()

    def _check_path(self) -> None:
        if self.path.is_dir():
            raise StoreUnusable(
                f"{self.path} is a folder; name a database in it, such as sqlite:///{self.path / 'fencepost.db'}"
            )
        if self.creates:
            check_writable(self.path, self._folder, self._folder / self._namespace, self._turn.path)

    def _connect(self) -> sqlite3.Connection:
        """SQLite creates a missing file unless a URI says otherwise."""
        if self.creates:
            create_privately(self.path)
        where = self.path if self.creates else f"{self.path.resolve().as_uri()}?mode=rw"
        return sqlite3.connect(
            where, timeout=0, isolation_level=None, check_same_thread=False, uri=not self.creates
        )

    def _set_up(self, db: sqlite3.Connection) -> None:
        if not self.creates:
            self._refuse_to_create(db)
        self._patiently(db, "pragma synchronous = full")
        self._choose_journal(db)
        if self.creates:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        self._patiently(db, "begin immediate")
        try:
            prepare(db, self._names, str(self.path), converts=self.creates)
            self._notice_reboot(db)
            self._patiently(db, "commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        if self._known_jobs is not None:
            db.execute(f"pragma busy_timeout = {PATIENCE * 1000:.0f}")
            db.execute(f"pragma cache_size = -{READERS_CACHE}")
            for statement in PLACES_FOR_COPIES:
                db.execute(self._names.sql(statement))

    def _refuse_to_create(self, db: sqlite3.Connection) -> None:
        self._patiently(db, "begin")
        self._patiently(db, "select 1 from sqlite_master limit 1")  # takes the lock that begin does not
        found = namespaces(tables(db))
        self._patiently(db, "commit")
        if self._namespace not in found:
            raise NothingStored(f"sqlite:///{self.path}", self._namespace, found)

    def _choose_journal(self, db: sqlite3.Connection) -> None:
        """WAL where it is sound. Up to 3.51.2 several processes that write and checkpoint can corrupt it; then
        the rollback journal is used. The mode of a database that others use as well is theirs to choose."""
        if self._patiently(db, FOREIGN_TABLES).fetchone() is not None:
            return
        mode = "wal" if wal_is_sound(sqlite3.sqlite_version_info) else "persist"
        self._patiently(db, f"pragma journal_mode = {mode}")

    def _notice_reboot(self, db: sqlite3.Connection) -> None:
        """Leases are counted from the machine's start: after a new one they mean nothing, and all are dead."""
        boot, known = boot_id(), meta(SqliteStatements(db, self._names), "boot")
        if boot is None or boot == known:
            return
        if known is not None:
            rows = self._rows(db)
            rows.at = moment_of(self._clock)
            presence.reboot(rows, rows.at)
            rows.save()
        set_meta(SqliteStatements(db, self._names), "boot", boot)

    def after_fork(self) -> None:
        """In a forked child. The connection is the parent's: closing it here could undo what the parent does
        there, so it is kept and never touched again."""
        if self._db is not None:
            _parents.append(self._db)
        self._db = None
        self._turn.let_go_after_fork()
        self._queue.clear()

    def _close(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            self._db.close()
        self._db = None
        self._turn.let_go()
        self._beacons.release_all()


def _cannot_be_written(error: sqlite3.OperationalError) -> bool:
    """Not a passing trouble, as a database that is locked is."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


_parents: list[sqlite3.Connection] = []

_patience = SystemClock()  # waiting for a lock takes real time, whatever clock the store was given


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
