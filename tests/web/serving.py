"""A scheduler behind a real server: on a thread of this process, or as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from fencepost import Scheduler
from tests.servers.ports import HOST, Port

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {"heartbeat": 0.2, "leader_ttl": 1, "run_ttl": 2, "horizon": 2, "drain_timeout": 1}
PATIENCE = 60.0
STARTING = 120.0
"""Seconds until a hang is called one: a process may take a minute to start on a machine with a load of 30. What must
happen within a time says its own."""


def eventually(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What the condition says, as soon as that is something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def a_port() -> Iterator[int]:
    port = Port()
    try:
        yield port.number
    finally:
        port.release()


@contextlib.contextmanager
def served(app: Any, server_kind: type[uvicorn.Server] = uvicorn.Server, **more: Any) -> Iterator[str]:
    """Any ASGI application, by uvicorn on a thread. Gives its URL."""
    with a_port() as port:
        options = {"log_config": None, "ws": "none", "timeout_graceful_shutdown": 2, **more}
        server = server_kind(uvicorn.Config(app, port=port, **options))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive())
            assert server.started
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not end"


def client_of(url: str, **options: Any) -> httpx2.Client:
    return httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False, **options)


@contextlib.contextmanager
def service(scheduler: Scheduler, **options: Any) -> Iterator[httpx2.Client]:
    with served(scheduler.asgi(**options)) as url, client_of(url) as client:
        yield client


@dataclass
class ServerProcess:
    popen: subprocess.Popen[bytes]
    url: str
    log: Path

    def told(self) -> str:
        return self.log.read_text()

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, int(self.url.rpartition(":")[2]))) == 0

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = STARTING) -> int:
        return self.popen.wait(seconds)


@contextlib.contextmanager
def server_process(
    command: Sequence[str], folder: Path, more_env: Mapping[str, str] | None = None, /, **settings: object
) -> Iterator[ServerProcess]:
    """A server as people start it; `{port}` in the command is a free one. It and its workers are ended in any case."""
    log = folder / "server.log"
    env = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    env |= {f"FENCEPOST_{name.upper()}": str(value) for name, value in settings.items()}
    env |= {"PYTHONPATH": str(ROOT), **(more_env or {})}
    with a_port() as port, log.open("wb") as output:
        popen = subprocess.Popen(
            [sys.executable, "-m", *(word.format(port=port) for word in command)],
            cwd=folder,
            env=env,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        process = ServerProcess(popen, f"http://127.0.0.1:{port}", log)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGKILL)
            popen.wait(PATIENCE)
