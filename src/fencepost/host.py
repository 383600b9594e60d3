"""Where bodies run: on the host's event loop and in threads, or inline where time is virtual."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fencepost.execute import Run
from fencepost.fire import entered


class InlineHost:
    """On the replica's own loop. For virtual time: nothing else may run there while a body blocks."""

    detached = 0

    async def call(self, run: Run) -> None:
        run.enter()
        result = entered(run.fire, run.task.function, run.task.keywords(run.fire))
        if asyncio.iscoroutine(result):
            await result


class ThreadedHost:
    """Coroutines on the host's loop, functions in threads. The control loop only waits for their end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slots: int) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="fencepost-job")
        self._detached = 0

    @property
    def detached(self) -> int:
        return self._detached

    async def call(self, run: Run) -> None:
        if run.task.is_async:
            await self._on_loop(run)
        else:
            await self._in_thread(run)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _on_loop(self, run: Run) -> None:
        """A body's end is told by its own task: after a cancel it counts as running until it has ended."""
        control = asyncio.get_running_loop()
        ended: asyncio.Future[None] = control.create_future()
        body: list[asyncio.Task[None]] = []

        async def call() -> None:
            run.enter()
            await entered(run.fire, run.task.function, run.task.keywords(run.fire))

        def start() -> None:
            task = self._loop.create_task(call(), name=run.key)
            body.append(task)
            task.add_done_callback(lambda _: control.call_soon_threadsafe(_hand_over, task, ended))

        def cancel() -> None:
            for task in body:
                task.cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not ended.done():
                self._loop.call_soon_threadsafe(cancel)
                await asyncio.wait([ended])
            if not ended.cancelled() and (error := ended.exception()) is not None:
                raise error from None
            raise

    async def _in_thread(self, run: Run) -> None:
        """A thread cannot be cancelled. Its run ends all the same; its slot stays taken until it returns."""
        context = contextvars.copy_context()
        call = functools.partial(context.run, self._entered, run)
        ended = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not ended.done():
                run.outlived = True
                self._detached += 1
                ended.add_done_callback(lambda _: self._returned(run, ended))
            raise

    def _entered(self, run: Run) -> None:
        run.enter()
        result = entered(run.fire, run.task.function, run.task.keywords(run.fire))
        if asyncio.iscoroutine(result):  # a lambda or a partial that turned out to be async
            asyncio.run_coroutine_threadsafe(result, self._loop).result()

    def _returned(self, run: Run, ended: asyncio.Future[Any]) -> None:
        self._detached -= 1
        if not ended.cancelled():
            ended.exception()  # nobody waits for it any more
        run.replica.worker.wake()


def _hand_over(task: asyncio.Task[None], ended: asyncio.Future[None]) -> None:
    if ended.done():
        return
    if task.cancelled():
        ended.cancel()
    elif (error := task.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(None)
