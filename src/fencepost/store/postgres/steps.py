"""How the operations of `rules/` are taken over the rows on the server: alone, beside others, for one job, or only
reading."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from fencepost.clock import Clock, Moment, moment_of
from fencepost.errors import StoreUnavailable
from fencepost.store.backend import Backend
from fencepost.store.codec import micros, moment
from fencepost.store.postgres.arrays import Texts
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.fast import Now
from fencepost.store.postgres.find import PostgresFind
from fencepost.store.postgres.load import KnownTargets, PostgresLoad
from fencepost.store.postgres.save import PostgresSave
from fencepost.store.postgres.session import PostgresSession
from fencepost.store.reader import RowReader
from fencepost.store.texts import KnownJobs
from fencepost.store.unit_of_work import Confined, UnitOfWork
from fencepost.store.unreadable import UnreadableRows

T = TypeVar("T")

COME_AGAIN = (0.005, 0.035)
"""Seconds after which an action is tried again whose job another request had locked."""
TRIES = 250
"""Some 5 seconds: the server ends the session of a process that is stopped in the middle of one before."""


class _Taken(Exception):
    """Another request holds the lock of this action."""


class PostgresSteps:
    def __init__(self, clock: Clock | None, unreadable: UnreadableRows) -> None:
        """`clock`: instead of the server's own, for tests."""
        self._clock = clock
        self.unreadable = unreadable
        self.targets: KnownTargets = {}
        self.known_jobs: KnownJobs | None = None
        """Of a store for reading: definitions that it need not read again."""

    def now(self) -> Now:
        return (None, None) if self._clock is None else (micros(self._clock.wall()), self._clock.steady())

    def rows(self, db: Connection, known_jobs: KnownJobs | None = None) -> UnitOfWork:
        reader = RowReader(self.unreadable)
        load = PostgresLoad(db, reader, self.targets, known_jobs)
        save = PostgresSave(db, reader, load)
        return UnitOfWork(Backend(reader, load, PostgresFind(db, reader, load, save), save))

    def read(self, db: Connection, step: Callable[..., T], *args: Any) -> T:
        """What only reads takes no lock, however long it lasts, and does not depend on the time."""
        return step(self.rows(db, known_jobs=self.known_jobs), _NO_MOMENT, *args)

    def alone(self, db: Connection, step: Callable[..., T], *args: Any) -> T:
        """Alone on the server: no other session changes anything between its statements."""
        with self.transaction(db, "alone()") as (rows, at):
            reply = step(rows, at, *args)
            rows.save()
        return reply

    def with_jobs(self, db: Connection, jobs: Sequence[str], step: Callable[..., T], *args: Any) -> T:
        """Beside others: no other session changes anything of these jobs between its statements. It may change nothing
        else but what belongs to the replica that asks. A step that must (limits) is taken alone instead."""
        try:
            with self.transaction(db, "carefully(%s)", Texts(jobs)) as (rows, at):
                reply = step(rows, at, *args)
                rows.save()
        except Confined:
            return self.alone(db, step, *args)
        return reply

    async def act(self, session: PostgresSession, job: str, step: Callable[..., T], *args: Any) -> T:
        """The same for one job. While another is at it this process goes on with its other steps."""
        for _ in range(TRIES):
            found: tuple[T] | None = await session.ask(self._try_to_act, job, step, *args)
            if found is not None:
                return found[0]
            await asyncio.sleep(random.uniform(*COME_AGAIN))
        raise StoreUnavailable(
            f"{session.name}: another request has held the lock on job {job} for 5 s; try again"
        )

    def _try_to_act(self, db: Connection, job: str, step: Callable[..., T], *args: Any) -> tuple[T] | None:
        try:
            with self.transaction(db, "act(%s)", job) as (rows, at):
                reply = step(rows, at, *args)
                rows.save()
        except _Taken:
            return None
        except Confined:
            return (self.alone(db, step, *args),)
        return (reply,)

    @contextmanager
    def transaction(self, db: Connection, how: str, *args: Any) -> Iterator[tuple[UnitOfWork, Moment]]:
        """`how`: the function by which it begins."""
        try:
            db.begin()
            (wall,) = db.one(f"select {{schema}}.{how}", *args)
            if wall is None:
                raise _Taken
            at = moment_of(self._clock) if self._clock else Moment(moment(wall), wall / 1e6)
            rows = self.rows(db)
            rows.confined = how != "alone()"
            rows.at = at
            yield rows, at
            db.execute("commit")
        except BaseException:
            db.rollback_unfinished()
            raise


_NO_MOMENT = Moment(moment(0), 0.0)
