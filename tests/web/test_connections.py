"""Clients that connect and do nothing, or take nothing: they cost little, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn

from fencepost import Scheduler
from fencepost.store.base import Roster
from fencepost.store.memory import MemoryStore
from fencepost.web import connections
from fencepost.web.app import WebApp
from fencepost.web.connections import OpenConnections, log_accept_errors_once, protocol_in, room
from fencepost.web.listener import StreamEvent
from fencepost.web.sse import STALLED
from tests.web.sample import sample
from tests.web.serving import QUICK, STARTING, client_of, eventually, served, server_process


@contextlib.contextmanager
def connected(
    url: str, number: int = 1, sending: bytes = b"", buffer: int = 0
) -> Iterator[list[socket.socket]]:
    """`buffer`: bytes that the kernel takes for a client; 0: as many as it likes."""
    parts = urlsplit(url)
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            client = stack.enter_context(socket.socket())
            if buffer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.settimeout(10)
            client.connect((parts.hostname, parts.port))
            client.sendall(sending)
            found.append(client)
        yield found


def is_closed(client: socket.socket) -> bool:
    """By the server."""
    client.settimeout(0)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def asking(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def test_idle_connections_make_way_for_new_ones() -> None:
    with served(sample().asgi(), http=protocol_in(OpenConnections(5))) as url, connected(url, 20) as idle:
        eventually(lambda: sum(map(is_closed, idle)) >= 15)
        with client_of(url) as client:
            assert client.get("/livez").status_code == 200
            assert client.get("/api/v1/status").status_code == 200
        assert not is_closed(idle[-1])


def test_where_none_is_idle_only_probes_are_answered() -> None:
    with (
        served(sample().asgi(), http=protocol_in(OpenConnections(3))) as url,
        connected(url, 3, asking("/api/v1/events")) as streams,
    ):
        for stream in streams:
            assert stream.recv(15).startswith(b"HTTP/1.1 200")
        with client_of(url) as client:
            assert client.get("/livez").status_code == 200
            refused = client.get("/api/v1/status")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize("begun", [b"", b"GET /livez HTTP/1.1\r\nHost: a\r\n", asking("/livez")])
def test_headers_must_arrive_in_time(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_WITHIN", 0.2)
    with (
        served(sample().asgi(), http=protocol_in(OpenConnections(5))) as url,
        connected(url, 1, begun) as [slow],
    ):
        if begun.startswith(asking("/livez")):
            assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
            slow.sendall(b"GET /")  # the next request begins, and does not go on
        eventually(lambda: is_closed(slow), 3)


def test_a_body_must_arrive_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.web.gate.BODY_WITHIN", 0.2)
    begun = b"POST /api/v1/jobs/report/trigger HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"
    with (
        served(sample().asgi(), http=protocol_in(OpenConnections(5))) as url,
        connected(url, 1, begun) as [slow],
    ):
        slow.settimeout(5)
        assert slow.recv(65_536).startswith(b"HTTP/1.1 408")


def test_descriptors_are_left_for_the_store_and_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most in (
        (1_048_576, 1_000),
        (1_024, 1_024 - 20 - 100 - 80 - 50 - 64),
        (256, connections.FEWEST),
    ):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        monkeypatch.setattr(connections, "_open_descriptors", lambda: 20)
        assert room(slots=10) == most


async def test_accept_errors_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    log_accept_errors_once(loop)
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            error = OSError(24, "Too many open files")
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": error}
            )
    assert len(caplog.records) == 1


class Watched(uvicorn.Server):
    """Says how many connections it has."""

    last: Watched

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        type(self).last = self
        await super().startup(sockets)


def flood(web: WebApp, times: int = 400) -> None:
    """More than the buffers of a connection hold."""
    text = "x" * 20_000

    def tell() -> None:
        feed = web.feed
        for listener in feed._listeners:
            assert feed._memory is not None
            listener.put(StreamEvent("x~1", "fire", {"text": text}, feed._memory.at))

    loop = web.feed._loop
    assert loop is not None
    for _ in range(times):
        loop.call_soon_threadsafe(tell)
        time.sleep(0.001)


def test_a_stream_whose_client_takes_nothing_is_aborted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fencepost.web.sse.STALLED", 0.5)
    web = WebApp(sample())
    with served(web, Watched) as url, connected(url, 3, asking("/api/v1/events")):
        eventually(lambda: web.feed.listeners == 3)
        flood(web)
        eventually(lambda: web.feed.listeners == 0)
        eventually(lambda: not Watched.last.server_state.connections, 3)
    assert "without completing response" not in caplog.text


class SlowStore(MemoryStore):
    async def roster(self) -> Roster:
        await asyncio.sleep(0.2)
        return await super().roster()


def test_a_cold_feed_admits_all_it_promises() -> None:
    with (
        served(Scheduler(SlowStore(), **QUICK).asgi()) as url,
        connected(url, 200, asking("/api/v1/events")) as streams,
    ):
        answers = [stream.recv(12) for stream in streams]
        assert answers == [b"HTTP/1.1 200"] * 200
        with client_of(url) as client:
            assert client.get("/api/v1/events").status_code == 503


@pytest.mark.slow
def test_1100_idle_connections_change_nothing(tmp_path: Path) -> None:
    """With as many descriptors as most systems allow."""
    command = [
        "tests.web.apps.limited",
        "1024",
        "serve",
        "tests.web.apps.limited:scheduler",
        "--port",
        "{port}",
    ]
    store = f"sqlite:///{tmp_path}/jobs.db"
    with server_process(command, tmp_path, store=store) as process, client_of(process.url) as client:

        def answers() -> bool:
            with contextlib.suppress(OSError, Exception):
                return client.get("/livez").status_code == 200
            return False

        def succeeded() -> int:
            found = client.get("/api/v1/fires", params={"job": "tick", "state": "succeeded", "limit": 1000})
            return len(found.json()["items"])

        eventually(answers, STARTING)
        eventually(succeeded, STARTING)
        size = len(process.told())
        began, statuses = time.monotonic(), []
        with contextlib.ExitStack() as stack:
            while time.monotonic() < began + 15:
                stack.close()
                stack.enter_context(connected(process.url, 1_100))
                before = succeeded()
                for _ in range(20):
                    with client_of(process.url) as fresh:
                        statuses.append(fresh.get("/livez").status_code)
                    time.sleep(0.1)
                eventually(lambda before=before: succeeded() > before, 5)  # type: ignore[misc]
        assert set(statuses) == {200}
        assert len(process.told()) - size < 100_000


@pytest.mark.slow
def test_200_stalled_clients_do_not_double_the_memory_and_are_closed(tmp_path: Path) -> None:
    command = ["fencepost", "serve", "tests.web.apps.chatty:scheduler", "--port", "{port}"]
    store = f"sqlite:///{tmp_path}/jobs.db"
    with server_process(command, tmp_path, store=store) as process, client_of(process.url) as client:

        def has_run() -> bool:
            with contextlib.suppress(OSError, httpx2.HTTPError):
                return bool(client.get("/api/v1/fires", params={"state": "succeeded"}).json()["items"])
            return False

        eventually(has_run, STARTING)
        before, sockets = memory_mb(process.popen.pid), sockets_of(process.popen.pid)
        most = before
        with connected(process.url, 200, asking("/api/v1/events"), buffer=4_096):
            eventually(lambda: sockets_of(process.popen.pid) >= sockets + 200)
            deadline = time.monotonic() + 4 * STALLED
            while sockets_of(process.popen.pid) > sockets + 10:
                assert time.monotonic() < deadline, "they are not closed"
                most = max(most, memory_mb(process.popen.pid))
                time.sleep(0.5)
        assert most < 2 * before, f"{before:.0f} MB before, {most:.0f} MB with them"
        eventually(has_run)


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def sockets_of(pid: int) -> int:
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += "socket" in str(each.readlink())
    return found
