"""The store itself: transactions and their time, hints and evidence."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import StoreCorrupt, StoreUnavailable
from fencepost.store import forks, mirror
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
    checked_namespace,
)
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.preflight import Preflight
from fencepost.store.reader import RowReader
from fencepost.store.rules import presence
from fencepost.store.sql.counting import SqlCounting, SqlCounts
from fencepost.store.sql.meta import meta, set_meta
from fencepost.store.sql.operations import ABOUT_REPLICAS
from fencepost.store.sql.save import SqlSave
from fencepost.store.sqlite.connection import SqliteConnection, patiently
from fencepost.store.sqlite.counting import SqliteCounting
from fencepost.store.sqlite.fast import SqliteFastPath
from fencepost.store.sqlite.find import SqliteFind
from fencepost.store.sqlite.load import SqliteLoad
from fencepost.store.sqlite.preflight import contents, preflight
from fencepost.store.sqlite.schema import SqliteNames, prepare
from fencepost.store.sqlite.statements import SqliteStatements
from fencepost.store.sqlite.values import PLACES_FOR_COPIES
from fencepost.store.texts import KnownJobs
from fencepost.store.threads import QueuedStep, StepQueue, WorkerThread
from fencepost.store.turn import PATIENCE, Turn
from fencepost.store.unit_of_work import UnitOfWork

READERS_CACHE = 16_000
"""Kilobytes: readers go far back, and SQLite's own 2 MB hold little of a large ledger."""


class SqliteStore(Mirror):
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
        self._known_jobs: KnownJobs | None = None
        self.counting = SqlCounts(self._thread, self._counted)
        self._connection = SqliteConnection(self.path, namespace, self._folder, self._turn.path, self._set_up)
        forks.follow(self)

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
        await self._thread.run(self._open)

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

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=True))
        return reply

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=False))
        return reply

    def _serve(self, steps: list[QueuedStep]) -> list[Any]:
        """In one transaction. None is left open across an await."""
        with forks.put_off:
            db = self._connection.opened(self.creates)
            if not any(step.writes for step in steps):
                return self._in_transaction(db, steps)
            with self._turn.taken():
                steps += self._queue.gathered(self._queue.most - len(steps))
                return self._in_transaction(db, steps)

    def _in_transaction(self, db: sqlite3.Connection, steps: Sequence[QueuedStep]) -> list[Any]:
        writes = any(step.writes for step in steps)
        try:
            patiently(db, "begin immediate" if writes else "begin")
            try:
                if not writes:
                    # A plain begin takes no lock: the first look does, and may meet a writer.
                    patiently(db, "select 1 from sqlite_master limit 1")
                with_targets = any(step.take in ABOUT_REPLICAS for step in steps)
                rows = self._rows(db, with_targets, None if writes else self._known_jobs)
                # The time is read under the lock: steps follow each other in the order of their moments.
                replies = [self._reply(rows, step) for step in steps]
                if writes:
                    rows.save()
                if db.in_transaction:  # those who read are through with it when they have what they want
                    patiently(db, "commit")
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

    def _counted(self, count: Callable[[SqlCounting], T]) -> T:
        try:
            with forks.put_off:
                return count(
                    SqliteCounting(SqliteStatements(self._connection.opened(self.creates), self._names))
                )
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error

    # --- connections ----------------------------------------------------------------------------------

    def _open(self) -> None:
        with forks.put_off:
            self._connection.opened(self.creates)

    def _set_up(self, db: sqlite3.Connection) -> None:
        patiently(db, "begin immediate")
        try:
            prepare(db, self._names, str(self.path), converts=self.creates)
            self._notice_reboot(db)
            patiently(db, "commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        if self._known_jobs is not None:
            db.execute(f"pragma busy_timeout = {PATIENCE * 1000:.0f}")
            db.execute(f"pragma cache_size = -{READERS_CACHE}")
            for statement in PLACES_FOR_COPIES:
                db.execute(self._names.sql(statement))

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
        """In a forked child."""
        self._connection.leave_to_parent()
        self._turn.let_go_after_fork()
        self._queue.clear()

    def _close(self) -> None:
        with forks.put_off:
            self._connection.close()
        self._turn.let_go()
        self._beacons.release_all()
