"""Answers are compressed for clients that accept it. Streams are not: an event must not wait for the next one."""

from __future__ import annotations

import asyncio
import gzip

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SHORTEST = 1_000
"""Bytes from which on it is worth it."""
LEVEL = 3
ASIDE = 100_000
"""Bytes that are compressed on another thread, so that the server goes on meanwhile."""


class Compression:
    """Around answers that are sent in one piece, whatever made them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not accepts_gzip(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def packed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _may_be_packed(message):
                start = message
                return
            if start is not None:
                first, start = start, None
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    message = await _pack(first, message)
                await send(first)
            await send(message)

        await self._app(scope, receive, packed)


def accepts_gzip(scope: Scope) -> bool:
    asked = Headers(scope=scope).get("accept-encoding", "")
    for each in asked.split(","):
        coding, _, rest = each.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return rest.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _may_be_packed(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "")
    return (
        start["status"] not in (204, 304)
        and "content-encoding" not in headers
        and not kind.startswith("text/event-stream")
    )


async def _pack(start: Message, message: Message) -> Message:
    body = message.get("body", b"")
    headers = MutableHeaders(raw=start["headers"])
    headers.add_vary_header("Accept-Encoding")
    if len(body) < SHORTEST:
        return message
    if len(body) >= ASIDE:
        body = await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
    else:
        body = gzip.compress(body, LEVEL, mtime=0)
    headers["Content-Encoding"], headers["Content-Length"] = "gzip", str(len(body))
    start["headers"] = headers.raw
    return {**message, "body": body}
