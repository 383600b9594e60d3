"""The line: a second connection, on a thread of its own. It shows that its replica is there, and looks for hints.

A *beacon* is a named lock (`GET_LOCK`) of its session, and the server lets go of it however the session ends. One that
was written down and is free means that its session is gone. That permits taking leadership, never more: the process may
live, cut off for a moment. Locks end with the server, too: a beacon counts only on the start of it that it was lit on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pymysql

from fencepost.errors import StoreUnavailable
from fencepost.store.mysql.connection import PATIENCE, STEP, MysqlConnection, Session

log = logging.getLogger("fencepost")

GONE = "select replica from {beacons} where replica in ? and started = ? and is_used_lock(name) is null"
HINTS = f"select hints, is_used_lock({STEP}) from {{turn}}"
SILENT = f"""
select id from information_schema.processlist
where id = ? and id = is_used_lock({STEP}) and command = 'Sleep' and time_ms > ?
"""


class MysqlLine:
    def __init__(self, url: str, namespace: str) -> None:
        self.session = Session(url, namespace, self._light_all)
        self._held: set[str] = set()
        self._stepping: int | None = None
        """The session that was seen last in the middle of a step."""
        self.silence = PATIENCE / 4
        """Seconds that such a session may say nothing, while the others wait for the lock of their namespace."""

    async def hold(self, replica: str) -> None:
        """From now on this replica's beacon is lit, as long as there is a connection."""
        self._held.add(replica)
        await self._ask(lambda db: self._light(db, replica))

    async def release(self, replica: str) -> None:
        self._held.discard(replica)
        await self._ask(lambda db: db.do("delete from {beacons} where replica = ?", replica))

    async def gone(self, replicas: Sequence[str]) -> frozenset[str]:
        """Those whose session has ended."""
        others = [replica for replica in replicas if replica not in self._held]
        rows = await self._ask(lambda db: db.all(GONE, others, db.started)) if others else None
        return frozenset(row[0] for row in rows or ())

    async def hints(self) -> int | None:
        """How many there have been; None: not known."""
        found: int | None = await self._ask(self._hints)
        return found

    def _hints(self, db: MysqlConnection) -> int:
        hints, stepping = db.one(HINTS)
        if stepping is not None and stepping == self._stepping and db.version.startswith("MariaDB"):
            self._end_silent(db, stepping)
        self._stepping = stepping
        return int(hints)

    def _end_silent(self, db: MysqlConnection, session: int) -> None:
        """The server would, too, but it counts whole seconds. MySQL does not tell how long a session is silent."""
        for (id,) in db.all(SILENT, session, int(self.silence * 1000)):
            with suppress(pymysql.err.OperationalError):  # it is gone
                db.do(f"kill {id}")

    async def _ask(self, work: Callable[[MysqlConnection], Any]) -> Any:
        """None: there is no connection. The main one has the same trouble, and says so."""
        try:
            return await self.session.thread.run(self.session.ask, work)
        except StoreUnavailable as error:
            log.debug("the line was cut: %s", error)
            return None

    def _light_all(self, db: MysqlConnection) -> None:
        for replica in tuple(self._held):
            self._light(db, replica)

    def _light(self, db: MysqlConnection, replica: str) -> None:
        """Locked before others can find it. Each time by another name: a session that was cut off may keep it."""
        name = f"fencepost:{secrets.token_hex(16)}"
        db.one("select get_lock(?, 0)", name)
        db.put("beacons", ("replica", "name", "started"), [(replica, name, db.started)])
