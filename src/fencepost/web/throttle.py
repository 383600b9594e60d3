"""Requests take their share of the process and no more: a client in a loop is slowed down before a fire is.

All threads of a process share one interpreter, and a claim waits for it at every statement. Five clients that ask again
as soon as they are answered keep it busy for good. So the server measures what its answers cost, and spaces requests
out accordingly. A client that asks now and then does not wait: unused time is saved up, for hundreds of answers. Where
requests wait, each client has a queue of its own and the queues take turns: opening more connections does not help.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any

from fencepost.clock import thread_seconds
from fencepost.web.problems import Problem

SAVED = 0.5
"""Seconds: what was not used of the last so many may be used at once."""
MOST_COUNTED = 0.25
"""Seconds that one request counts for at the most: a single slow one must not hold up the others for long."""
WEIGHT = 0.05
"""Of the latest request in the usual cost."""
PATIENCE = 5.0
"""Seconds a request waits for its turn."""


class Throttle:
    def __init__(self, share: float) -> None:
        """`share`: the part of the time that may be spent on what has its turn."""
        self._share = share
        self._usual = 0.0
        """What a request costs, in seconds: a moving average."""
        self._next_at = 0.0
        """When the next request may begin, on the event loop's clock."""
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting requests by client, in the order in which the clients have their turns."""
        self._dispatcher: asyncio.Task[None] | None = None

    async def turn(self, client: str) -> None:
        """Wait until a request of this client may begin. Raises 503 if that takes too long."""
        loop = asyncio.get_running_loop()
        if not self._queues and self._next_at <= loop.time():
            self._begin(loop.time())
            return
        turn = loop.create_future()
        self._queues.setdefault(client, deque()).append(turn)
        if self._dispatcher is None or self._dispatcher.done():
            self._dispatcher = loop.create_task(self._dispatch(), name="fencepost-throttle")
        try:
            async with asyncio.timeout(PATIENCE):
                await turn
        except TimeoutError:
            raise Problem(503, "too many requests; try again", headers={"Retry-After": "5"}) from None

    def cost(self, seconds: float) -> None:
        """A request that had its turn has cost this much."""
        self._usual += WEIGHT * (min(seconds, MOST_COUNTED) - self._usual)

    async def _dispatch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queues:
            await asyncio.sleep(max(0.0, self._next_at - loop.time()))
            client, queue = next(iter(self._queues.items()))
            del self._queues[client]
            turn = queue.popleft()
            if queue:
                self._queues[client] = queue  # behind all other clients
            if not turn.done():  # else the request has been given up
                self._begin(loop.time())
                turn.set_result(None)

    def _begin(self, now: float) -> None:
        self._next_at = max(self._next_at, now - SAVED) + self._usual / self._share


class Metered:
    """Awaits work, and adds up the CPU time of its steps on the event loop. Waiting costs nothing."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, None, None]:
        raised: BaseException | None = None
        while True:
            begun = thread_seconds()
            try:
                awaited = self._work.send(None) if raised is None else self._work.throw(raised)
            except StopIteration:
                return
            finally:
                self.seconds += thread_seconds() - begun
            raised = None
            try:
                yield awaited
            except BaseException as error:  # above all a cancellation, which the work must see
                raised = error
