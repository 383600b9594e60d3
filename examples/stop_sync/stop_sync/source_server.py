"""The three sources on loopback, with all that servers do to those who download from them.

`python -m stop_sync.source_server --port 8790` serves until Ctrl-C; a test says `with SourceServer() as server:`.

The register and the timetable have permanent links, which redirect to the file of the current version; the map is
asked directly. `server.switch("register", version=2, failures=3)` changes how a source behaves; from outside,
`curl --json '{"version": 2}' http://127.0.0.1:8790/switch/register` does. GET / tells how it is.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from stop_sync.data import truth_json
from stop_sync.served import MAKERS, Body, Served, Switches

MOST_CONNECTIONS = 32
MOST_POSTED_BYTES = 4096
IDLE_SECONDS = 30
PIECES = 50
"""In which a slow answer is sent."""


class Asked(NamedTuple):
    path: str
    range: str | None
    status: int


class SourceServer:
    def __init__(self, seed: int = 1, stops: int = 1500, port: int = 0, host: str = "127.0.0.1") -> None:
        self.served = Served(seed, stops)
        self.asked: deque[Asked] = deque(maxlen=1000)
        """The latest requests, the oldest first."""
        self.files_at = ""
        """Where permanent links lead: to this host, unless another one is named, as `http://localhost:8790`."""
        self.stopping = threading.Event()
        self._may_answer = {source: threading.Event() for source in MAKERS}
        for event in self._may_answer.values():
            event.set()
        self._http = _Bounded((host, port), type("Handler", (_Handler,), {"server_of": self}))
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name="source server", daemon=True
        )
        self.root = f"http://{host}:{self._http.server_address[1]}"

    def __enter__(self) -> SourceServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for event in self._may_answer.values():
            event.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def url(self, source: str) -> str:
        return f"{self.root}/osm.xml" if source == "osm" else f"{self.root}/permalink/{source}"

    def switch(self, source: str, **changed: Any) -> Switches:
        """What is not named stays as it is."""
        return self.served.switch(source, **changed)

    @contextmanager
    def hold(self, source: str) -> Iterator[None]:
        """Until the block ends, requests for this source get no answer: whoever downloads it waits."""
        self._may_answer[source].clear()
        try:
            yield
        finally:
            self._may_answer[source].set()

    def wait_until_released(self, source: str) -> None:
        self._may_answer[source].wait()


class _Bounded(ThreadingHTTPServer):
    """A thread for each connection, but only for so many."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    server_of: SourceServer
    timeout = IDLE_SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        served = self.server_of.served
        kind, _, name = self.path.partition("?")[0].strip("/").partition("/")
        if kind == "permalink" and name in MAKERS:
            self._answer(302, {"Location": f"{self.server_of.files_at}/files/{served.file_name(name)}"})
        elif kind == "osm.xml":
            self._source("osm")
        elif kind == "files" and (source := self._source_of(name)) is not None:
            self._source(source)
        elif kind == "truth.json":
            self._answer(200, {"Content-Type": "application/json"}, truth_json(served.truth()))
        elif not kind:
            self._tell({source: asdict(each) for source, each in served.switches().items()})
        else:
            self._answer(404)

    def do_POST(self) -> None:
        """Browsers send JSON to strangers only after they have asked, and are not answered: no web page that somebody
        looks at can turn these switches."""
        kind, _, source = self.path.strip("/").partition("/")
        length = self.headers.get("Content-Length", "")
        if kind != "switch" or self.headers.get_content_type() != "application/json":
            self._answer(404)
        elif not re.fullmatch("[0-9]{1,9}", length) or int(length) > MOST_POSTED_BYTES:
            self._answer(413)
        else:
            try:
                changed = json.loads(self.rfile.read(int(length)))
                self._tell(asdict(self.server_of.switch(source, **changed)))
            except (ValueError, TypeError, RecursionError) as error:
                self._tell({"error": str(error)}, status=400)

    def log_message(self, *_: object) -> None:
        """`asked` has them."""

    def _source_of(self, file_name: str) -> str | None:
        return next((each for each in MAKERS if self.server_of.served.file_name(each) == file_name), None)

    def _source(self, source: str) -> None:
        self.server_of.wait_until_released(source)
        served = self.server_of.served
        slow_seconds = served.switches()[source].slow_seconds
        if (status := served.next_failure(source)) is not None:
            self._answer(status, slow_seconds=slow_seconds)
            return
        body = served.body(source)
        headers = {
            "ETag": body.etag,
            "Last-Modified": body.last_modified,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'attachment; filename="{served.file_name(source)}"',
        }
        wanted = self._range(body)
        if wanted is None:
            status, content = 200, body.content
        elif not wanted:
            self._answer(416, {"Content-Range": f"bytes */{len(body.content)}"})
            return
        else:
            status, content = 206, body.content[wanted.start : wanted.stop]
            headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{len(body.content)}"
        cut = len(content) > 1 and served.next_cut(source)
        self._answer(status, headers, content, slow_seconds, len(content) // 2 if cut else len(content))

    def _range(self, body: Body) -> range | None:
        """What was asked for; None: all of it; empty: what is not there. A part of something else than what the client
        has already is of no use to it, so `If-Range` is heeded."""
        found = re.fullmatch(r"bytes=([0-9]{1,15})-([0-9]{0,15})", self.headers.get("Range", ""))
        if found is None or self.headers.get("If-Range") not in (None, body.etag, body.last_modified):
            return None
        last = min(int(found[2] or len(body.content)), len(body.content) - 1)
        return range(int(found[1]), last + 1)

    def _tell(self, value: object, status: int = 200) -> None:
        self._answer(status, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _answer(
        self,
        status: int,
        headers: dict[str, str] | None = None,
        content: bytes = b"",
        slow_seconds: float = 0.0,
        until: int | None = None,
    ) -> None:
        """Promises all of the content and sends it `until` there. The first wait comes before the first byte."""
        self.server_of.asked.append(Asked(self.path, self.headers.get("Range"), status))
        self.close_connection = True
        end = len(content) if until is None else until
        size = max(1, -(-end // PIECES))
        pieces = [content[begin : min(begin + size, end)] for begin in range(0, end, size)] or [b""]
        self.server_of.stopping.wait(slow_seconds / len(pieces))
        with suppress(ConnectionError, TimeoutError):  # the client has heard enough
            self.send_response(status)
            for name, value in {
                **(headers or {}),
                "Content-Length": str(len(content)),
                "Connection": "close",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            for number, piece in enumerate(pieces):
                if number:
                    self.server_of.stopping.wait(slow_seconds / len(pieces))
                self.wfile.write(piece)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve invented sources.")
    parser.add_argument("--host", default="127.0.0.1", help="loopback, unless said otherwise")
    parser.add_argument("--port", type=int, default=8790)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stops", type=int, default=1500)
    options = parser.parse_args()
    with (
        suppress(KeyboardInterrupt),
        SourceServer(options.seed, options.stops, options.port, options.host) as server,
    ):
        for source in MAKERS:
            print(f"{source:<9} {server.url(source)}", flush=True)
        server.stopping.wait()


if __name__ == "__main__":
    main()
