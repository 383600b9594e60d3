"""Whether the store answers, for the readiness probe of a process that has no replica and so no heartbeat.

Any client may send a probe. So all probes within a second share one request to the store, and that request has a budget
of its own: probes do not use up what other requests need, and other requests do not delay a probe.
"""

from __future__ import annotations

import asyncio

from fencepost.errors import FencepostError
from fencepost.scheduler.scheduler import Scheduler
from fencepost.store.base import Roster, Store

PATIENCE = 1.0
"""Seconds a probe waits for the store: probes time out quickly themselves."""
FRESH = 1.0
"""Seconds an answer is used again."""


class StoreProbe:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._asking: asyncio.Task[bool] | None = None
        self._fresh_until = 0.0

    async def answers(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() >= self._fresh_until):
            self._asking = loop.create_task(self._ask(), name="fencepost-store-probe")
        # Shielded: a prober that hangs up must not end the request for the others.
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        try:
            await asyncio.wait_for(
                self._scheduler.ask(self._scheduler.lifecycle.with_store(_roster)), PATIENCE
            )
        except (FencepostError, TimeoutError):
            return False
        finally:
            self._fresh_until = asyncio.get_running_loop().time() + FRESH
        return True


async def _roster(store: Store) -> Roster:
    return await store.roster()
