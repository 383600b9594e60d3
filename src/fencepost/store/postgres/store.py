"""The store itself: steps, their time, and which of them take the fast path."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.clock import Clock, Moment, moment_of
from fencepost.errors import NothingStored, StoreUnavailable
from fencepost.model import FireRecord, Json
from fencepost.settings import redacted
from fencepost.store import forks, mirror
from fencepost.store.backend import Backend
from fencepost.store.base import (
    Added,
    Claimed,
    ClaimRequest,
    DueJobs,
    Evidence,
    HeartbeatReply,
    HeartbeatRequest,
    Home,
    JobPage,
    NewFire,
    Plan,
    Roster,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.codec import micros, moment
from fencepost.store.counting import CountQuery, SlimQuery, Stretch
from fencepost.store.formats import Contents
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.outbox import Checked, NoticeChange
from fencepost.store.postgres import counting, fast, rest
from fencepost.store.postgres.arrays import Texts
from fencepost.store.postgres.connection import (
    LEFT,
    PATIENCE,
    Connection,
    checked_by_driver,
    connect,
    wrapped,
)
from fencepost.store.postgres.fast import Now
from fencepost.store.postgres.find import PostgresFind
from fencepost.store.postgres.line import PostgresLine, hints_so_far
from fencepost.store.postgres.load import KnownTargets, PostgresLoad
from fencepost.store.postgres.names import PostgresNames
from fencepost.store.postgres.preflight import contents, preflight
from fencepost.store.postgres.records import place_of
from fencepost.store.postgres.save import PostgresSave
from fencepost.store.postgres.schema import meta, namespaces, prepare, version
from fencepost.store.preflight import Preflight
from fencepost.store.reader import RowReader
from fencepost.store.rules import claims, fires, history, outbox, planning, presence, watching
from fencepost.store.rules import updates as update_rules
from fencepost.store.texts import KnownJobs
from fencepost.store.threads import WorkerThread
from fencepost.store.unit_of_work import Confined, UnitOfWork
from fencepost.store.waiting import ASSURE_EVERY, Waiters

log = logging.getLogger("fencepost")

PRUNE_BATCH = 5000
TIDY_AFTER = 2000
"""Fires settled here."""
POLL_EVERY = 1.0
"""Seconds between two polls for hints where none can be heard."""
COME_AGAIN = (0.005, 0.035)
"""Seconds after which an action is tried again whose job another request had locked."""
EVIDENCE_EVERY = 0.25
"""Seconds between two questions about a leader that is silent."""
TRIES = 250
"""Some 5 seconds: the server ends the session of a process that is stopped in the middle of one before."""


class _Taken(Exception):
    """Another request holds the lock of this action."""


class PostgresStore(Mirror):
    """Replicas on any number of machines share a database.

    All of a process's steps go through one connection, on a thread of its own.
    """

    assure_every = ASSURE_EVERY
    proves_death = False

    def __init__(
        self, url: str, namespace: str = "default", clock: Clock | None = None, *, fast: bool = True
    ) -> None:
        """`fast`: take the fast path where there is one. Without it every step goes the general path."""
        self._thread = WorkerThread()
        self.name = redacted(url)
        self._url = checked_by_driver(url)
        self._names = PostgresNames(namespace)
        self._clock = clock
        self._fast = fast
        self._targets: KnownTargets = {}
        self._patience = PATIENCE
        self._settled = 0
        self._hints = Waiters()
        self._hints_seen: object = None
        self._open_line: PostgresLine | None = None
        self._owner: PostgresStore | None = None
        """Of a store for reading: whose line it uses."""
        self._known_jobs: KnownJobs | None = None
        self._db: Connection | None = None
        forks.follow(self)

    def for_reading(self) -> PostgresStore:
        store = PostgresStore(self._url, self._names.namespace, self._clock)
        store._owner, store._known_jobs = self, KnownJobs()
        return store

    async def preflight(self, name: str) -> Preflight:
        return await asyncio.to_thread(preflight, self._url, self._names.namespace)

    async def contents(self) -> Contents:
        return await asyncio.to_thread(contents, self._url, self._names.namespace)

    async def open(self) -> None:
        await self._step(lambda db: None)

    async def close(self) -> None:
        await self._thread.run(self._close)
        self._thread.end()

    # --- hints and evidence ---------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> bool:
        line = self._line()
        if not line.tried.done():
            # Hints that came before the line listened were not heard: that counts as a hint.
            await asyncio.shield(asyncio.wrap_future(line.tried))
            return True
        if not line.is_off:
            return await self._hints.wait(seconds)
        for _ in range(max(1, round(seconds / POLL_EVERY))):
            await asyncio.sleep(min(seconds, POLL_EVERY))
            seen = await self._step(hints_so_far)
            if seen != self._hints_seen:
                self._hints_seen = seen
                return True
        return False

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        line = self._line()
        silent = [replica for replica in replicas if not line.assured(replica)]
        try:
            return Evidence(gone=await asyncio.wrap_future(line.gone(silent))) if silent else Evidence()
        except StoreUnavailable:
            return Evidence()  # who cannot ask knows nothing

    @property
    def evidence_every(self) -> float:  # type: ignore[override]
        line = self._open_line
        return (line.assured() if line is not None else 0.0) or EVIDENCE_EVERY

    async def assure(self, replica: str) -> None:
        with suppress(StoreUnavailable):  # then followers ask for evidence
            await asyncio.wrap_future(self._line().assure(replica))

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        self._line().release(replica)

    # --- the fast path ----------------------------------------------------------------------------------------

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        # An answer that comes after the lease has ended is of no use.
        self._patience = min(PATIENCE, max(1.0, request.ttl / 5))
        reply = await self._step(self._heartbeat, request)
        if request.joining and reply.known:
            self._line().hold(request.replica)
        return reply

    def _heartbeat(self, db: Connection, request: HeartbeatRequest) -> HeartbeatReply:
        # A lease that cannot be read is written anew by the general path.
        fast_path = self._fast and not self.unreadable.has("lease", "leader")
        reply = (
            fast.heartbeat(db, request, self._now(), self.unreadable, self._targets) if fast_path else None
        )
        return reply or self._alone(db, presence.heartbeat, request)

    async def roster(self) -> Roster:
        return await self._step(lambda db: fast.roster(db, self._now(), self._rows(db)))

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        return await self._step(self._sweep, by, term, suspects)

    def _sweep(self, db: Connection, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        swept = fast.sweep(db, by, term, suspects, self._now(), self._rows(db)) if self._fast else None
        self._tidy()
        return swept[0] if swept else self._alone(db, presence.sweep, by, term, suspects)

    def _tidy(self) -> None:
        """The leader cleans up after many fires, of which it saw its share. The server would do it once a minute."""
        if self._open_line is not None and self._settled > TIDY_AFTER:
            self._settled = 0
            self._open_line.tidy()

    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]:
        return await self._step(self._plan_fires, plans)

    def _plan_fires(self, db: Connection, plans: Sequence[Plan]) -> tuple[bool, ...]:
        written = fast.plan(db, plans, self._now()) if self._fast else [False] * len(plans)
        rest = [number for number, done in enumerate(written) if not done]
        if rest:
            some = [plans[number] for number in rest]
            answers = self._with_jobs(db, [plan.job_id for plan in some], planning.plan_fires, some)
            for number, answer in zip(rest, answers, strict=True):
                written[number] = answer
        return tuple(written)

    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        return await self._step(self._claim_fires, request)

    def _claim_fires(self, db: Connection, request: ClaimRequest) -> Claimed:
        made = fast.claim(db, request, self._now(), self.unreadable) if self._fast else None
        if made is None:
            return self._alone(db, claims.claim_fires, request)
        if made.returned:
            jobs = [place.job_id for place in (place_of(each.key) for each in made.returned) if place]
            self._with_jobs(db, jobs, rest.update_more, db, request.replica, made.returned, True)
        if not made.order:
            return self._not_for_what_is_aside(db, request, made.claimed)
        # If this fails the replica asks again under the same number, and is answered with those.
        try:
            with self._transaction(db, "carefully(%s)", Texts(())) as (rows, at):
                others = rest.claim_more(rows, at, request, len(made.claimed.claims))
                rows.save()
        except Confined:
            others = self._alone(db, rest.claim_more, request, len(made.claimed.claims))
        return fast.together(made, others)

    def _not_for_what_is_aside(self, db: Connection, request: ClaimRequest, claimed: Claimed) -> Claimed:
        """Jobs that are set aside stay due on the server: no replica need ask again at once because of them."""
        if claimed.claims or not self.unreadable.aside:
            return claimed
        return self._with_jobs(db, (), rest.without_aside, request, claimed)

    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        return await self._step(self._update_claims, replica, updates)

    def _update_claims(self, db: Connection, replica: str, updates: Sequence[Update]) -> Updated:
        if not self._fast:
            return self._alone(db, update_rules.update_claims, replica, updates)
        done = fast.settle(db, replica, updates, self._now())
        self._settled += len(updates)
        if updates and not done.rest:
            return done.updated
        some = [updates[number] for number in done.rest]
        jobs = [place.job_id for place in (place_of(update.key) for update in some) if place]
        others = self._with_jobs(db, jobs, rest.update_more, db, replica, some, done.counted)
        accepted = list(done.updated.accepted)
        for number, answer in zip(done.rest, others.accepted, strict=True):
            accepted[number] = answer
        return replace(others, accepted=tuple(accepted))

    async def add_fire(self, fire: NewFire) -> Added:
        return await self._act(fire.job_id, fires.add_fire, fire)

    async def cancel_fire(self, key: str, by: str = "", dead_token: int | None = None) -> FireRecord | None:
        place = place_of(key)
        if place is None:
            return None
        return await self._act(place.job_id, fires.cancel_fire, key, by, dead_token)

    async def prune(self, keep_seconds: float) -> int:
        return await self._step(self._prune, keep_seconds)

    def _prune(self, db: Connection, keep_seconds: float) -> int:
        """A batch at a time: no other step waits for long, and what was deleted stays so if the next one fails."""
        gone, batch = 0, PRUNE_BATCH
        while batch == PRUNE_BATCH:
            (batch,) = db.call("select {schema}.prune(%s, %s, %s)", keep_seconds, PRUNE_BATCH, self._now()[0])
            gone += batch
        return gone + self._alone(db, history.prune, keep_seconds)

    async def watch_jobs(
        self, by: str, term: int, page: JobPage | None = None, ids: Sequence[str] = ()
    ) -> Checked | None:
        if page is not None:
            return await super().watch_jobs(by, term, page, ids)
        return await self._step(self._with_jobs, ids, watching.watch_jobs, by, term, None, ids)

    async def update_outbox(
        self, changes: Sequence[NoticeChange], report: Mapping[str, Json] | None = None
    ) -> tuple[bool, ...]:
        return await self._step(self._with_jobs, (), outbox.update_outbox, changes, report)

    # --- the general path --------------------------------------------------------------------------------------

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._step(self._alone, step, *args)

    def _alone(self, db: Connection, step: Callable[..., T], *args: Any) -> T:
        """Alone on the server: no other session changes anything between its statements."""
        with self._transaction(db, "alone()") as (rows, at):
            reply = step(rows, at, *args)
            rows.save()
        return reply

    def _with_jobs(self, db: Connection, jobs: Sequence[str], step: Callable[..., T], *args: Any) -> T:
        """Beside others: no other session changes anything of these jobs between its statements. It may change nothing
        else but what belongs to the replica that asks. A step that must (limits) is taken alone instead."""
        try:
            with self._transaction(db, "carefully(%s)", Texts(jobs)) as (rows, at):
                reply = step(rows, at, *args)
                rows.save()
        except Confined:
            return self._alone(db, step, *args)
        return reply

    async def _act(self, job: str, step: Callable[..., T], *args: Any) -> T:
        """The same for one job. While another is at it this process goes on with its other steps."""
        for _ in range(TRIES):
            found: tuple[T] | None = await self._step(self._try_to_act, job, step, *args)
            if found is not None:
                return found[0]
            await asyncio.sleep(random.uniform(*COME_AGAIN))
        raise StoreUnavailable(
            f"{self.name}: another request has held the lock on job {job} for 5 s; try again"
        )

    def _try_to_act(self, db: Connection, job: str, step: Callable[..., T], *args: Any) -> tuple[T] | None:
        try:
            with self._transaction(db, "act(%s)", job) as (rows, at):
                reply = step(rows, at, *args)
                rows.save()
        except _Taken:
            return None
        except Confined:
            return (self._alone(db, step, *args),)
        return (reply,)

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        return await self._step(self._due_jobs, horizon, limit)

    def _due_jobs(self, db: Connection, horizon: float, limit: int) -> DueJobs:
        """Not beside a step that is alone: a pause that is being written would be missing in plans up to now."""
        with self._transaction(db, "carefully(%s)", Texts(())) as (rows, at):
            return planning.due_jobs(rows, at, horizon, limit)

    async def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        return await self._step(counting.count_fires, query)

    async def stretches(self, query: CountQuery) -> list[Stretch]:
        return await self._step(counting.stretches, query)

    async def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        return await self._step(counting.slim_fires, query)

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._step(self._read_unlocked, step, *args)

    def _read_unlocked(self, db: Connection, step: Callable[..., T], *args: Any) -> T:
        """What is left of reading takes no lock, however long it lasts, and does not depend on the time."""
        return step(self._rows(db, known_jobs=self._known_jobs), _NO_MOMENT, *args)

    def _rows(self, db: Connection, known_jobs: KnownJobs | None = None) -> UnitOfWork:
        reader = RowReader(self.unreadable)
        load = PostgresLoad(db, reader, self._targets, known_jobs)
        save = PostgresSave(db, reader, load)
        return UnitOfWork(Backend(reader, load, PostgresFind(db, reader, load, save), save))

    @contextmanager
    def _transaction(self, db: Connection, how: str, *args: Any) -> Iterator[tuple[UnitOfWork, Moment]]:
        """`how`: the function by which it begins."""
        try:
            db.begin()
            (wall,) = db.one(f"select {{schema}}.{how}", *args)
            if wall is None:
                raise _Taken
            at = moment_of(self._clock) if self._clock else Moment(moment(wall), wall / 1e6)
            rows = self._rows(db)
            rows.confined = how != "alone()"
            rows.at = at
            yield rows, at
            db.execute("commit")
        except BaseException:
            db.rollback_unfinished()
            raise

    # --- time and connections -------------------------------------------------------------------------------

    def _now(self) -> Now:
        return (None, None) if self._clock is None else (micros(self._clock.wall()), self._clock.steady())

    async def _step(self, work: Callable[..., T], *args: Any) -> T:
        return await self._thread.run(self._take_step, work, *args)

    def _take_step(self, work: Callable[..., T], *args: Any) -> T:
        try:
            db = self._connection()
            db.patience = self._patience
            return work(db, *args)
        except psycopg.Error as error:
            self._drop_if_unusable(error)
            raise wrapped(error, self.name) from error

    def _connection(self) -> Connection:
        if self._db is None:
            db = connect(self._url, self._names)
            try:
                if not self.creates and version(db) is None:
                    raise NothingStored(self.name, self._names.namespace, namespaces(db))
                prepare(db, self.name, converts=self.creates)
                if meta(db, "history") != db.server.history:
                    self._alone(db, rest.follow, db, db.server.history, secrets.token_hex(4))
            except BaseException:
                db.close()
                raise
            self.home = Home("postgresql", db.server.database, self._names.schema)
            self._db, self._hints_seen = db, self._hints_seen or hints_so_far(db)
            if self._open_line is not None:
                self._open_line.follow(db.server)
        return self._db

    def _drop_if_unusable(self, error: psycopg.Error) -> None:
        """A connection on which an answer may still come is of no use any more, nor one to a server that takes no
        writes."""
        db = self._db
        if db is None:
            return
        if db.closed or db.info.transaction_status != TransactionStatus.IDLE or isinstance(error, LEFT):
            self._hang_up()

    def _line(self) -> PostgresLine:
        """Opened by the first who takes part, not by those who only look."""
        if self._owner is not None:
            return self._owner._line()
        if self._open_line is None:
            self._open_line = PostgresLine(self._url, self.name, self._names, self._hints, self._hints_seen)
        return self._open_line

    def _hang_up(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def _close(self) -> None:
        self._hang_up()
        if self._open_line is not None:
            self._open_line.close()
        self._open_line = None

    def after_fork(self) -> None:
        """In a forked child. The connections are the parent's. Their descriptors are closed here without a word to the
        server: while this child had them, no replica would see the parent's session end."""
        line = self._open_line
        for db in (self._db, line.db if line else None):
            if db is not None:
                _parents.append(db)
                with suppress(OSError, psycopg.Error):
                    os.close(db.fileno())
        self._db = self._open_line = None


_parents: list[Connection] = []

_NO_MOMENT = Moment(moment(0), 0.0)
