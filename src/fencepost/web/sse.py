"""A feed as server-sent events. A stream ends when the client goes, when it takes no bytes for too long, or at once
when the process is to end: it never delays that."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fencepost.model.triggers import iso
from fencepost.model.values import json_text
from fencepost.web.feed import Feed
from fencepost.web.listener import StreamListener
from fencepost.web.problems import Problem
from fencepost.web.transport import TRANSPORT

MOST_STREAMS = 200
HEARTBEAT_SECONDS = 5.0
"""Seconds of silence after which a `beat` is sent. Proxies close connections that seem idle; and a client that misses
three knows that its connection is dead."""
STALLED = 30.0
"""Seconds a client may take no bytes."""
RETRY_MS = 2_000
BUFFERED = 16_384
"""Bytes that may wait for a client in this process before it counts as taking none;"""
BUFFERED_BY_KERNEL = 65_536
"""and in the kernel, which would else take megabytes for each, and hide for minutes that it takes none."""

POLLED = "fencepost.polled"
"""In the scope of a request that cannot be answered bit by bit (`wsgi.py`)."""
POLL_MS = 3_000
"""Milliseconds after which its client sends the next request. The feed goes on for longer without listeners."""


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, feed: Feed, listener: StreamListener, last_id: str | None) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed
        self._listener = listener
        self._last_id = last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body"})
            return
        if self._feed.listeners >= MOST_STREAMS:
            raise Problem(503, f"{MOST_STREAMS} streams are open already", headers={"Retry-After": "10"})
        if scope.get(POLLED):
            await self._answer_at_once(send)
            return
        listener = self._listener
        await self._feed.join(listener, self._last_id)
        transport = scope.get(TRANSPORT)
        if transport is not None:
            _limit_buffers(transport)
        gone = asyncio.create_task(_until_gone(receive))
        gone.add_done_callback(lambda _: listener.end())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            text: str | None = f"retry: {RETRY_MS}\n\n"
            while text is not None:
                async with asyncio.timeout(STALLED):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
                text = await listener.take(HEARTBEAT_SECONDS)
                if text == "":
                    text = self._heartbeat()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # It takes no bytes. A server that closes the connection would wait for it to take the rest.
            if transport is not None:
                transport.abort()
                await asyncio.wait({gone}, timeout=1)
        finally:
            self._feed.leave(listener)
            gone.cancel()

    async def _answer_at_once(self, send: Send) -> None:
        """With what happened since the last event the client has seen."""
        await self._feed.join(self._listener, self._last_id)
        try:
            text = f"retry: {POLL_MS}\n\n{self._heartbeat(polled=True)}"
            while more := await self._listener.take(0):
                text += more
        finally:
            self._feed.leave(self._listener)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": text.encode()})

    def _heartbeat(self, **more: bool) -> str:
        """Without an id: a stream that breaks off goes on after the last event."""
        if not self._listener.wants("beat"):
            return ": still here\n\n"
        at = self._feed.polled_at
        return f"event: beat\ndata: {json_text({'now': iso(at) if at else None, **more})}\n\n"


def _limit_buffers(transport: asyncio.Transport) -> None:
    transport.set_write_buffer_limits(high=BUFFERED)
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFERED_BY_KERNEL)


async def _until_gone(receive: Receive) -> None:
    with suppress(Problem):
        while (await receive())["type"] != "http.disconnect":
            pass
