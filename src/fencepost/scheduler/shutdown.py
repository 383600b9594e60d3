"""The way out under a server: not ready first, while requests are still served; everything else later.

A server that gets SIGTERM closes its listeners at once, and the lifespan hears of it only when they are closed: an
answer "not ready" given then is never seen. So the server's handler is put off. When a scheduler starts inside uvicorn
(alone, with `--workers`, or as gunicorn's worker) the handler is installed already. Ours takes its place:

    SIGTERM → not ready → `ready_delay` → claim no more, hand leadership over, end streams → the server's handler
            → it closes its listeners, requests end, runs end → the lifespan ends: the scheduler stops, pools close

A second SIGTERM, and SIGINT, skip the delay. Servers that we do not know, or that take signals from the event loop,
keep their handlers; then `await scheduler.drain()` does the first half. Nothing here needs a web framework.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
OTHER_SERVERS = {
    "gunicorn.workers.gasgi": "gunicorn -k asgi",
    "granian.asgi": "granian",
    "hypercorn.asyncio.run": "hypercorn",
}
"""Servers that take their signals from the loop or before Python sees them, by a module of theirs."""
CHECK_AFTER = 1.0
"""Seconds from the start to the check that our handlers are still installed: the last installer wins."""
CLOSE = (b"connection", b"close")


class Shutdown:
    """One per scheduler. All but the signal handler is called on the host's event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.draining = False
        """Not ready any more. Requests are still served, and runs still start, until the delay is over."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._streams: set[Callable[[], None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._closed = False
        self._was_signalled = False
        self._followers: list[Shutdown] = []
        """Of other schedulers in this process, which leave with this one."""

    # --- at the start and at the end ---------------------------------------------------------------------

    def install(self) -> None:
        """Take the place of the server's handlers, if there is a server that we know."""
        self.draining = self._closed = self._was_signalled = False
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        server: Any = getattr(handler, "__self__", None)
        if isinstance(server, Shutdown):
            server._followers.append(self)
            return
        if not hasattr(server, "should_exit") or not hasattr(server, "config"):
            for module, name in OTHER_SERVERS.items():
                if module in sys.modules:
                    log.warning("the signals of %s cannot be put off: %s", name, _REMEDY)
            return
        self._server = server
        if server.config.timeout_graceful_shutdown is None:
            # Otherwise one open stream of the application's own would keep the process for ever.
            limit = self._scheduler.settings.drain_timeout.total_seconds()
            server.config.timeout_graceful_shutdown = max(1, math.ceil(limit))
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if callable(previous):
                self._previous[number] = previous
                signal.signal(number, self._signalled)
        for warning in self.warnings():
            log.warning("%s", warning)
        self._timers.append(self._loop.call_later(CHECK_AFTER, self._check_handlers))

    @property
    def server(self) -> Any:
        """The server that this runs in; None: one that we do not know."""
        return self._server

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The host's event loop, from the beginning of a lifespan to its end."""
        return self._loop

    @property
    def is_installed(self) -> bool:
        """Whether a lifespan has begun and not ended."""
        return self._loop is not None

    def uninstall(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers, self._followers = [], []
        if threading.current_thread() is threading.main_thread():
            for number, previous in self._previous.items():
                if signal.getsignal(number) == self._signalled:
                    signal.signal(number, previous)
        self._previous, self._server, self._loop = {}, None, None
        self._end_streams()

    def forget_parent(self) -> None:
        """In a forked child: the loop is a copy that no thread runs."""
        self._loop, self._streams = None, set()

    def warnings(self) -> list[str]:
        """Where the server gives less time than the settings ask for."""
        settings, limit = self._scheduler.settings, _gunicorn_limit(self._server)
        needed = self._delay() + settings.drain_timeout.total_seconds()
        if limit is None or needed <= limit:
            return []
        return [
            f"ready_delay and drain_timeout together take {needed:g} s, but gunicorn kills its workers after "
            f"{limit:g} s: start it with --graceful-timeout {math.ceil(needed)} or more, or lower drain_timeout"
        ]

    # --- streams, which would keep the server from ending -------------------------------------------------

    def watch(self, end: Callable[[], None]) -> None:
        """Call this when streams must end: at once if they must have by now."""
        if self._closed:
            end()
        else:
            self._streams.add(end)

    def forget(self, end: Callable[[], None]) -> None:
        self._streams.discard(end)

    # --- the way out ---------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Not ready, the delay, then claim no more and end streams. For servers whose signals we do not get."""
        self.draining = True
        await asyncio.sleep(self._delay())
        self._close()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Interrupts the main thread between two steps, so it only sets a mark and wakes the loop."""
        loop = self._loop
        first, self._was_signalled = not (self._was_signalled or self.draining), True
        if loop is None or loop.is_closed():
            self._previous[number](number, frame)
        elif number == signal.SIGTERM and first:
            loop.call_soon_threadsafe(self._put_off, number)
        else:
            loop.call_soon_threadsafe(self._close_server, number)

    def _put_off(self, number: int) -> None:
        delay = self._delay()
        log.info("SIGTERM: not ready any more; closing in %g s", delay)
        self._close_connections()  # first: the answer "not ready" asks its client to connect anew, too
        for each in (self, *self._followers):
            each.draining = True
        if self._loop is not None:
            self._timers.append(self._loop.call_later(delay, self._close_server, number))

    def _close_server(self, number: int) -> None:
        self._close()
        if previous := self._previous.get(number):
            previous(number, None)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = self.draining = True
        self._scheduler.begin_drain()
        self._end_streams()
        for follower in self._followers:
            follower._close()

    def _end_streams(self) -> None:
        streams, self._streams = self._streams, set()
        for end in streams:
            end()

    def _close_connections(self) -> None:
        """Ask clients to reconnect for the next request, which then goes elsewhere. Without this a request on an
        idle connection may cross its closing on the way, and fail."""
        with suppress(AttributeError):  # another version of the server: a few requests may fail then
            self._server.config.encoded_headers.append(CLOSE)
            self._server.server_state.default_headers = [*self._server.server_state.default_headers, CLOSE]

    def _delay(self) -> float:
        delay: timedelta = self._scheduler.settings.ready_delay
        reloads = getattr(getattr(self._server, "config", None), "reload", False)
        return 0.0 if reloads else delay.total_seconds()

    def _check_handlers(self) -> None:
        if signal.getsignal(signal.SIGTERM) != self._signalled:
            log.warning("another handler has taken SIGTERM: %s", _REMEDY)


_REMEDY = (
    "the readiness probe will not turn 503 before connections are refused, and runs are claimed until then. Use "
    "uvicorn, or gunicorn with -k uvicorn_worker.UvicornWorker; or call `await scheduler.drain()` before the server "
    "closes its listeners"
)


def _gunicorn_limit(server: Any) -> float | None:
    """How long gunicorn lets a worker live after SIGTERM; it kills it then, and still exits with 0."""
    worker = getattr(getattr(getattr(server, "config", None), "callback_notify", None), "__self__", None)
    limit = getattr(getattr(worker, "cfg", None), "graceful_timeout", None)
    return float(limit) if isinstance(limit, (int, float)) else None
