"""A real HTTP server on loopback whose resources a test changes: validators, redirects, cuts, lies and delays."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Resource:
    body: bytes = b""
    etag: str | None = None
    last_modified: str | None = None
    disposition: str | None = None
    ranges: bool = True
    conditions: bool = True
    """Without, it sends the part that was asked for, of whatever it has now."""
    most_per_range: int | None = None
    """It sends less of a part than was asked for, and says so."""
    fails: int = 0
    """So many answers are 503."""
    status: int = 200
    """Other than 200: that, and nothing else."""
    redirect: str | None = None
    delay: float = 0.0
    cuts: list[int] = field(default_factory=list)
    """Each answer with a body is cut off after so many bytes, as long as there are any left."""
    claimed_length: int | None = None
    """Another than the true one."""
    with_length: bool = True
    """Without, the end of the connection is the end of the body."""
    before_whole: Callable[[Resource], None] | None = None
    """Called before more than a probe is answered: what was probed may have changed by then."""


@dataclass(frozen=True)
class Request:
    path: str
    host: str
    range: str | None
    if_range: str | None
    headers: dict[str, str]


class HttpServer:
    """`with HttpServer() as server: server["/stops.csv"] = Resource(…)`"""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> HttpServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __setitem__(self, path: str, resource: Resource) -> None:
        self.resources[path] = resource

    def __getitem__(self, path: str) -> Resource:
        return self.resources[path]

    def wholes(self, path: str) -> list[Request]:
        """Requests for more than a probe's single byte."""
        return [each for each in self.requests if each.path == path and each.range != "bytes=0-0"]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        asked = handler.headers.get("Range")
        self.requests.append(
            Request(
                path,
                handler.headers.get("Host", ""),
                asked,
                handler.headers.get("If-Range"),
                dict(handler.headers),
            )
        )
        resource = self.resources.get(path, Resource(status=404))
        if resource.before_whole is not None and asked != "bytes=0-0":
            resource.before_whole(resource)
        time.sleep(resource.delay)
        handler.close_connection = True
        try:
            _send(handler, resource, asked)
        except (BrokenPipeError, ConnectionResetError):
            return  # the client has heard enough


def _send(handler: BaseHTTPRequestHandler, resource: Resource, asked: str | None) -> None:
    if resource.redirect is not None:
        handler.send_response(302)
        handler.send_header("Location", resource.redirect)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    if resource.status != 200 or resource.fails:
        handler.send_response(503 if resource.fails else resource.status)
        resource.fails = max(0, resource.fails - 1)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    body, begin = resource.body, 0
    whole = resource.claimed_length if resource.claimed_length is not None else len(body)
    condition = handler.headers.get("If-Range") if resource.conditions else None
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
    if wanted and resource.ranges and condition in (None, resource.etag, resource.last_modified):
        begin, end = int(wanted[1]), int(wanted[2] or len(body) - 1)
        if begin >= len(body):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(body)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body = body[begin : end + 1][: resource.most_per_range]
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{whole}")
        length = len(body)
    else:
        handler.send_response(200)
        length = whole
    if resource.with_length:
        handler.send_header("Content-Length", str(length))
    for name, value in (
        ("ETag", resource.etag),
        ("Last-Modified", resource.last_modified),
        ("Content-Disposition", resource.disposition),
        ("Connection", "close"),
    ):
        if value is not None:
            handler.send_header(name, value)
    handler.end_headers()
    if resource.cuts and asked != "bytes=0-0":
        body = body[: resource.cuts.pop(0)]
    handler.wfile.write(body)
    handler.wfile.flush()
