"""One connection through the proxy: the client's side, the server's side, and what can be done to them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tests.servers.framing import Framing, Request

CHUNK = 65_536
Slices = tuple[int, float]

Action = Callable[["Link", Request], Awaitable[None]]
"""Everything that is done about a request, forwarding included."""


class Link:
    slices: Slices | None = None
    """In pieces of so many bytes, so many seconds apart, until the next request."""

    def __init__(
        self,
        number: int,
        client: Side,
        server: Side,
        passing: asyncio.Event,
        action_for: Callable[[Link, Request], Action],
    ) -> None:
        """`passing`: cleared while nothing may pass. `action_for`: asked once for each request."""
        self.number = number
        self._client = client
        self._server = server
        self._passing = passing
        self._action_for = action_for
        self._cut = asyncio.Event()
        self._silent = False
        self._replies_pass = asyncio.Event()
        self._replies_pass.set()
        self._replies_wanted = True
        self._server_closed = asyncio.Event()

    # --- for actions ----------------------------------------------------------------------------------------

    async def forward(self, request: Request) -> None:
        """To the server."""
        await self._server.send(request.data, self.slices)

    async def forward_as_last(self, request: Request) -> None:
        """To the server; returns when it has done this and all before it. No reply reaches the client any more.

        A first byte of the reply would not prove that: PostgreSQL sends the first rows of a long result before it
        commits. So the server is told that nothing more will come. It still does all it was sent, then closes.
        """
        self._replies_wanted = False
        await self.forward(request)
        self._server.finish()
        await self._server_closed.wait()

    @contextmanager
    def replies_held(self) -> Iterator[None]:
        self._replies_pass.clear()
        try:
            yield
        finally:
            self._replies_pass.set()

    def cut(self, *, reset: bool = False) -> bool:
        """Close both sides; whether it was open."""
        was_open = not self._cut.is_set()
        self._client.close(reset=reset)
        self._server.close()
        self._cut.set()
        return was_open

    def silence(self) -> bool:
        """Swallow everything from now on, and tell neither side of the other's end; whether it was open and heard."""
        was_heard = not self._silent and not self._cut.is_set()
        self._silent = True
        return was_heard

    # --- for the proxy --------------------------------------------------------------------------------------

    async def run(self, framing: Framing) -> None:
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pass_requests(framing))
                pumps.create_task(self._pass_replies())
            if self._silent:
                await self._cut.wait()
            await self._server.closed()
            await self._client.closed()
        finally:
            self._server.abort()
            self._client.abort()

    async def _pass_requests(self, framing: Framing) -> None:
        while data := await self._client.receive():
            for request in framing.feed(data):
                await self._passing.wait()
                if self._silent or self._cut.is_set():
                    break
                self.slices = None
                await self._action_for(self, request)(self, request)
        await self._passing.wait()
        if not self._silent:
            self._server.finish()

    async def _pass_replies(self) -> None:
        while data := await self._server.receive():
            await self._passing.wait()
            await self._replies_pass.wait()
            if self._replies_wanted and not self._silent:
                await self._client.send(data, self.slices)
        self._server_closed.set()
        await self._passing.wait()
        if self._replies_wanted and not self._silent:
            self._client.close()


class Side:
    """A connection. That the peer has gone shows as an end of what it sends, never as an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes:
        try:
            return await self._reader.read(CHUNK)
        except OSError:
            return b""

    async def send(self, data: bytes, slices: Slices | None = None) -> None:
        size, pause = slices or (len(data), 0.0)
        with contextlib.suppress(OSError):  # `receive` will see it
            for at in range(0, len(data), size):
                self._writer.write(data[at : at + size])
                await self._writer.drain()
                if pause:
                    await asyncio.sleep(pause)

    def finish(self) -> None:
        """Nothing more will be sent; what the peer still sends is wanted."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def close(self, *, reset: bool = False) -> None:
        if reset:
            linger_not = struct.pack("ii", 1, 0)
            with contextlib.suppress(OSError):
                self._writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, linger_not
                )
            self.abort()
        else:
            self._writer.close()

    async def closed(self) -> None:
        """Closed, with all that was sent on its way."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        self._writer.transport.abort()
