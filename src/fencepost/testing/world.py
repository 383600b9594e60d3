"""Virtual time for real loops.

A `World` holds one heap of things to happen. A `Process` is an asyncio event loop that lives in it: callbacks
run when the world says so, time stands still while they do, and nothing ever sleeps. A process can be paused
(its callbacks wait), or killed at any await (they never run). Nothing depends on the machine, on hash
seeds or on threads: the same calls give the same order of events.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any, TypeVar

from fencepost.runs.fake import EPOCH as EPOCH

T = TypeVar("T")


class World:
    def __init__(self, start: datetime = EPOCH) -> None:
        self.start = start
        self.now = 0.0
        """Seconds since the start, by the one true clock."""
        self._heap: list[tuple[float, int, Process | None, Any]] = []
        self._count = 0

    def datetime(self, offset: float = 0.0) -> datetime:
        return self.start + timedelta(seconds=round(self.now + offset, 6))

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Schedule a callback of the world itself: it runs even if processes are paused or killed."""
        self._push(when, None, callback)

    def run_until(self, when: float) -> None:
        while self._heap and self._heap[0][0] <= when:
            self._step()
        self.now = max(self.now, when)

    def run_until_done(self, future: asyncio.Future[T], limit: float = 1e9) -> T:
        while not future.done():
            if not self._heap or self._heap[0][0] > limit:
                raise TimeoutError("nothing more will happen, and the awaited thing has not")
            self._step()
        return future.result()

    def _push(self, when: float, process: Process | None, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, process, what))

    def _step(self) -> None:
        when, _, process, what = heapq.heappop(self._heap)
        self.now = when
        if process is None:
            what()
        elif process.killed or what._cancelled:
            return
        elif process.paused_until > when:
            process.hold(what)
        else:
            process.perform(what)


@contextmanager
def no_event_loop() -> Iterator[None]:
    """Code called inside of this finds no running event loop."""
    before = events._get_running_loop()
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(before)


_EventLoop: Any = asyncio.AbstractEventLoop  # only the parts that are needed are there


class Process(_EventLoop):  # type: ignore[misc]
    """One simulated process: an event loop of its own, in the world's time."""

    def __init__(self, world: World, name: str = "process") -> None:
        self.world = world
        self.name = name
        self.killed = False
        self.paused_until = 0.0
        self._held: list[asyncio.Handle] = []
        """Callbacks that became due while it is paused, in that order."""
        self.errors: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    def __lt__(self, other: object) -> bool:
        raise AssertionError("heap entries are told apart by their number")

    # What happens to a process.

    def kill(self) -> None:
        self.killed = True

    def pause(self, seconds: float) -> None:
        self.paused_until = max(self.paused_until, self.world.now + seconds)
        self.world.at(self.paused_until, self._go_on)

    def resume(self) -> None:
        """Before its time."""
        self.paused_until = self.world.now
        self._go_on()

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def _go_on(self) -> None:
        if self.paused_until <= self.world.now:
            held, self._held = self._held, []
            for handle in held:
                self.world._push(self.world.now, self, handle)

    def perform(self, handle: asyncio.Handle) -> None:
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)

    def run_until_complete(self, future: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        if asyncio.iscoroutine(future):
            future = self.create_task(future)
        assert isinstance(future, asyncio.Future)
        return self.world.run_until_done(future)

    # The parts of an event loop that asyncio's tasks, futures and timers need.

    def time(self) -> float:
        return self.world.now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.world._push(self.world.now, self, handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self.world._push(when, self, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """No threads here: it is done at once, while time stands still; as in a thread, no event loop runs there."""
        answer = self.create_future()
        try:
            with no_event_loop():
                result = function(*args)
            answer.set_result(result)
        except Exception as error:
            answer.set_exception(error)
        return answer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        # Without a name asyncio would number them by a counter shared with every other loop.
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.killed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # asyncio complains when the tasks that a kill has cut off are collected as garbage.
        if not self.killed:
            self.errors.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)
