"""The skeleton of every loop: step, wait until the next step is due or another loop wakes it, step again."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from fencepost.errors import StoreUnavailable

if TYPE_CHECKING:
    from fencepost.replica.replica import Replica

FAILURES_TO_DEGRADE = 3
"""Unexpected errors in a row after which a loop makes its replica unready."""
DEAF_FOR = 1.0
"""Seconds for which a loop that failed cannot be woken: what fails at once would fail thousands of times a second."""


class Service(ABC):
    """One loop of a replica.

    `step` does one piece of work and says in how many seconds it wants the next turn (None: when woken). A
    store that does not answer puts the service off. Anything unexpected is logged and tried again; after three such
    errors in a row the replica is not ready until a step succeeds. A service ends only when it is stopped.
    """

    shortest = 0.005
    """Seconds between two steps, however often it is woken."""
    longest = 3600.0
    """Least seconds between two steps, unless another loop wakes it. A precaution."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._woken = False
        self._stopping = False
        self._next_at = math.inf
        """When the next step begins at the latest, on the steady clock."""
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        """Steps in a row that did not succeed, for whatever reason."""
        self._errors = 0
        """Unexpected errors in a row. An outage of the store neither counts nor ends the row."""
        self._deaf = False

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @property
    def is_stuck(self) -> bool:
        """Whether there is work that cannot be done, although steps succeed."""
        return False

    @abstractmethod
    async def step(self) -> float | None: ...

    def wake(self) -> None:
        self._woken = True
        if not self._deaf:
            self._ring()

    def step_in(self, seconds: float) -> None:
        """The next step is wanted in so many seconds; if one is planned before that, nothing changes."""
        at = self.replica.clock.steady() + seconds
        if at >= self._next_at:
            return
        self._next_at = at
        if self._timer is not None and not self._deaf:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def stop(self) -> None:
        self._stopping = True
        self._ring()

    async def run(self) -> None:
        while not self._stopping:
            self._woken = False
            self._next_at = math.inf
            delay = await self._guarded_step()
            self.step_in(self.longest if delay is None else delay)
            ended = self.replica.clock.steady()
            if self._deaf:
                await self._stay_deaf(delay or 0.0)
            if not self._woken and not self._stopping:
                await self._pause(max(0.0, self._next_at - self.replica.clock.steady()))
            # After the pause, not before it: a loop that is idle wakes up once for each step.
            if (early := ended + self.shortest - self.replica.clock.steady()) > 0:
                await asyncio.sleep(early)

    async def _guarded_step(self) -> float | None:
        began = self.replica.clock.steady()
        try:
            delay = await self.step()
        except StoreUnavailable as error:
            self._failures += 1
            self.replica.store_failed(error, began, self.name)
            return self.replica.backoff(self._failures)
        except Exception as error:
            self._failures += 1
            self._deaf = True
            self.failed(error)
            return self.replica.backoff(self._failures)
        self._failures = 0
        self.replica.store_served(self.name)
        if self._errors and not self.is_stuck:
            self._recovered()
        return delay

    def failed(self, error: Exception, detail: str = "") -> None:
        """Something unexpected has happened in this loop, and will be tried again."""
        self._errors += 1
        self.replica.errors.log(self._complaint, error, detail)
        if self._errors == FAILURES_TO_DEGRADE:
            self.replica.loop_degraded(self.name, error)

    def _recovered(self) -> None:
        self.replica.errors.clear(self._complaint)
        if self._errors >= FAILURES_TO_DEGRADE:
            self.replica.loop_recovered(self.name)
        self._errors = 0

    @property
    def _complaint(self) -> str:
        return f"{self.replica.id}: unexpected error in {self.name}; trying again"

    async def _stay_deaf(self, delay: float) -> None:
        """For a part of this delay."""
        if not self._stopping:
            await self._pause(min(DEAF_FOR, delay))
        self._deaf = False

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._timer = loop.call_later(seconds, self._ring)
        try:
            await self._waiter
        finally:
            self._timer.cancel()
            self._timer = self._waiter = None

    def _ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
