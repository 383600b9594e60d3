"""A connection that is made when it is needed, on a thread of its own; and errors in our words."""

from __future__ import annotations

from collections.abc import Callable

import pymysql

from fencepost.settings import redacted
from fencepost.store.mirror import T
from fencepost.store.mysql.connection import PATIENCE, MysqlConnection, MysqlNames, is_cut_off, wrapped
from fencepost.store.threads import ReplyLost, WorkerThread


class Session:
    def __init__(self, url: str, namespace: str, set_up: Callable[[MysqlConnection], None]) -> None:
        """`set_up`: what a new connection needs."""
        self.name = redacted(url)
        self.url = url
        self.names = MysqlNames(namespace)
        self.patience = PATIENCE
        self.thread = WorkerThread()
        self.db: MysqlConnection | None = None
        self._set_up = set_up

    def ask(self, work: Callable[[MysqlConnection], T]) -> T:
        """On the thread. A connection that had an error is not used again."""
        try:
            return work(self._connection())
        except pymysql.err.Error as error:
            before = self.db
            self.hang_up()
            ours = wrapped(error, self.name)
            if before and is_cut_off(error) and self.ask(lambda db: db.started) == before.started:
                ours = ReplyLost(str(ours))
            raise ours from error

    def _connection(self) -> MysqlConnection:
        if self.db is not None and self.db.patience != self.patience:
            self.hang_up()
        if self.db is None:
            db = MysqlConnection(self.url, self.names, self.patience)
            try:
                self._set_up(db)
            except BaseException:
                db.close()
                raise
            self.db = db
        return self.db

    def hang_up(self, forked: bool = False) -> None:
        """`forked`: in a child, where the session is the parent's."""
        if self.db is not None:
            self.db.close(forked)
        self.db = None

    async def close(self) -> None:
        await self.thread.run(self.hang_up)
        self.thread.end()
