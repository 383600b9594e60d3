"""Hints that there is something to do, signs of the leader, and evidence of its end: what the line knows, and what is
left without one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from fencepost.errors import StoreUnavailable
from fencepost.store import forks
from fencepost.store.base import Evidence
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.line import PostgresLine, hints_so_far
from fencepost.store.postgres.session import PostgresSession, leave_to_parent
from fencepost.store.waiting import Waiters

POLL_EVERY = 1.0
"""Seconds between two polls for hints where none can be heard."""
EVIDENCE_EVERY = 0.25
"""Seconds between two questions about a leader that is silent."""


class PostgresSigns:
    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._hints = Waiters()
        self._seen: object = None
        """The state of the hints, as it was found first or polled last."""
        self._line: PostgresLine | None = None
        forks.follow(self)

    def line(self) -> PostgresLine:
        """Opened by the first who takes part, not by those who only look."""
        if self._line is None:
            session = self._session
            self._line = PostgresLine(session.url, session.name, session.names, self._hints, self._seen)
        return self._line

    def connected(self, db: Connection) -> None:
        """The session has a new connection."""
        self._seen = self._seen or hints_so_far(db)
        if self._line is not None:
            self._line.follow(db.server)

    async def wait(self, seconds: float) -> bool:
        line = self.line()
        if not line.tried.done():
            # Hints that came before the line listened were not heard: that counts as a hint.
            await asyncio.shield(asyncio.wrap_future(line.tried))
            return True
        if not line.is_off:
            return await self._hints.wait(seconds)
        for _ in range(max(1, round(seconds / POLL_EVERY))):
            await asyncio.sleep(min(seconds, POLL_EVERY))
            seen = await self._session.ask(hints_so_far)
            if seen != self._seen:
                self._seen = seen
                return True
        return False

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        line = self.line()
        silent = [replica for replica in replicas if not line.assured(replica)]
        try:
            return Evidence(gone=await asyncio.wrap_future(line.gone(silent))) if silent else Evidence()
        except StoreUnavailable:
            return Evidence()  # who cannot ask knows nothing

    @property
    def every(self) -> float:
        """Seconds until evidence is to be asked for again."""
        return (self._line.assured() if self._line is not None else 0.0) or EVIDENCE_EVERY

    async def assure(self, replica: str) -> None:
        with suppress(StoreUnavailable):  # then followers ask for evidence
            await asyncio.wrap_future(self.line().assure(replica))

    def tidy(self) -> None:
        if self._line is not None:
            self._line.tidy()

    def close(self) -> None:
        """Blocks until the line's thread has ended."""
        if self._line is not None:
            self._line.close()
        self._line = None

    def after_fork(self) -> None:
        """In a forked child."""
        leave_to_parent(self._line.db if self._line else None)
        self._line = None
