"""Who waits for a hint, on whatever event loop, and how they are woken from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Waiters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def wait(self, seconds: float) -> bool:
        """Until somebody wakes all who wait (True), or the time is up."""
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

    def wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loop, hint in waiting:
            with contextlib.suppress(RuntimeError):  # its loop has just been closed
                loop.call_soon_threadsafe(_resolve, hint)


def _resolve(hint: asyncio.Future[None]) -> None:
    if not hint.done():
        hint.set_result(None)
