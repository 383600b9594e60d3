"""The line: a second connection that stays open. It hears hints, and shows that its replica is there.

A *beacon* is a lock of its session, and the server lets go of it however the session ends. A replica that can take the
lock knows that the session is gone. That permits taking leadership, never more: the process may live, cut off for a
moment.

Behind a pooler there are no sessions to rely on: the line says so once and stays off.
"""

from __future__ import annotations

import logging
import random
import secrets
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import psycopg

from fencepost.clock import SystemClock
from fencepost.errors import FencepostError, StoreUnavailable
from fencepost.store.postgres.arrays import Texts
from fencepost.store.postgres.connection import (
    PATIENCE,
    AnotherServer,
    Connection,
    PostgresServerInfo,
    connect,
    wrapped,
)
from fencepost.store.postgres.names import PostgresNames
from fencepost.store.waiting import Assurance, Waiters

log = logging.getLogger("fencepost")

RECONNECT = 1.0
"""Seconds between two attempts at the most; at least half of it, so that many replicas do not come back at once."""
QUIET_FAILURES = 5
TIDYING = 60.0
"""Seconds that may take; usually it is hundredths of one."""

# A machine that is cut off from the power says nothing: the server must ask.
_KEEPALIVE = """
select set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '2', false),
    set_config('tcp_keepalives_count', '3', false)
"""


