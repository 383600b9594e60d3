"""The session of a store: one connection, on a thread of its own, made when it is needed and given up when it is of no
use any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.settings import redacted
from fencepost.store import forks
from fencepost.store.closing import closed_on_error
from fencepost.store.postgres.connection import (
    LEFT,
    PATIENCE,
    Connection,
    checked_by_driver,
    connect,
    wrapped,
)
from fencepost.store.postgres.names import PostgresNames
from fencepost.store.threads import WorkerThread

T = TypeVar("T")


class PostgresSession:
    def __init__(self, url: str, namespace: str, set_up: Callable[[Connection], None]) -> None:
        """`set_up`: what a new connection is used for first."""
        self.name = redacted(url)
        self.url = checked_by_driver(url)
        self.names = PostgresNames(namespace)
        self.patience = PATIENCE
        self.db: Connection | None = None
        self._set_up = set_up
        self._thread = WorkerThread()
        forks.follow(self)

    async def ask(self, work: Callable[..., T], *args: Any) -> T:
        return await self._thread.run(self._do, work, *args)

    async def close(self, *others: Callable[[], None]) -> None:
        """`others`: close what else there is, which takes a moment."""
        for each in (self._hang_up, *others):
            await self._thread.run(each)
        self._thread.end()

    # --- on its thread --------------------------------------------------------------------------------------

    def _do(self, work: Callable[..., T], *args: Any) -> T:
        try:
            db = self.db or self._connect()
            db.patience = self.patience
            return work(db, *args)
        except psycopg.Error as error:
            self._drop_if_unusable(error)
            raise wrapped(error, self.name) from error

    def _connect(self) -> Connection:
        db = connect(self.url, self.names)
        with closed_on_error(db):
            self._set_up(db)
        self.db = db
        return db

    def _drop_if_unusable(self, error: psycopg.Error) -> None:
        """A connection on which an answer may still come is of no use any more, nor one to a server that takes no
        writes."""
        db = self.db
        if db is None:
            return
        if db.closed or db.info.transaction_status != TransactionStatus.IDLE or isinstance(error, LEFT):
            self._hang_up()

    def _hang_up(self) -> None:
        if self.db is not None:
            self.db.close()
        self.db = None

    def after_fork(self) -> None:
        """In a forked child."""
        leave_to_parent(self.db)
        self.db = None


def leave_to_parent(db: Connection | None) -> None:
    """The connection is the parent's. Its descriptor is closed in the child without a word to the server: while the
    child had it, no replica would see the parent's session end."""
    if db is not None:
        _parents.append(db)
        with suppress(OSError, psycopg.Error):
            os.close(db.fileno())


_parents: list[Connection] = []
