"""The memory store: the reference model behind a lock. One process, gone with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import Fork
from fencepost.store.mirror import Mirror, P, Step, T
from fencepost.store.state import StoreState


class MemoryStore(Mirror):
    """Not shared with other processes. Replicas in one process may share the object."""

    shared = False

    def __init__(self, clock: Clock | None = None) -> None:
        self.state = StoreState()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def open(self) -> None:
        self._check_fork()

    async def close(self) -> None:
        return None

    async def wait(self, seconds: float) -> bool:
        self._check_fork()
        loop = asyncio.get_running_loop()
        hint: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._waiting.append((loop, hint))
        timer = loop.call_later(seconds, _resolve, hint)
        try:
            await hint
        finally:
            timer.cancel()
            with self._lock:
                hinted = (loop, hint) not in self._waiting
                self._waiting = [entry for entry in self._waiting if entry[1] is not hint]
        return hinted

    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check_fork()
        with self._lock:
            reply: T = getattr(self.state, step.__name__)(moment_of(self._clock), *args, **kwargs)
            waiting = self._waiting if self.state.hinted else []
            if waiting:
                self._waiting = []
            self.state.hinted = False
        for loop, hint in waiting:
            with contextlib.suppress(RuntimeError):  # its loop has just been closed
                loop.call_soon_threadsafe(_resolve, hint)
        return reply

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            raise Fork(
                "this memory store was made before a fork and is no longer shared with anybody; "
                "use sqlite:///… for several processes, or start the scheduler after forking"
            )


def _resolve(hint: asyncio.Future[None]) -> None:
    if not hint.done():
        hint.set_result(None)
