"""Where bodies run: on the host's event loop and in threads, or inline where time is virtual."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from fencepost.execute import Run
from fencepost.fire import entered


class InlineHost:
    """On the replica's own loop. For virtual time: nothing else may run there while a body blocks."""

    detached = 0

    async def call(self, run: Run) -> BaseException | None:
        return await _outcome(run)


class ThreadedHost:
    """Coroutines on the host's loop, functions in threads. The control loop only waits for their end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slots: int) -> None:
        self._loop = loop
        self._threads = DaemonThreads(slots)
        self.detached = 0

    async def call(self, run: Run) -> BaseException | None:
        return await (self._on_loop(run) if run.task.is_async else self._in_thread(run))

    def close(self) -> None:
        self._threads.close()

    async def _on_loop(self, run: Run) -> BaseException | None:
        """A body's end is told by its own task: after a cancel it counts as running until it has ended."""
        control = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = control.create_future()
        body: list[asyncio.Task[BaseException | None]] = []

        def start() -> None:
            task = self._loop.create_task(_outcome(run), name=run.key)
            body.append(task)
            task.add_done_callback(lambda _: control.call_soon_threadsafe(_hand_over, task, ended))

        def cancel() -> None:
            for task in body:
                task.cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(cancel)
            await _until(ended)
            if not ended.cancelled() and ended.result() is not None:
                return ended.result()
            raise

    async def _in_thread(self, run: Run) -> BaseException | None:
        """A thread cannot be cancelled. Its run ends all the same; its slot stays taken until it returns."""
        ended = asyncio.wrap_future(self._threads.submit(lambda: self._outcome(run)))
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not ended.done():
                run.outlived = True
                self.detached += 1
                ended.add_done_callback(lambda _: self._returned(run))
            raise

    def _outcome(self, run: Run) -> BaseException | None:
        try:
            run.enter()
            result = entered(run.fire, run.task.function, run.task.keywords(run.fire))
            if asyncio.iscoroutine(result):  # a function that turned out to be async
                asyncio.run_coroutine_threadsafe(result, self._loop).result()
        except BaseException as error:
            return error
        return None

    def _returned(self, run: Run) -> None:
        self.detached -= 1
        run.replica.worker.wake()


class DaemonThreads:
    """A pool whose threads do not keep the process from ending: a job may be stuck in one for ever."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._outstanding = 0
        """Work not yet done: waiting, or in a thread."""
        self._started = 0
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[tuple[Work, Future[BaseException | None]] | None] = queue.SimpleQueue()

    def submit(self, work: Work) -> Future[BaseException | None]:
        future: Future[BaseException | None] = Future()
        with self._lock:
            self._work.put((work, future))
            self._outstanding += 1
            if self._started < min(self._outstanding, self._most):
                self._started += 1
                threading.Thread(target=self._run, name=f"fencepost-job-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while True:
            item = self._work.get()
            if item is None:
                return
            work, future = item
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(contextvars.copy_context().run(work))
            finally:
                with self._lock:
                    self._outstanding -= 1


Work = Callable[[], BaseException | None]


async def _outcome(run: Run) -> BaseException | None:
    """Run the body. Whatever it raises is handed over as a value: some exceptions would end the loop itself,
    and others cannot pass through a future."""
    try:
        run.enter()
        result = entered(run.fire, run.task.function, run.task.keywords(run.fire))
        if asyncio.iscoroutine(result):
            await result
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error
    return None


async def _until(ended: asyncio.Future[Any]) -> None:
    """Wait for the body's end, however often this is cancelled meanwhile."""
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended])


def _hand_over(task: asyncio.Task[BaseException | None], ended: asyncio.Future[BaseException | None]) -> None:
    if not ended.done():
        if task.cancelled():
            ended.cancel()
        else:
            ended.set_result(task.result())
