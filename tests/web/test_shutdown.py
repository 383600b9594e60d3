"""SIGTERM under real servers, with requests, streams and runs under way.

A small balancer asks the readiness probe and sends requests as long as it answers 200. Nothing that was sent may fail:
neither requests on connections that are kept, nor long ones that outlast the listener, nor runs.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from fencepost import State
from fencepost.model import FireRecord
from fencepost.store.base import FireQuery
from fencepost.store.urls import store_from_url
from tests.web.sample import sample
from tests.web.serving import (
    PATIENCE,
    QUICK,
    STARTING,
    ServerProcess,
    client_of,
    eventually,
    server_process,
    service,
)

pytestmark = pytest.mark.cluster

APP = "tests.web.apps.host:app"
UVICORN = ["uvicorn", APP, "--port", "{port}", "--log-level", "warning"]
GUNICORN = ["gunicorn", APP, "-b", "127.0.0.1:{port}", "-k", "uvicorn_worker.UvicornWorker"]
GUNICORN += ["--control-socket", "gunicorn.ctl"]  # not in the home directory, where all would share it
SERVE = ["fencepost", "serve", "tests.web.apps.host:scheduler", "--port", "{port}"]
DELAY = 1.5
LIMIT = 6.0
"""Seconds from SIGTERM to the end: the delay, the last run or request, what servers take, and a busy machine."""


@dataclass
class Balancer:
    """Sends requests while the probe says so."""

    process: ServerProcess
    prefix: str
    work: str
    open: bool = True
    answered: int = 0
    listening: int = 0
    failures: list[str] = field(default_factory=list)
    seen_503: float | None = None

    def probe(self) -> None:
        while self.open:
            try:
                with client_of(self.process.url) as client:
                    answer = client.get(f"{self.prefix}/health/ready")
            except httpx2.HTTPError as error:
                self.failures.append(f"the probe: {error!r}")
                self.open = False
                return
            if answer.status_code == 503:
                if answer.json() != {"ready": False, "reason": "shutting_down"}:
                    self.failures.append(answer.text)
                if answer.headers.get("connection") != "close":
                    self.failures.append("clients are not asked to connect anew")
                self.seen_503, self.open = time.monotonic(), False
            time.sleep(0.02)

    def send(self, seconds: float) -> None:
        """One after the other on kept connections."""
        with client_of(self.process.url) as client:
            while self.open:
                try:
                    answer = client.get(self.work.format(seconds=seconds))
                    assert answer.status_code == 200, answer.text
                    self.answered += 1
                except (httpx2.HTTPError, AssertionError) as error:
                    self.failures.append(repr(error))
                time.sleep(0.01)

    def last(self, seconds: float) -> None:
        """A request that is answered only after the listener has closed."""
        with client_of(self.process.url) as client:
            if client.get(self.work.format(seconds=seconds)).status_code != 200:
                self.failures.append("the last request")

    def listen(self) -> str:
        """An open stream, to its end."""
        with (
            client_of(self.process.url) as client,
            client.stream("GET", f"{self.prefix}/api/v1/events") as stream,
        ):
            self.listening += 1
            return "".join(stream.iter_text())


def ready(process: ServerProcess, prefix: str) -> bool:
    assert process.popen.poll() is None, process.told()
    try:
        with client_of(process.url) as client:
            return client.get(f"{prefix}/readyz").status_code == 200
    except httpx2.HTTPError:
        return False


async def test_the_first_answer_that_says_not_ready_asks_to_connect_anew() -> None:
    """The signal may come in the middle of a request: it changes nothing before the event loop has its turn."""
    config = uvicorn.Config(APP, log_config=None)
    config.load()
    server, scheduler = uvicorn.Server(config), sample()
    with taking(signal.SIGTERM, server.handle_exit):
        scheduler.shutdown.install()
        scheduler.shutdown._signalled(signal.SIGTERM, None)
        at_once = scheduler.shutdown.draining
        await asyncio.sleep(0.01)
        assert (at_once, scheduler.shutdown.draining) == (False, True)
        assert (b"connection", b"close") in server.server_state.default_headers
        scheduler.shutdown.uninstall()


@contextmanager
def taking(number: signal.Signals, handler: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_the_first_half_by_hand_for_servers_whose_signals_we_do_not_get() -> None:
    """Not ready, the delay, then no more claims, leadership handed over, streams ended; requests are still answered."""
    scheduler = sample(ready_delay=0.3)
    with service(scheduler) as client, client.stream("GET", "/api/v1/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        eventually(lambda: client.get("/scheduler/status").json()["is_leader"])
        loop = scheduler.shutdown._loop
        assert loop is not None
        drained = asyncio.run_coroutine_threadsafe(scheduler.drain(), loop)
        eventually(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/scheduler/status").json()["is_leader"], "leadership goes after the delay"
        drained.result(PATIENCE)
        list(lines)
        eventually(lambda: client.get("/api/v1/replicas").json()["items"] == [])
        assert client.get("/livez").status_code == 200


@pytest.mark.parametrize("module", ["gunicorn.workers.gasgi", "granian.asgi", "hypercorn.asyncio.run"])
async def test_servers_whose_signals_we_do_not_get_are_warned_about_at_start(
    module: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with sample():
        assert "cannot be put off" not in caplog.text
    monkeypatch.setitem(sys.modules, module, sys)
    async with sample():
        assert "cannot be put off" in caplog.text
        assert "await scheduler.drain()" in caplog.text


def test_two_schedulers_in_one_application_leave_together(tmp_path: Path) -> None:
    command = ["uvicorn", "tests.web.apps.two:app", "--port", "{port}"]
    settings = {**QUICK, "ready_delay": DELAY, "store": f"sqlite:///{tmp_path}/jobs.db"}
    with server_process(command, tmp_path, **settings) as process, ThreadPoolExecutor(2) as pool:
        eventually(lambda: ready(process, "/first") and ready(process, "/second"), STARTING)
        balancers = [Balancer(process, prefix, "") for prefix in ("/first", "/second")]
        streams = [pool.submit(balancer.listen) for balancer in balancers]
        eventually(lambda: all(balancer.listening for balancer in balancers))
        begun = time.monotonic()
        process.terminate()
        leaving = {"ready": False, "reason": "shutting_down"}
        with client_of(process.url) as client:
            eventually(lambda: client.get("/first/readyz").json() == leaving)
            assert client.get("/second/readyz").json() == leaving
        assert all(stream.result(PATIENCE).endswith("\n\n") for stream in streams)
        process.ended()
        assert time.monotonic() - begun < LIMIT


def test_a_server_that_gives_less_time_than_is_asked_for_is_reported(tmp_path: Path) -> None:
    command = [*GUNICORN, "--graceful-timeout", "2"]
    settings = {**QUICK, "ready_delay": 1, "drain_timeout": 3, "grace_period": 3}
    with server_process(command, tmp_path, **settings, store=f"sqlite:///{tmp_path}/jobs.db") as process:
        eventually(lambda: ready(process, "/fencepost"), STARTING)
        told = process.told()
    assert "gunicorn kills its workers after 2 s: start it with --graceful-timeout 4" in told
    assert "together exceed grace_period (3s)" in told


def runs_of(process: ServerProcess, prefix: str) -> list[str]:
    with client_of(process.url) as client:
        replicas = client.get(f"{prefix}/api/v1/replicas").json()["items"]
    return [key for replica in replicas for key in replica["running"]]


def ledger(url: object) -> dict[str, FireRecord]:
    """All that was decided, as a process that takes no part reads it."""

    async def read() -> dict[str, FireRecord]:
        store = store_from_url(str(url))
        await store.open()
        try:
            decided = [state for state in State if state is not State.PENDING]
            return {fire.key: fire for fire in await store.find_fires(FireQuery(states=tuple(decided)))}
        finally:
            await store.close()

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(UVICORN, -signal.SIGTERM, id="uvicorn"),
        pytest.param([*UVICORN, "--workers", "4"], 0, id="uvicorn, 4 workers", marks=pytest.mark.slow),
        pytest.param(GUNICORN, 0, id="gunicorn"),
        pytest.param([*GUNICORN, "-w", "4"], 0, id="gunicorn, 4 workers", marks=pytest.mark.slow),
        pytest.param(SERVE, 0, id="fencepost serve"),
    ],
)
def test_sigterm_under_load_fails_nothing(command: list[str], code: int, tmp_path: Path) -> None:
    prefix, work = (
        ("", "/scheduler/status") if command is SERVE else ("/fencepost", "/work?seconds={seconds}")
    )
    settings = {**QUICK, "ready_delay": DELAY, "drain_timeout": 3, "store": f"sqlite:///{tmp_path}/jobs.db"}
    # Nobody dies here: a process that gets no turn for two seconds must not be taken for dead.
    settings["run_ttl"] = 10
    with (
        ThreadPoolExecutor(12) as pool,
        server_process(command, tmp_path, **settings, test_log=tmp_path / "runs") as process,
    ):
        eventually(lambda: ready(process, prefix), STARTING)
        balancer = Balancer(process, prefix, work)
        probing = pool.submit(balancer.probe)
        streams = [pool.submit(balancer.listen) for _ in range(2)]
        senders = [pool.submit(balancer.send, seconds) for seconds in (0, 0, 0.1, 0.5)]
        eventually(lambda: balancer.answered > 20 and balancer.listening == len(streams))
        running = eventually(lambda: runs_of(process, prefix))
        begun = time.monotonic()
        late = pool.submit(balancer.last, DELAY + 1)
        process.terminate()
        probing.result(PATIENCE)
        for sender in senders:
            sender.result(PATIENCE)
        told = [stream.result(PATIENCE) for stream in streams]
        late.result(PATIENCE)
        assert process.ended() == code, process.told()
        took = time.monotonic() - begun
    assert balancer.failures == []
    assert balancer.seen_503 is not None
    assert all(text.endswith("\n\n") for text in told), "a stream was cut off"
    assert took < LIMIT, f"{took:.1f} s"
    fires = ledger(settings["store"])
    assert {fires[key].state for key in running} == {State.SUCCEEDED}, "a run was not drained"
    # What was claimed as the signal came is given back before it begins. Nobody is left to take it.
    given_back = {key for key, fire in fires.items() if fire.state is State.WAITING}
    assert all(fires[key].attempts[-1].outcome == "given back" for key in given_back)
    taken = fires.keys() - given_back
    assert {fires[key].state for key in taken} == {State.SUCCEEDED}
    ran = [line.split()[1] for line in (tmp_path / "runs").read_text().splitlines()]
    assert sorted(ran) == sorted(taken), "each fire runs once, whichever worker has it"
