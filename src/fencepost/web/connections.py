"""How many connections `fencepost serve` holds, and for how long it waits on them.

Any client that reaches the port can open connections and leave them idle. Three rules keep that harmless:

- A request's headers must arrive within `HEADERS_WITHIN` seconds of the connection, or of the request's first byte.
- Where there is no room for another connection, the oldest idle one is closed. Idle connections cost a client
  little, so a new connection, which may be a probe, comes first. Where none is idle, a few more are taken, and only
  probes are answered on them.
- The limit leaves descriptors for the store and the jobs, whatever `ulimit -n` says.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fencepost.web.gate import PROBES, path_of
from fencepost.web.problems import Problem
from fencepost.web.seldom import Seldom

log = logging.getLogger("fencepost")

HEADERS_WITHIN = 10.0
MOST_CONNECTIONS = 1_000
FOR_PROBES = 50
"""Connections beyond the limit, on which only probes are answered."""
ACCEPTED_AT_ONCE = 64
"""Connections that may be accepted before the first of them is counted."""
FOR_STORE = 100
FOR_EACH_SLOT = 8
"""Descriptors kept free: for the store and files, and for each run (pipes of a process or a command)."""
FEWEST = 20


def room(slots: int) -> int:
    """How many connections this process may hold beside everything else it does."""
    limit = _descriptor_limit()
    if limit is None:
        return MOST_CONNECTIONS
    kept = FOR_STORE + FOR_EACH_SLOT * slots + FOR_PROBES + ACCEPTED_AT_ONCE
    free = limit - _open_descriptors() - kept
    if free < FEWEST:
        log.warning(
            "`ulimit -n` is %d: too few descriptors for %d slots and a service; raise it", limit, slots
        )
    return max(FEWEST, min(MOST_CONNECTIONS, free))


class Guest(Protocol):
    """A connection, as its room sees it."""

    @property
    def is_idle(self) -> bool:
        """No request is being answered."""

    @property
    def has_asked(self) -> bool: ...

    def drop(self) -> None: ...

    def answer_only_probes(self) -> None: ...


class OpenConnections:
    """The connections of one server."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._here: dict[Guest, None] = {}
        """In the order in which they came."""
        self._full = Seldom(log)

    def enter(self, newcomer: Guest) -> None:
        self._here[newcomer] = None
        if len(self._here) <= self.most:
            return
        oldest = self._oldest_idle(newcomer)
        self._full.warning("%d connections are open: the oldest idle ones are closed for new ones", self.most)
        if oldest is not None:
            oldest.drop()
        elif len(self._here) <= self.most + FOR_PROBES:
            newcomer.answer_only_probes()
        else:
            newcomer.drop()

    def leave(self, guest: Guest) -> None:
        self._here.pop(guest, None)

    def _oldest_idle(self, newcomer: Guest) -> Guest | None:
        idle = [each for each in self._here if each.is_idle and each is not newcomer]
        return next((each for each in idle if not each.has_asked), idle[0] if idle else None)


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with a place in a room and a time limit for headers."""

    room: OpenConnections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience: asyncio.TimerHandle | None = None
        self._await_headers()
        self.room.enter(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._stop_waiting()
        elif self._patience is None:
            self._await_headers()

    def on_response_complete(self) -> None:
        self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.room.leave(self)
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        return not self.has_asked or self.cycle.response_complete

    @property
    def has_asked(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None

    def drop(self) -> None:
        self.room.leave(self)
        self.transport.abort()

    def answer_only_probes(self) -> None:
        self.app: Any = only_probes(self.app)

    def _await_headers(self) -> None:
        self._patience = self.loop.call_later(HEADERS_WITHIN, self._impatient)

    def _impatient(self) -> None:
        if self.is_idle and self.timeout_keep_alive_task is None:
            self.drop()

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def protocol_in(room: OpenConnections) -> type[BoundedProtocol]:
    return type("ServedProtocol", (BoundedProtocol,), {"room": room})


def only_probes(app: ASGIApp) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if path_of(scope) in PROBES:
            await app(scope, receive, send)
            return
        headers = {"Retry-After": "5", "Connection": "close"}
        await Problem(503, "too many connections; try again", headers=headers).response()(
            scope, receive, send
        )

    return answer


def log_accept_errors_once(loop: asyncio.AbstractEventLoop) -> None:
    """The loop itself writes a traceback for each connection that waits, as often as it tries again."""
    seldom = Seldom(log)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("message", "")).startswith("socket.accept()"):
            seldom.warning("cannot accept connections: %s; raise `ulimit -n`", context.get("exception"))
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def _descriptor_limit() -> int | None:
    """None: there is none; Windows has no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 20
