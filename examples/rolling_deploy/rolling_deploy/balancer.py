"""A balancer as small as can be: TCP connections in turn to the instances whose readiness probe says 200."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from fencepost.clock import SystemClock

HOST = "127.0.0.1"
PROBE_EVERY = 0.1
PATIENCE = 2.0
"""Seconds for a probe to be answered, and for a new connection to wait until some instance is ready."""
PROBE = b"GET /health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
CHUNK = 65_536


@dataclass(eq=False)
class Backend:
    port: int
    ready: bool = False
    unready_at: float | None = None
    """When it last turned from ready to not ready, by the steady clock."""
    refusal: bytes = b""
    """What it answered then."""


@dataclass
class Balancer:
    backends: list[Backend] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """The probes, and whoever serves a connection."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def __aenter__(self) -> Balancer:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks.add(asyncio.create_task(self._probe_all()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # else the loop ends before they have

    def add(self, port: int) -> Backend:
        backend = Backend(port)
        self.backends.append(backend)
        return backend

    def remove(self, backend: Backend) -> None:
        self.backends.remove(backend)

    # --- probes -------------------------------------------------------------------------------------------

    async def _probe_all(self) -> None:
        while True:
            await asyncio.gather(*(self._probe(backend) for backend in list(self.backends)))
            await asyncio.sleep(PROBE_EVERY)

    async def _probe(self, backend: Backend) -> None:
        was_ready, answer = backend.ready, b""
        with contextlib.suppress(OSError, TimeoutError):  # no answer is an answer: not ready
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(HOST, backend.port)
                with contextlib.closing(writer):
                    writer.write(PROBE)
                    answer = await reader.read()
        backend.ready = answer.startswith(b"HTTP/1.1 200 ")
        if was_ready and not backend.ready:
            backend.unready_at, backend.refusal = SystemClock().steady(), answer

    # --- connections --------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways until the instance has said all. Whoever has a connection keeps it: one that shuts down asks its
        clients, by `Connection: close`, to come again."""
        self.connections += 1
        me = asyncio.current_task()
        assert me is not None
        self._tasks.add(me)
        me.add_done_callback(self._tasks.discard)
        with contextlib.closing(writer):
            there = await self._connect()
            if there is None:
                return
            asking = asyncio.create_task(_pass(reader, there[1]))
            with contextlib.closing(there[1]):
                try:
                    await _pass(there[0], writer)
                finally:
                    asking.cancel()
                    await asyncio.wait([asking])

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """To the next one in turn. One that refuses the connection was sent nothing, so another may be asked."""
        deadline = SystemClock().steady() + PATIENCE
        while SystemClock().steady() < deadline:
            for backend in [backend for backend in self.backends if backend.ready]:
                self.backends.remove(backend)
                self.backends.append(backend)
                with contextlib.suppress(OSError):
                    return await asyncio.open_connection(HOST, backend.port)
            await asyncio.sleep(PROBE_EVERY)
        return None


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # a side that is gone has said all
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
