"""The read side: everything that only reads the store goes through a reader, and no fire waits for it.

A reader has its own store object (`Store.for_reading`) and its own thread. Requests for the same thing within a
second share one reading (`shared`), and a reading that took long is shared for longer. So reading takes a small part of
the machine, however many requests there are and however much there is to read.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, Protocol, TypeVar

from fencepost.clock import SystemClock
from fencepost.errors import FencepostError
from fencepost.insight.board import Board, Reading, read_all
from fencepost.insight.cluster import Cluster, cluster_of
from fencepost.insight.pictures.kept import KeptPictures
from fencepost.replica.control import ControlThread
from fencepost.store.base import Store
from fencepost.store.rereading import READ_AGAIN, read_again

T = TypeVar("T")

FRESH = 1.0
"""Seconds for which a reading is shared."""
TIMES_ITS_COST = 10.0
"""Or so many times as long as it took, if that is longer,"""
MOST_FRESH = 15.0
"""but never for longer: a reading may have taken long because the server was stopped for a while."""
MOST_SHARED = 200
QUICK = 0.03
"""Seconds: a reading of everything that takes less is waited for."""
KEEP_UP = 15.0
"""Seconds between two background readings (`keep_up`)."""
SOON = 2.0
"""Seconds between the first two of them: a replica stores its jobs a moment after it has joined."""


class Owner(Protocol):
    """The scheduler, as far as a reader knows it."""

    @property
    def store(self) -> Store: ...

    @property
    def is_inline(self) -> bool:
        """Whether a test owns the time, and the caller's loop is the only one."""

    def show_store(self, store: Store) -> None: ...

    def control_thread(self) -> ControlThread: ...

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the control loop and await it here."""

    async def with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run `work` on the control loop, with the store open."""


