"""The service under WSGI: each request becomes a call of the ASGI application, on an event loop in a thread.

    application = DispatcherMiddleware(application, {"/fencepost": scheduler.wsgi()})

A WSGI server gives a request a thread until it is answered, so nothing is answered bit by bit: a stream of events is
answered at once, with what happened since the client's last event and a hint when to ask again (`sse.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from fencepost.errors import UsageError
from fencepost.replica.control import ControlThread
from fencepost.store import forks
from fencepost.web.app import WebApp
from fencepost.web.gate import MOST_BODY_BYTES, OPEN
from fencepost.web.problems import Problem
from fencepost.web.sse import POLLED

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")

KNOWN = "fencepost.wsgi.caller"
"""Where the scope keeps what `authorize` said."""
PATIENCE = 30.0
"""Seconds for one answer. Whatever asks the store gives up long before."""

Environ = MutableMapping[str, Any]
Authorize = Callable[[Environ], Any]
"""Of the host application, called on the thread of the request: who asks? See `fencepost.web.auth.Authorize`."""


@dataclass
class WsgiReply:
    status: int = 500
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class WsgiApp:
    """See `Scheduler.wsgi`."""

    def __init__(
        self, scheduler: Scheduler, *, replica: bool = True, authorize: Authorize | None = None
    ) -> None:
        self._scheduler = scheduler
        self._takes_part = replica
        self._authorize = authorize
        self._lock = threading.Lock()
        self._thread: ControlThread | None = None
        self._app: WebApp | None = None
        self._lifespan: AbstractAsyncContextManager[None] | None = None
        forks.follow(self)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = self.answer(environ)
        reason = HTTPStatus(answer.status).phrase
        start_response(f"{answer.status} {reason}", answer.headers)
        return [answer.body]

    def answer(self, environ: Environ) -> WsgiReply:
        """For frameworks with responses of their own. `SCRIPT_NAME` is where this is mounted."""
        try:
            app, thread = self._ready()
        except UsageError as error:
            return _refused(503, str(error))
        scope = _scope(environ)
        if self._authorize is not None and environ.get("PATH_INFO", "") not in OPEN:
            scope[KNOWN] = self._authorize(environ)
        asked = thread.submit(_called(app, scope, _body(environ)))
        try:
            return asked.result(PATIENCE)
        except (TimeoutError, CancelledError):
            asked.cancel()
            return _refused(503, f"not answered within {PATIENCE:g} s; try again")

    def reload(self) -> None:
        """Read the file of tokens again."""
        self._ready()[0].reload()

    def close(self) -> None:
        """End its thread. The next request starts another."""
        with self._lock:
            thread, self._thread, self._app = self._thread, None, None
            lifespan, self._lifespan = self._lifespan, None
        if thread is None:
            return
        if lifespan is not None:
            thread.submit(_left(lifespan)).result()
        thread.stop()

    def after_fork(self) -> None:
        """In a forked child: the parent's thread does not exist here, so everything of its loop is made again."""
        self._lock = threading.Lock()
        self._thread = self._app = None

    def _ready(self) -> tuple[WebApp, ControlThread]:
        self._scheduler.start_if_forked()
        with self._lock:
            if self._app is None or self._thread is None:
                authorize = _known if self._authorize is not None else None
                self._app = WebApp(self._scheduler, replica=self._takes_part, authorize=authorize)
                self._thread = ControlThread("fencepost-web")
                if not self._takes_part:
                    self._lifespan = self._app.lifespan(self._app)
                    self._thread.submit(_entered(self._lifespan)).result()
            return self._app, self._thread


async def _left(lifespan: AbstractAsyncContextManager[None]) -> None:
    await lifespan.__aexit__(None, None, None)


async def _entered(lifespan: AbstractAsyncContextManager[None]) -> None:
    await lifespan.__aenter__()


def _known(request: Request) -> Any:
    return request.scope[KNOWN]


async def _called(app: WebApp, scope: dict[str, Any], body: bytes) -> WsgiReply:
    answer, parts, messages = WsgiReply(), [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Mapping[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]
            ]
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)  # type: ignore[arg-type]
    except Exception:  # it has answered 500, and hands the error on for its server to log
        log.exception("unexpected error in a request")
    answer.body = b"".join(parts)
    return answer


def _scope(environ: Environ) -> dict[str, Any]:
    root = _text(environ.get("SCRIPT_NAME", ""))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": environ.get("SERVER_PROTOCOL", "HTTP/1.1").partition("/")[2],
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "root_path": root,
        "path": root + _text(environ.get("PATH_INFO", "")),
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": list(_headers(environ)),
        "client": _end(environ, "REMOTE_ADDR", "REMOTE_PORT"),
        "server": _end(environ, "SERVER_NAME", "SERVER_PORT"),
        POLLED: True,
    }


def _headers(environ: Environ) -> Iterable[tuple[bytes, bytes]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if value := environ.get(name):
            yield name.replace("_", "-").lower().encode(), value.encode("latin-1")


def _body(environ: Environ) -> bytes:
    """One byte more than is allowed shows the application that it is too much."""
    length: str = environ.get("CONTENT_LENGTH") or ""
    most = MOST_BODY_BYTES + 1
    if length.isascii() and length.isdigit():
        most = min(most, int(length)) if len(length) < 20 else most
    elif not environ.get("wsgi.input_terminated"):
        return b""
    body: bytes = environ["wsgi.input"].read(most)
    return body


def _text(native: str) -> str:
    """WSGI hands over bytes, one to a character."""
    return native.encode("latin-1").decode("utf-8", "replace")


def _end(environ: Environ, address: str, port: str) -> tuple[str, int] | None:
    number = str(environ.get(port, ""))
    host = environ.get(address)
    return (host, int(number) if number.isascii() and number.isdigit() else 0) if host else None


def _refused(status: int, detail: str) -> WsgiReply:
    response = Problem(status, detail, headers={"Retry-After": "1"}).response()
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers]
    return WsgiReply(status, headers, bytes(response.body))