class PostgresLine:
    is_off = False
    """There is a pooler in between."""

    def __init__(self, url: str, name: str, names: PostgresNames, hints: Waiters, seen: object) -> None:
        """`seen`: the state of the hints when its replica first asked for anything."""
        self._url = url
        self._name = name
        self._names = names
        self._hints = hints
        self._seen = seen
        self._leader = Assurance()
        self._held: set[str] = set()
        self._unlit: set[str] = set()
        self._work: deque[tuple[Callable[[Connection], Any], Future[Any]]] = deque()
        self._closing = False
        self._chance = random.Random()
        self._bell, self._rope = socket.socketpair()
        self.db: Connection | None = None
        self.tried: Future[None] = Future()
        """Done when it is known for the first time whether there is a line."""
        self._thread = threading.Thread(target=self._run, name="fencepost-line", daemon=True)
        self._thread.start()

    # --- for the store ----------------------------------------------------------------------------------------

    def hold(self, replica: str) -> None:
        """From now on this replica's beacon is lit, as long as there is a connection."""
        self._held.add(replica)
        self._unlit.add(replica)
        self._ask(self._light)

    def release(self, replica: str) -> None:
        self._held.discard(replica)
        self._ask(lambda db: db.do("delete from {schema}.beacons where replica = %s", replica))

    def gone(self, replicas: Sequence[str]) -> Future[frozenset[str]]:
        """Those whose session has ended. Its own locks this line would find free: it may take them again."""
        asked = Texts(replica for replica in replicas if replica not in self._held)
        query = "select {schema}.gone(%s, %s)"
        return self._ask(lambda db: frozenset(db.one(query, asked, db.server.started)[0]))

    def assure(self, replica: str) -> Future[Any]:
        """A sign of life to all that listen. What a crash of the server would undo need not wait for its disk."""
        query = "select set_config('synchronous_commit', 'off', true), pg_notify('{lead_channel}', %s)"
        return self._ask(lambda db: db.do(query, replica))

    def assured(self, replica: str | None = None) -> float:
        """Seconds until this leader, or whichever was last heard, counts as silent."""
        return self._leader.lasts(replica, _clock.steady())

    def follow(self, server: PostgresServerInfo) -> None:
        """The store is with this server now: hints and sessions of another mean nothing any more."""

        def leave_another(db: Connection) -> None:
            if (db.server.history, db.server.started) != (server.history, server.started):
                raise AnotherServer("the store is with another server")

        self._ask(leave_another)

    def tidy(self) -> None:
        """Remove the dead rows that fires have left where everybody looks for what is due."""
        self._ask(_tidy)

    def close(self) -> None:
        self._closing = True
        self._ring()
        self._thread.join()
        self._bell.close()
        self._rope.close()

    def _ask(self, work: Callable[[Connection], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        if self.is_off:
            answer.set_exception(
                StoreUnavailable(f"{self._name}: behind a pooler nothing is known of others")
            )
        else:
            self._work.append((work, answer))
            self._ring()
        return answer

    def _ring(self) -> None:
        self._rope.send(b"!")

    # --- on its thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._closing and not self.is_off:
            try:
                db = connect(self._url, self._names)
            except (psycopg.Error, FencepostError) as error:
                failures += 1
                if (
                    failures == QUIET_FAILURES
                ):  # usually the main connection has the same trouble, and says so
                    reason = wrapped(error, self._name) if isinstance(error, psycopg.Error) else error
                    log.warning("no hints from the store, everything else goes on: %s", reason)
                self._has_tried()
                self._pause()
                continue
            self.db, failures = db, 0
            try:
                self._serve(db)
            except psycopg.Error as error:
                log.debug("the line was cut: %s", wrapped(error, self._name))
                self._pause()
            finally:
                self.db = None
                self._has_tried()
                db.close()
        self._refuse()

    def _serve(self, db: Connection) -> None:
        if not db.server.is_direct:
            self._stay_off()
            return
        db.do(_KEEPALIVE)
        db.do('listen "{channel}"')
        db.do('listen "{lead_channel}"')
        self._unlit.update(self._held)
        self._light(db)
        seen = hints_so_far(db)
        if seen != self._seen:
            self._seen = seen
            self._hints.wake()  # hints came while this line did not listen
        self._has_tried()
        while not self._closing:
            ready, _, _ = select.select([db.fileno(), self._bell.fileno()], [], [])
            if self._bell.fileno() in ready:
                self._bell.recv(4096)
                self._answer(db)
            self._hear(db)

    def _hear(self, db: Connection) -> None:
        hinted = False
        for said in db.notifies(timeout=0):
            if said.channel == self._names.lead_channel:
                self._leader.heard(said.payload, _clock.steady())
            else:
                hinted = True
        if hinted:
            self._hints.wake()

    def _light(self, db: Connection) -> None:
        """Locked before others can find it: a beacon that can be found and is free means that its session is gone."""
        while self._unlit:
            replica, key = self._unlit.pop(), secrets.randbits(63)
            db.do("select pg_advisory_lock(%s)", key)
            db.do(
                "insert into {schema}.beacons values (%s, %s, %s)"
                " on conflict (replica) do update set key = excluded.key, server_start = excluded.server_start",
                replica,
                key,
                db.server.started,
            )

    def _answer(self, db: Connection) -> None:
        while self._work:
            work, answer = self._work.popleft()
            if not answer.set_running_or_notify_cancel():
                continue  # the caller has gone
            try:
                answer.set_result(work(db))
            except psycopg.Error as error:
                answer.set_exception(wrapped(error, self._name))
                raise

    def _pause(self) -> None:
        """Callers are refused meanwhile; none waits for an answer."""
        until = _clock.steady() + RECONNECT * self._chance.uniform(0.5, 1.0)
        while not self._closing and (left := until - _clock.steady()) > 0:
            if select.select([self._bell.fileno()], [], [], left)[0]:
                self._bell.recv(4096)
                self._refuse()

    def _refuse(self) -> None:
        while self._work:
            _, answer = self._work.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_exception(StoreUnavailable(f"{self._name}: not connected"))

    def _has_tried(self) -> None:
        if not self.tried.done():
            self.tried.set_result(None)

    def _stay_off(self) -> None:
        self.is_off = True
        self._hints.wake()
        log.warning(
            "%s is reached through a pooler: another replica takes over only after the leader's TTL, and hints are "
            "looked for once a second; connect to the server directly to do better",
            self._name,
        )


def _tidy(db: Connection) -> None:
    db.patience = TIDYING
    db.do("vacuum (skip_locked, truncate false, process_toast false) {schema}.jobs, {schema}.live")
    db.patience = PATIENCE


def hints_so_far(db: Connection) -> object:
    return db.one("select last_value, is_called from {schema}.hints")


_clock = SystemClock()  # waiting takes real time, whatever clock the store was given
