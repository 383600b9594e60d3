"""The one way from the server's event loop to the store, bounded in number and in time: reads go through the
read side, actions through the control thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, TypeVar

from fencepost.errors import StoreUnavailable
from fencepost.insight.board import Reading
from fencepost.scheduler.scheduler import Scheduler
from fencepost.store.base import Store
from fencepost.web.problems import Problem
from fencepost.web.throttle import Throttle

log = logging.getLogger("fencepost")

T = TypeVar("T")

MOST_QUESTIONS = 64
"""Requests that may wait for the store at once. More would only wait longer."""
PATIENCE = 5.0
"""Seconds a request waits for the store."""
PATIENCE_WHEN_LOST = 1.0
"""The same while the store is known not to answer: it may be back."""
SHARE = 0.5
"""Of the reading thread's time, for what is read for one request alone. Shared readings are bounded by the reader."""
MOST_COUNTED = 0.05
"""Seconds that one reading costs at most."""

NOT_STARTED = (
    "the scheduler has not been started in this process. A mounted application gets no lifespan of its own: give the "
    "host `lifespan=scheduler.lifespan`, or `async with scheduler:` inside its own; with asgi(replica=False) "
    "`lifespan=` that application's `lifespan`; under WSGI call scheduler.start_in_background()"
)


class Desk:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._waiting = 0
        self._throttle = Throttle(SHARE)
        self._reading = 0
        self._complained = False

    async def read(self, work: Callable[[Store], Awaitable[T]], who: str = "clients") -> T:
        """Read this from the store, away from the control loop."""
        return await self._in_time(lambda: self._throttled(work, who), PATIENCE)

    async def _throttled(self, work: Callable[[Store], Awaitable[T]], who: str) -> T:
        await self._throttle.turn(who)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._reading += 1
        try:
            found = await self.scheduler.reader.ask(work)
            # Concurrent readings share the thread; and a remote store takes long without costing much.
            self._throttle.cost(min(MOST_COUNTED, (loop.time() - begun) / self._reading))
            return found
        finally:
            self._reading -= 1

    async def share(
        self, what: Hashable, work: Callable[[Store], Coroutine[Any, Any, T]], patience: float = PATIENCE
    ) -> T:
        """The same, read once for all requests for it within a second."""
        found: T | None = self._fresh(what)
        if found is not None:
            return found
        return await self._in_time(lambda: self.scheduler.reader.shared(what, work), patience)

    async def in_background(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """For work that takes long, and rests by itself so that others can read."""
        self._check_started()
        return await self.scheduler.reader.ask(work)

    async def everything(self, patience: float = PATIENCE) -> Reading:
        return await self._in_time(self.scheduler.reader.everything, patience)

    async def act(self, work: Callable[[Store], Awaitable[T]], patience: float = PATIENCE) -> T:
        """Change something, on the control loop; later requests see it. Work that has not ended in time is given up,
        but the store may have done it all the same."""
        try:
            return await self._in_time(
                lambda: self.scheduler.ask(self.scheduler.lifecycle.with_store(work)), patience
            )
        finally:
            self.scheduler.reader.forget()

    async def _in_time(self, work: Callable[[], Coroutine[Any, Any, T]], patience: float) -> T:
        self._check_started()
        if self._waiting >= MOST_QUESTIONS:
            raise Problem(
                503, f"{self._waiting} requests wait for the store; try again", headers={"Retry-After": "1"}
            )
        if self._store_is_lost:
            patience = min(patience, PATIENCE_WHEN_LOST)
            self.scheduler.reader.forget()  # what was read a moment ago must not hide it
        self._waiting += 1
        try:
            return await asyncio.wait_for(work(), patience)
        except TimeoutError:
            raise StoreUnavailable(f"the store has not answered within {patience:g} s; try again") from None
        finally:
            self._waiting -= 1

    def _fresh(self, what: Hashable) -> Any | None:
        self._check_started()
        return None if self._store_is_lost else self.scheduler.reader.fresh(what)

    @property
    def _store_is_lost(self) -> bool:
        replica = self.scheduler.replica
        return replica is not None and replica.store_is_lost

    @property
    def is_open(self) -> bool:
        return self.scheduler.shutdown.is_installed

    def _check_started(self) -> None:
        if self.is_open:
            return
        if not self._complained:
            log.error("%s", NOT_STARTED)
            self._complained = True
        raise Problem(503, NOT_STARTED, headers={"Retry-After": "1"})
