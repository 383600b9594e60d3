"""uvicorn as `fencepost serve` runs it: bounded, quiet, and with our exit codes."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from fencepost.errors import ConfigurationError, FencepostError
from fencepost.scheduler import systemd
from fencepost.scheduler.garbage import short_collections
from fencepost.scheduler.signals import end_at_once, on_hangup, tell_stopping
from fencepost.settings import Settings
from fencepost.web.connections import (
    ACCEPTED_AT_ONCE,
    OpenConnections,
    log_accept_errors_once,
    protocol_in,
    room,
)
from fencepost.web.gate import MOST_HEADER_BYTES
from fencepost.web.seldom import Repeats
from fencepost.web.tls import load_certificate, tls_context, tls_protocol_in

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from fencepost.web.app import WebApp

log = logging.getLogger("fencepost")

SWITCH_INTERVAL = 0.0002
"""Seconds for which a thread that serves or reads may keep the interpreter from the one that claims. Python's own 5 ms
add up: a fire passes from thread to thread."""
BACKLOG = 2_048
"""Connections that wait to be accepted."""


def serve_on(listener: socket.socket, app: WebApp, settings: Settings) -> None:
    """Until SIGTERM; raises `KeyboardInterrupt` after SIGINT."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    started, tls, connections = Startup(app), tls_context(settings), OpenConnections(room(settings.slots))
    http: Any = protocol_in(connections)
    config = uvicorn.Config(
        started,
        http=http if tls is None else tls_protocol_in(connections, http, tls),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=max(1, round(settings.drain_timeout.total_seconds())),
    )
    address, port = listener.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    log.info("%s://%s:%d; Ctrl-C stops", "http" if tls is None else "https", shown, port)
    server = WebServer(config, app, tls)
    try:
        with short_collections():
            server.run(sockets=[listener])
    except SystemExit:
        if started.failure is not None:
            raise started.failure from None
        raise SystemExit(1) from None
    if server.interrupted:
        raise KeyboardInterrupt
    if not server.started:
        raise SystemExit(1)


class Startup:
    """The application, with what its start raised kept for the exit code. uvicorn would print the traceback of a wrong
    setting, and exit with a code of its own."""

    def __init__(self, app: WebApp) -> None:
        self._app = app
        self.failure: FencepostError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def without_traceback(message: Message) -> None:
            await send(
                {**message, "message": ""} if message["type"] == "lifespan.startup.failed" else message
            )

        try:
            await self._app(scope, receive, without_traceback)
        except FencepostError as error:
            self.failure = error


def reload_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    try:
        load_certificate(context, settings)
    except ConfigurationError as error:
        log.error("the certificate stays as it was: %s", error)


class WebServer(uvicorn.Server):
    interrupted = False

    def __init__(self, config: uvicorn.Config, app: WebApp, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._scheduler = app.scheduler
        settings = app.scheduler.settings
        self._reloads: list[Callable[[], None]] = []
        """What SIGHUP reads again."""
        if settings.tokens_file is not None:
            self._reloads.append(app.reload)
        if tls is not None:
            self._reloads.append(partial(reload_certificate, tls, settings))
        if app.scheduler.reload is not None:
            self._reloads.append(app.scheduler.reload)

    def _reload(self) -> None:
        for reload in self._reloads:
            reload()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        log_accept_errors_once(loop)
        on_hangup(
            loop,
            self._reload if self._reloads else None,
            lambda _: signal.raise_signal(signal.SIGTERM),
        )
        logging.getLogger("uvicorn.error").addFilter(Repeats())
        await super().startup(sockets)
        systemd.ready(self._scheduler.lifecycle.control_thread())
        for listener in sockets or ():
            listener.listen(
                BACKLOG
            )  # uvicorn passes one number for this and for how many are accepted at once

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn would raise the signal again at the end, and so kill a process that has stopped gracefully."""
        if sig == signal.SIGINT and self.should_exit:
            end_at_once(self._scheduler.running_keys)
        if not self.should_exit:
            tell_stopping(sig)
        self.interrupted = self.interrupted or sig == signal.SIGINT
        self.should_exit = True
