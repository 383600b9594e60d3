"""What the stores share that take whole transactions on a thread of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime

from fencepost.model import FireRecord
from fencepost.store import mirror
from fencepost.store.counting import CountQuery, SlimQuery, Stretch
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.rules import claims, presence, updates
from fencepost.store.sql.counting import SqlCounting
from fencepost.store.threads import QueuedStep, StepQueue, WorkerThread

ABOUT_REPLICAS = (presence.heartbeat, presence.leave, presence.roster, presence.sweep)
"""Operations that read what replicas know."""
REPEATABLE = (claims.claim_fires, updates.update_claims)
"""Operations that replicas repeat until they are answered, and that are made for it."""


class SqlStore(Mirror):
    _thread: WorkerThread
    _queue: StepQueue

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=True))
        return reply

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=False))
        return reply

    # --- counting -------------------------------------------------------------------------------------------

    async def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        return await self._thread.run(self._counted, lambda counting: counting.count_fires(query))

    async def stretches(self, query: CountQuery) -> list[Stretch]:
        return await self._thread.run(self._counted, lambda counting: counting.stretches(query))

    async def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        return await self._thread.run(self._counted, lambda counting: counting.slim_fires(query))

    @abstractmethod
    def _counted(self, count: Callable[[SqlCounting], T]) -> T:
        """With a connection, on the thread."""
