"""The skeleton all loops share: step, wait until it is time or somebody wakes it, step again."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from fencepost.errors import StoreUnavailable

if TYPE_CHECKING:
    from fencepost.replica import Replica

log = logging.getLogger("fencepost")


class Service(ABC):
    """One loop of a replica.

    `step` does one piece of work and says in how many seconds it wants the next turn (None: when woken). A
    store that does not answer puts the service off; anything unexpected is logged and tried again. A service
    ends only when it is stopped.
    """

    shortest = 0.005
    """Seconds between two steps, however often it is woken."""
    longest = 3600.0
    """Seconds between two steps, if nobody wakes it. A precaution."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._woken = False
        self._stopping = False
        self._waiter: asyncio.Future[None] | None = None
        self._failures = 0

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    async def step(self) -> float | None: ...

    def wake(self) -> None:
        self._woken = True
        self._ring()

    def stop(self) -> None:
        self._stopping = True
        self._ring()

    async def run(self) -> None:
        while not self._stopping:
            self._woken = False
            delay = await self._guarded_step()
            await asyncio.sleep(self.shortest)
            if not self._woken and not self._stopping:
                await self._pause(self.longest if delay is None else max(0.0, delay - self.shortest))

    async def _guarded_step(self) -> float | None:
        try:
            delay = await self.step()
        except StoreUnavailable as error:
            self._failures += 1
            self.replica.store_failed(error)
            return self.replica.backoff(self._failures)
        except Exception:
            self._failures += 1
            log.exception("%s: unexpected error in %s; trying again", self.replica.id, self.name)
            return self.replica.backoff(self._failures)
        self._failures = 0
        return delay

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._ring)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
