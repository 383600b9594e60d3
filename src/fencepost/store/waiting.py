"""Hints: who waits for one, on whatever event loop, and how they are woken from any thread; the signs of the leader."""

from __future__ import annotations

import asyncio
import contextlib
import threading

ASSURE_EVERY = 0.5
"""Seconds between two signs of the leader."""
SILENT_AFTER = 0.6
"""Seconds after a sign until the leader counts as silent, and evidence is asked for. Together with the questions this
must stay below the second in which a leader that was killed is replaced."""


class Assurance:
    """The last sign of life of the leader that this process heard."""

    def __init__(self) -> None:
        self._last: tuple[str, float] = ("", float("-inf"))

    def heard(self, replica: str, steady: float) -> None:
        self._last = replica, steady

    def lasts(self, replica: str | None, steady: float) -> float:
        """Seconds until this replica (None: whichever was last heard) counts as silent; 0: it does."""
        who, at = self._last
        return max(0.0, at + SILENT_AFTER - steady) if replica in (None, who) else 0.0


class Waiters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def wait(self, seconds: float) -> bool:
        """Until a hint wakes all who wait (True), or the time is up."""
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