class Reader:
    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._thread: ControlThread | None = None
        self._own_thread: ControlThread | None = None
        self._is_open = False
        self._store: Store | None = None
        self._source: Store | None = None
        """The store that `_store` reads from."""
        self._shared: dict[Hashable, tuple[asyncio.Task[Any], float]] = {}
        """By what is read: the reading, and until when it is fresh by the clock of this thread's loop."""
        self._board = Board()
        self._kept = KeptPictures()
        self._keeping_up: concurrent.futures.Future[None] | None = None
        self._clock = SystemClock()
        self._again_at = 0.0
        self.last: Reading | None = None
        """The latest reading of everything."""
        self._last_at = 0.0
        self._last_took = 0.0
        self._changes = self._last_of = 0
        """How often something was changed here: by now, and when the latest reading began."""
        self._renewing: asyncio.Task[None] | None = None

    async def ask(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run `work` with the store. May be called from any loop."""
        return await self._submit(self._with_store(work))

    def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that asks this reader, on the reading thread, and wait for it."""
        return self._blocking_thread().submit(work).result()

    async def shared(self, what: Hashable, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """The same, read once for all requests for this within a second."""
        return await self._submit(self._share(what, work))

    def shared_blocking(
        self, what: Hashable, work: Callable[[Store], Coroutine[Any, Any, T]], patience: float
    ) -> T:
        """The same for a thread that waits, so many seconds at the most; raises `TimeoutError`."""
        return self._blocking_thread().submit(self._share(what, work)).result(patience)

    def fresh(self, what: Hashable) -> Any | None:
        """What `shared` would answer without reading anything; None: it would read. From any thread, at once: to ask
        the reading thread costs more than most answers, and each switch between threads may keep a fire waiting."""
        thread = self._thread
        found, until = self._shared.get(what, (None, 0.0))
        if thread is None or found is None or thread.loop.time() >= until or _failed(found):
            return None
        return found.result()

    async def everything(self) -> Reading:
        return await self.shared("everything", self.read_everything)

    async def cluster(self) -> Cluster:
        return await self.shared("cluster", cluster_of)

    async def read_everything(self, store: Store) -> Reading:
        """For work that is shared itself: on the reading thread."""
        cluster = await self._share("cluster", cluster_of)
        await self._read_again(store)
        begun, changes = self._clock.steady(), self._changes
        reading = await read_all(store, self._board, cluster)
        self.last, self._last_at, self._last_of = reading, self._clock.steady(), changes
        self._last_took = self._last_at - begun
        return reading

    async def recent(self) -> Reading:
        """Everything. Where reading it takes long, this returns the last reading, at most a few seconds old, and starts
        a new one in the background. On the reading thread."""
        too_old = self._last_of != self._changes or self.last_age_seconds > MOST_FRESH
        if self.last is None or too_old or self._last_took < QUICK or self._thread is None:
            return await self._share("everything", self.read_everything)
        if self.fresh("everything") is None and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())
        return self.last

    async def _renew(self) -> None:
        try:
            with suppress(FencepostError):  # the next request meets the same error and reports it
                await self._share("everything", self.read_everything)
        finally:
            self._renewing = None

    def steady(self) -> float:
        """Seconds by a clock that only goes forward."""
        return self._clock.steady()

    @property
    def last_age_seconds(self) -> float:
        """Of the latest reading of everything."""
        return self._clock.steady() - self._last_at

    @property
    def board(self) -> Board:
        """Belongs to the reading thread."""
        return self._board

    @property
    def kept(self) -> KeptPictures:
        """What the pictures keep. Belongs to the reading thread."""
        return self._kept

    def forget(self) -> None:
        """Something was changed by this process: later requests must see it."""
        self._changes += 1
        with self._lock:
            self._shared.clear()

    def keep_up(self) -> None:
        """From now on read everything now and then, so that there is a last reading when the store goes down."""
        thread = self._prepared()
        if thread is not None and (self._keeping_up is None or self._keeping_up.done()):
            self._keeping_up = thread.submit(self._keep_up())

    async def _keep_up(self) -> None:
        for wait in chain([SOON], repeat(KEEP_UP)):
            with suppress(FencepostError):  # requests report the error themselves; the last reading stays
                await self._share("everything", self.read_everything)
            await asyncio.sleep(wait)

    async def _read_again(self, store: Store) -> None:
        """Unreadable rows may have been restored or removed. On the replica's own store its inspector checks them."""
        now = self._clock.steady()
        if store.unreadable and store is not self._source and now >= self._again_at:
            self._again_at = now + READ_AGAIN
            await read_again(store)

    # --- on the reading thread ------------------------------------------------------------------------------

    async def _share(self, what: Hashable, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        loop = asyncio.get_running_loop()
        found, until = self._shared.get(what, (None, 0.0))
        if found is None or (found.done() and (loop.time() >= until or _failed(found))):
            if len(self._shared) >= MOST_SHARED:
                self._shared.clear()
            found = loop.create_task(self._timed(what, work), name=f"fencepost-reading-{what}")
            found.add_done_callback(_failed)
            self._shared[what] = found, 0.0
        # Shielded: a caller that gives up must not cancel the reading for the others.
        return await asyncio.shield(found)

    async def _timed(self, what: Hashable, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        loop = asyncio.get_running_loop()
        store = await self._ready_store()  # waits for as long as it is down, which costs nothing
        begun = loop.time()
        result = await work(store)
        took = loop.time() - begun
        fresh = min(MOST_FRESH, max(FRESH - took, TIMES_ITS_COST * took))
        with self._lock:  # what was changed meanwhile (`forget`) is not in it
            if (mine := self._shared.get(what)) is not None and mine[0] is asyncio.current_task():
                self._shared[what] = mine[0], begun + took + fresh
        return result

    async def _with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        return await work(await self._ready_store())

    async def _ready_store(self) -> Store:
        if not self._is_open:
            await self._owner.ask(self._owner.with_store(_nothing))  # it is made, and open
            self._is_open = True
        assert self._store is not None
        return self._store

    # --- the thread -----------------------------------------------------------------------------------------

    async def _submit(self, work: Coroutine[Any, Any, T]) -> T:
        thread = self._prepared()
        if thread is None or asyncio.get_running_loop() is thread.loop:
            return await work
        return await asyncio.wrap_future(thread.submit(work))

    def _prepared(self) -> ControlThread | None:
        """The thread on which the store is read; None: the caller's own loop, where a test controls the time."""
        with self._lock:
            source = self._owner.store
            if self._source is not source:
                self._source, self._is_open, self._shared = source, False, {}
                elsewhere = None if self._owner.is_inline else source.for_reading()
                self._store = elsewhere or source
                if self._store is not source:
                    self._owner.show_store(self._store)
                if elsewhere is None:
                    self._thread = None if self._owner.is_inline else self._owner.control_thread()
                    self._is_open = False
                else:
                    self._thread = self._own_thread = self._own_thread or ControlThread("fencepost-reader")
            return self._thread

    def _blocking_thread(self) -> ControlThread:
        """For callers that wait."""
        thread = self._prepared()
        assert thread is not None, "where a test controls the time, the only thread cannot wait for itself"
        return thread

    def close(self) -> None:
        """Blocks for a moment."""
        with self._lock:
            own, self._own_thread, self._thread = self._own_thread, None, None
            store, source, self._store, self._source = self._store, self._source, None, None
            self._keeping_up = None
        if own is None:
            return
        if store is not None and store is not source:
            own.submit(store.close()).result()
        own.stop()


async def _nothing(store: Store) -> None:
    return None


def _failed(task: asyncio.Task[Any]) -> bool:
    """Reads the exception, so that asyncio does not log it as never retrieved: the callers have received it."""
    return task.cancelled() or task.exception() is not None
