"""The memory store: the reference model behind a lock. One process, gone with it."""

from __future__ import annotations

import os
import threading

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import Fork
from fencepost.store.mirror import Mirror, P, Step, T
from fencepost.store.state import StoreState
from fencepost.store.unreadable import UnreadableRows
from fencepost.store.waiting import Waiters


class MemoryStore(Mirror):
    """Not shared with other processes. Replicas in one process may share the object."""

    shared = False

    def __init__(self, clock: Clock | None = None) -> None:
        self.state = StoreState()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._hints = Waiters()

    def for_reading(self) -> MemoryStore:
        return self

    @property
    def unreadable(self) -> UnreadableRows:
        return self.state.registry

    async def open(self) -> None:
        self._check_fork()

    async def close(self) -> None:
        return None

    async def wait(self, seconds: float) -> bool:
        self._check_fork()
        return await self._hints.wait(seconds)

    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check_fork()
        with self._lock:
            reply = step(self.state, moment_of(self._clock), *args, **kwargs)
            notify, self.state.notify = self.state.notify, False
        if notify:
            self._hints.wake()
        return reply

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            raise Fork(
                "this memory store was made before a fork and is no longer shared with anybody; "
                "use sqlite:///… for several processes, or start the scheduler after forking"
            )
