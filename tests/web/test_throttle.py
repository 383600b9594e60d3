"""Clients in a loop are slowed down; those who ask now and then, and probes, are not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from fencepost.clock import thread_seconds
from fencepost.testing.world import Process, World
from fencepost.web.gate import HTTP
from fencepost.web.problems import Problem
from fencepost.web.throttle import PATIENCE, SAVED, Metered, Throttle
from tests.web.sample import sample
from tests.web.serving import STARTING, client_of, eventually, server_process, service

COST = 0.01
SHARE = 0.2
SPACING = COST / SHARE


def busy_throttle() -> Throttle:
    """One that has seen many requests, all of the same cost."""
    throttle = Throttle(SHARE)
    for _ in range(500):
        throttle.cost(COST)
    return throttle


# --- in virtual time ---------------------------------------------------------------------------------------


def test_clients_in_a_loop_take_their_share_of_the_time() -> None:
    throttle, process = Throttle(SHARE), Process(World())

    async def loop(name: str) -> None:
        for _ in range(200):
            await throttle.turn(name)
            throttle.cost(COST)

    async def five() -> None:
        await asyncio.gather(*(loop(f"client{number}") for number in range(5)))

    process.run_until_complete(five())
    assert process.time() == pytest.approx(1_000 * SPACING, rel=0.1)


def test_who_asks_now_and_then_does_not_wait_nor_does_a_page_that_asks_for_much_at_once() -> None:
    throttle, process = busy_throttle(), Process(World())

    async def asks() -> None:
        for _ in range(100):
            await asyncio.sleep(SPACING)
            before = process.time()
            await throttle.turn("client")
            assert process.time() == before
        await asyncio.sleep(1)
        before = process.time()
        for _ in range(10):
            await throttle.turn("client")
        assert process.time() == before

    process.run_until_complete(asks())


def test_clients_take_turns_however_many_requests_of_one_wait() -> None:
    throttle, process = busy_throttle(), Process(World())
    served: list[str] = []

    async def ask(client: str) -> None:
        await throttle.turn(client)
        served.append(client)

    async def all_at_once() -> None:
        loop = [asyncio.create_task(ask("loop")) for _ in range(60)]
        await asyncio.sleep(0)
        others = [asyncio.create_task(ask(client)) for client in ("page", "scraper")]
        await asyncio.gather(*others)
        waiting = [task for task in loop if not task.done()]
        assert len(waiting) > 40
        await asyncio.gather(*loop)

    process.run_until_complete(all_at_once())
    first = served.index("page")
    assert served.index("scraper") - first <= 2
    assert len(served) == 62


def test_requests_that_were_given_up_take_no_turn() -> None:
    throttle, process = busy_throttle(), Process(World())

    async def asks() -> None:
        for _ in range(20):  # what is saved up is used
            await throttle.turn("client")
        tasks = [asyncio.create_task(throttle.turn("client")) for _ in range(50)]
        await asyncio.sleep(0)
        for task in tasks[:-1]:
            task.cancel()
        before = process.time()
        await tasks[-1]
        assert process.time() - before < 3 * SPACING

    process.run_until_complete(asks())


def test_who_would_wait_for_too_long_is_refused() -> None:
    throttle, process = busy_throttle(), Process(World())

    async def asks() -> None:
        tasks = [asyncio.create_task(throttle.turn("client")) for _ in range(1_000)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [each for each in results if isinstance(each, Problem)]
        assert 800 < len(refused) < 1_000
        assert {each.status for each in refused} == {503}
        assert process.time() == PATIENCE

    process.run_until_complete(asks())


# --- what is measured --------------------------------------------------------------------------------------


async def test_the_loop_is_measured_and_waiting_is_not() -> None:
    async def work() -> None:
        for _ in range(2):
            begun = thread_seconds()
            while thread_seconds() < begun + 0.02:
                pass
            await asyncio.sleep(0.2)

    metered = Metered(work())
    await metered
    assert 0.04 <= metered.seconds < 0.1


async def test_what_is_metered_is_cancelled_and_fails_as_if_it_were_not() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)  # and cleans up
            seen.append("cleaned up")
            raise

    async def metered() -> None:
        await Metered(work())

    task = asyncio.create_task(metered())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", "cleaned up"]

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("row 7")

    with pytest.raises(ValueError, match="row 7"):
        await Metered(failing())


# --- over HTTP ---------------------------------------------------------------------------------------------


def test_probes_never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.web.gate.SHARE", 1e-6)
    monkeypatch.setattr("fencepost.web.throttle.PATIENCE", 0.3)
    with service(sample()) as client:
        eventually(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/api/v1/status").status_code == 200
        assert client.get("/api/v1/status").status_code == 200  # from now on the usual cost is known
        for _ in range(3):
            refused = client.get("/api/v1/status")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert client.get("/livez").status_code == client.get("/readyz").status_code == 200


LONGEST_KEPT = ("/api/v1/status", "/api/v1/fires?limit=100", "/metrics")


@pytest.mark.parametrize("path", LONGEST_KEPT)
def test_clients_in_a_loop_are_slowed_down_and_not_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.web.gate.SHARE", 0.01)
    with service(sample()) as client:
        begun = time.monotonic()
        with in_a_loop(str(client.base_url), path, 5) as statuses:
            # At least as long as it takes on a busy machine to be answered a few times.
            eventually(lambda: time.monotonic() > begun + 2 and len(statuses) > 10, 60)
        most = (time.monotonic() - begun + SAVED) * 0.01 / HTTP
        assert 10 < len(statuses) <= most + 5, "answers are not as far apart as their cost demands"
        assert set(statuses) == {200}


def test_a_client_in_a_loop_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.web.gate.SHARE", 0.01)
    with service(sample()) as client, in_a_loop(str(client.base_url), "/api/v1/status", 40) as statuses:
        eventually(lambda: len(statuses) > 40)
        for _ in range(3):
            before = len(statuses)
            assert asked(str(client.base_url), "/api/v1/status", source="127.0.0.2") == 200
            assert len(statuses) - before < 20, "it waited for most of those who were there before"


def test_clients_in_a_loop_leave_a_part_of_a_core_to_the_jobs(tmp_path: Path) -> None:
    """Before, five of them took all of it, and a claim waited for the interpreter at each statement."""
    command = ["fencepost", "serve", "tests.web.apps.limited:scheduler", "--port", "{port}"]
    store = f"sqlite:///{tmp_path}/jobs.db"
    with server_process(command, tmp_path, store=store) as process, client_of(process.url) as client:
        eventually(lambda: has_run(client), STARTING)
        for path in LONGEST_KEPT:
            with in_a_loop(process.url, path, 5) as statuses:
                eventually(lambda statuses=statuses: len(statuses) > 50)  # type: ignore[misc]
                cores = cores_of(process.popen.pid, 2.0)
            assert cores < 0.75, path
            assert set(statuses) == {200}


def has_run(client: httpx2.Client) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return bool(client.get("/api/v1/fires", params={"state": "succeeded"}).json()["items"])
    return False


@contextlib.contextmanager
def in_a_loop(url: str, path: str, number: int) -> Iterator[list[int]]:
    """Clients that ask again as soon as they are answered; the statuses of their answers so far."""
    statuses: list[int] = []
    ending = threading.Event()

    def ask() -> None:
        while not ending.is_set():
            statuses.append(asked(url, path))

    threads = [threading.Thread(target=ask) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def asked(url: str, path: str, source: str = "127.0.0.1") -> int:
    """The status of one answer, on a connection of its own."""
    address = urlsplit(url)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), 20, (source, 0)) as connection:
        connection.sendall(head.encode())
        return int(connection.makefile("rb").read()[9:12])


def cores_of(pid: int, seconds: float) -> float:
    """How much of a core its threads use."""

    def used() -> int:
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks)

    before, begun = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / 1e9 / (time.monotonic() - begun)
