"""A feed as server-sent events. A stream ends when the client goes, when it takes no bytes for too long, or at once
when the process is to end: it never delays that."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fencepost.values import json_text
from fencepost.web.feed import Feed, Told
from fencepost.web.problems import Problem
from fencepost.web.transport import TRANSPORT

MOST_STREAMS = 200
HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent: proxies close connections that seem idle."""
STALLED = 30.0
"""Seconds a client may take no bytes."""
RETRY_MS = 2_000
BUFFERED = 16_384
"""Bytes that may wait for a client in this process before it counts as taking none."""


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, feed: Feed, job_id: str | None, last_id: str | None) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed
        self._job_id = job_id
        self._last_id = last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body"})
            return
        if self._feed.listeners >= MOST_STREAMS:
            raise Problem(503, f"{MOST_STREAMS} streams are open already", headers={"Retry-After": "10"})
        listener = await self._feed.join(self._job_id, self._last_id)
        transport = scope.get(TRANSPORT)
        if transport is not None:
            transport.set_write_buffer_limits(high=BUFFERED)
        gone = asyncio.create_task(_until_gone(receive))
        gone.add_done_callback(lambda _: listener.end())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            text = f"retry: {RETRY_MS}\n\n"
            while text:
                async with asyncio.timeout(STALLED):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
                text = await _next(listener.queue)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # It takes no bytes. A server that closes the connection would wait for it to take the rest.
            if transport is not None:
                transport.abort()
                await asyncio.wait({gone}, timeout=1)
        finally:
            self._feed.leave(listener)
            gone.cancel()


async def _next(queue: asyncio.Queue[Told | None]) -> str:
    """The next event as text, or a sign of life; empty: the end."""
    try:
        async with asyncio.timeout(HEARTBEAT):
            told = await queue.get()
    except TimeoutError:
        return ": still here\n\n"
    if told is None:
        return ""
    return f"id: {told.id}\nevent: {told.kind}\ndata: {json_text(told.data)}\n\n"


async def _until_gone(receive: Receive) -> None:
    with suppress(Problem):
        while (await receive())["type"] != "http.disconnect":
            pass
