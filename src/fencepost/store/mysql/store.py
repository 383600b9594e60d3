"""The store itself: transactions and their time, hints and evidence."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pymysql

from fencepost.clock import Clock, Moment, moment_of
from fencepost.store import forks, mirror
from fencepost.store.backend import Backend
from fencepost.store.base import Evidence, HeartbeatReply, HeartbeatRequest
from fencepost.store.codec import moment
from fencepost.store.formats import Contents
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.mysql.address import options_of
from fencepost.store.mysql.connection import AT_REST, PATIENCE, STEP, MysqlConnection, Session
from fencepost.store.mysql.counting import MysqlCounting
from fencepost.store.mysql.fast import MysqlFastPath
from fencepost.store.mysql.find import MysqlFind, MysqlLoad
from fencepost.store.mysql.line import MysqlLine
from fencepost.store.mysql.schema import contents, preflight, prepare
from fencepost.store.preflight import Preflight
from fencepost.store.reader import RowReader
from fencepost.store.rows import Rows
from fencepost.store.rules import planning, presence
from fencepost.store.rules.data_loss import restarted
from fencepost.store.sql.counting import SqlCounting, SqlCounts
from fencepost.store.sql.load import LEASE, REPLICAS
from fencepost.store.sql.meta import meta, set_meta
from fencepost.store.sql.operations import ABOUT_REPLICAS, REPEATABLE
from fencepost.store.sql.save import SqlSave
from fencepost.store.texts import KnownJobs
from fencepost.store.threads import QueuedStep, StepQueue
from fencepost.store.unit_of_work import UnitOfWork

POLL_EVERY = 0.1
"""Seconds between two polls for hints."""
JUDGED = (presence.roster, planning.due_jobs)
"""Operations that read, and compare with the time: what an earlier moment is about to write must not be missing."""

NOW = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
# The time is read after the lock was given, by a statement of its own: a statement's clock stands still from its begin.
# A replica that is stopped, or cut off, with the lock in its hands is thrown out: the server waits so many seconds. The
# others need not (see `line.py`).
WRITE = f"""
set session wait_timeout = HOLD; start transaction; select hints from {{turn}} where id = 1 for update;
do get_lock({STEP}, 0); {NOW}
"""
DONE = f"do release_lock({STEP}); commit"
UNDO = f"do release_lock({STEP}); rollback; {AT_REST}"
READ = f"set transaction isolation level repeatable read; start transaction with consistent snapshot, read only; {NOW}"


class MysqlStore(Mirror):
    """Replicas on any number of machines share a database.

    All of a process's steps go through one connection, on a thread of its own. Those that write follow each other.
    """

    evidence_every = 0.25

    def __init__(self, url: str, namespace: str = "default", clock: Clock | None = None) -> None:
        options_of(url)  # refuses what cannot be used
        self._session = Session(url, namespace, self._set_up)
        self.name = self._session.name
        self._clock = clock
        self._thread = self._session.thread
        self._queue = StepQueue(self._thread, self._serve, REPEATABLE)
        self.counting = SqlCounts(self._thread, self._counted)
        self._line = MysqlLine(url, namespace)
        self._hints_seen: int | None = None
        self._known_jobs: KnownJobs | None = None
        forks.follow(self)

    def for_reading(self) -> MysqlStore:
        store = MysqlStore(self._session.url, self._session.names.namespace, self._clock)
        store._known_jobs, store._line = KnownJobs(), self._line
        return store

    async def preflight(self, name: str) -> Preflight:
        return await self._ask_unopened(preflight)

    async def contents(self) -> Contents:
        return await self._ask_unopened(contents)

    async def _ask_unopened(self, question: Callable[[MysqlConnection, str], T]) -> T:
        """On a connection for which nothing is created or converted."""
        session = Session(self._session.url, self._session.names.namespace, lambda db: None)
        try:
            return await session.thread.run(session.ask, lambda db: question(db, self.name))
        finally:
            await session.close()

    async def open(self) -> None:
        await self._thread.run(self._session.ask, lambda db: None)

    async def close(self) -> None:
        await self._session.close()
        if self._known_jobs is None:
            await self._line.session.close()

    # --- hints and evidence ---------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> bool:
        for _ in range(max(1, round(seconds / POLL_EVERY))):
            hints = await self._line.hints()
            if hints is None:  # no connection: not ten attempts a second
                await asyncio.sleep(min(seconds, 1.0))
                return False
            if hints != self._hints_seen:
                self._hints_seen = hints
                return True
            await asyncio.sleep(POLL_EVERY)
        return False

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return Evidence(gone=await self._line.gone(replicas))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        # An answer that comes after the lease has ended is of no use.
        self._session.patience = min(PATIENCE, max(1, int(request.ttl / 5)))
        self._line.silence = max(0.5, self._session.patience / 4)
        reply = await super().heartbeat(request)
        if request.joining and reply.known:
            await self._line.hold(request.replica)
        return reply

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        await self._line.release(replica)

    # --- transactions ---------------------------------------------------------------------------------------

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=True))
        return reply

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        alone = self._known_jobs is None and step in JUDGED
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=alone))
        return reply

    def _serve(self, steps: list[QueuedStep]) -> list[Any]:
        """In one transaction. None is left open across an await."""
        return self._session.ask(lambda db: self._try(db, steps, self._queue.gathered))

    def _try(
        self, db: MysqlConnection, steps: list[QueuedStep], more: Callable[[int], list[QueuedStep]]
    ) -> list[Any]:
        """`more`: so many steps at the most that have gathered meanwhile."""
        writes = any(step.writes for step in steps)
        try:
            if writes:  # nearly every step asks who is there and who leads
                (wall,) = db.begin(WRITE.replace("HOLD", str(db.hold)), ahead=(REPLICAS, LEASE))
                steps += more(self._queue.most - len(steps))
            else:
                (wall,) = db.last_of(READ)
            rows = self._rows(db, any(step.take in ABOUT_REPLICAS for step in steps), writes)
            rows.at = moment_of(self._clock) if self._clock else Moment(moment(wall), wall / 1e6)
            replies = [step.take(rows, rows.at, *step.args, **step.kwargs) for step in steps]
            if writes:
                rows.save()
                if rows.notify:
                    db.later("update {turn} set hints = hints + 1")
            steps_taken = " ".join(sorted({step.take.__name__ for step in steps}))
            db.commit(f"{DONE} /* {steps_taken} */; {AT_REST}" if writes else "commit")
            return replies
        except pymysql.err.Error:
            raise  # the connection is closed, and the server undoes what was begun
        except BaseException:
            db.rollback(UNDO)
            raise

    def _rows(self, db: MysqlConnection, with_targets: bool, writes: bool) -> UnitOfWork:
        reader = RowReader(self.unreadable)
        load = MysqlLoad(db, reader, with_targets, None if writes else self._known_jobs)
        find, save = MysqlFind(db, reader, load), SqlSave(db, reader)
        return UnitOfWork(Backend(reader, load, find, save, MysqlFastPath(db, reader, load)))

    def _counted(self, count: Callable[[SqlCounting], T]) -> T:
        return self._session.ask(lambda db: count(MysqlCounting(db)))

    def _set_up(self, db: MysqlConnection) -> None:
        prepare(db, self.name, self.creates)
        if meta(db, "history") != db.history:
            self._try(db, [QueuedStep(_follow, (db,), {}, writes=True)], lambda most: [])

    def after_fork(self) -> None:
        """In a forked child."""
        self._session.hang_up(forked=True)
        self._line.session.hang_up(forked=True)
        self._queue.clear()


def _follow(rows: Rows, at: Moment, db: MysqlConnection) -> None:
    """The server is another one, or may have lost what it acknowledged."""
    if meta(db, "history") != db.history:
        restarted(rows, at, f"{db.history}/{secrets.token_hex(4)}")
        set_meta(db, "history", db.history)
