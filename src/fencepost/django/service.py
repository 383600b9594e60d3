"""The service (an ASGI application) behind a Django view, under WSGI and ASGI servers alike.

It runs on the event loop that the scheduler was started on in this process. A process that takes no part has none: it
gets a loop in a thread of its own, where the service only looks and acts.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from fencepost.django.access import CALLER, authorize
from fencepost.django.project import project_scheduler
from fencepost.replica.control import ControlThread
from fencepost.scheduler.applications import AsgiService
from fencepost.scheduler.scheduler import Scheduler
from fencepost.web.sse import POLLED

Message = dict[str, Any]
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade"})


class Bridge:
    """Of one process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._service: AsgiService = scheduler.asgi(replica=False, authorize=authorize)
        self._lock = threading.Lock()
        self._living: Any = None

    async def respond(self, request: HttpRequest, root: str, caller: Any) -> HttpResponseBase:
        can_stream = hasattr(request, "scope")  # it came from an ASGI server
        scope = {**scope_of(request, root), CALLER: caller, POLLED: not can_stream}
        answers: asyncio.Queue[Message] = asyncio.Queue()
        here = asyncio.get_running_loop()
        body = request.body

        def hand_over(message: Message) -> None:
            with suppress(RuntimeError):  # the view has ended, and under WSGI its loop with it
                here.call_soon_threadsafe(answers.put_nowait, message)

        loop = self._scheduler.shutdown.loop
        if loop is None:
            loop = await here.run_in_executor(None, self._loop)
        serving = asyncio.run_coroutine_threadsafe(self._serve(scope, body, hand_over), loop)
        try:
            start = await answers.get()
            first = await answers.get() if start["type"] == "http.response.start" else start
        except BaseException:
            serving.cancel()
            raise
        if start["type"] == "failed":
            raise start["error"]
        parts = _parts(first, answers, serving)
        streams = can_stream and bool(first.get("more_body"))
        return _response(start, parts if streams else b"".join([part async for part in parts]))

    async def _serve(self, scope: Message, body: bytes, hand_over: Any) -> None:
        """On the service's loop. Whatever happens, the view hears of the end."""
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not messages:
                await asyncio.get_running_loop().create_future()  # who goes away cancels this
            return messages.pop()

        async def send(message: Message) -> None:
            hand_over(message)

        try:
            await self._service(scope, receive, send)
        except Exception as error:
            hand_over({"type": "failed", "error": error})
        finally:
            hand_over({"type": "http.response.body", "more_body": False})

    def _loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._scheduler.shutdown.loop is None:
                self._living = self._service.lifespan(None)
                ControlThread("fencepost-web").submit(self._living.__aenter__()).result()
            loop = self._scheduler.shutdown.loop
            assert loop is not None
            return loop


async def _parts(first: Message, answers: asyncio.Queue[Message], serving: Any) -> AsyncIterator[bytes]:
    """The body. Ends the serving if the client, or the reader of this, goes."""
    message = first
    try:
        while True:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return
            message = await answers.get()
    finally:
        serving.cancel()


def _response(start: Message, body: bytes | AsyncIterator[bytes]) -> HttpResponseBase:
    streams = not isinstance(body, bytes)
    make = StreamingHttpResponse if streams else HttpResponse
    response: HttpResponseBase = make(body, status=start["status"])
    del response["Content-Type"]
    for name, value in start["headers"]:
        text = name.decode("latin-1").lower()
        if text == "set-cookie":
            response.cookies.load(value.decode("latin-1"))  # there may be several
        elif text not in HOP_BY_HOP and not (streams and text == "content-length"):
            response[text] = value.decode("latin-1")
    return response


def scope_of(request: HttpRequest, root: str) -> Message:
    """The request as an ASGI application is told of it."""
    meta = request.META
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": root,
        "query_string": meta.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "client": (meta.get("REMOTE_ADDR") or "", 0),
        "server": (meta.get("SERVER_NAME") or "", int(meta.get("SERVER_PORT") or 0)),
    }


_bridges: dict[int, Bridge] = {}


def bridge() -> Bridge:
    """Of this process: nothing of it follows into a fork."""
    pid = os.getpid()
    if pid not in _bridges:
        _bridges.clear()
        _bridges[pid] = Bridge(project_scheduler())
    return _bridges[pid]
