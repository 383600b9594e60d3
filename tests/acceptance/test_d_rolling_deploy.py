"""System D, rows D4 to D9: who runs the jobs, a shutdown in order, work that goes on elsewhere, many processes.

All of it on `examples/rolling_deploy`, started by uvicorn as its README says, on one real PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler
from fencepost.insight.audit import audit
from fencepost.model import State
from fencepost.settings import Settings
from rolling_deploy.account import reckon
from rolling_deploy.deploy import Deploy
from tests.acceptance.rolling import EXAMPLE, LEAVING, Books, all_ready, application
from tests.servers import PostgresServer
from tests.servers.postgresql import Version
from tests.web.serving import STARTING, ServerProcess, client_of, eventually

pytestmark = pytest.mark.cluster


# --- D4 -------------------------------------------------------------------------------------------------


def test_d4_every_instance_claims(postgres_url: str, tmp_path: Path) -> None:
    """D4: with `execute_on=any`, the default, whoever has room."""
    options: dict[str, Any] = {"slots": 1, "more": {"EXPORT_STEPS": "25"}}
    with (
        Books(postgres_url) as books,
        application(postgres_url, tmp_path / "a", **options) as one,
        application(postgres_url, tmp_path / "b", **options) as other,
    ):
        all_ready(one, other)
        export = books.start_export()
        before = set(books.ticks())
        eventually(lambda: set(books.ticks()) - before)
        assert books.fire(export).state is State.RUNNING
        busy = {pid for _, pid in books.steps(export)}
        ticked = {pid for fire, pids in books.ticks().items() if fire not in before for pid in pids}
        assert busy | ticked == {one.popen.pid, other.popen.pid}, "one slot each: the ticks are the other's"
        books.all_once()


def test_d4_or_only_the_leader(departure: Departure) -> None:
    """D4: with `execute_on=leader` nobody else; leadership moves, and the jobs with it."""
    assert departure.ticked_before == {departure.pid}
    assert departure.ticked_after == {departure.next_leader}


# --- D5, D6: one departure, seen from outside -------------------------------------------------------------


@dataclass
class Departure:
    """What was seen, and when: in seconds after SIGTERM."""

    pid: int
    ticked_before: set[int]
    """Who ran ticks until then."""
    not_ready: float = 0.0
    readiness: httpx2.Response | None = None
    served_meanwhile: list[int] = field(default_factory=list)
    """Statuses of requests that came after the first 503, each on a connection of its own."""
    handed_over: float = 0.0
    """Another process leads."""
    request_ended: float = 0.0
    request: httpx2.Response | None = None
    run_ended: float = 0.0
    run: State | None = None
    run_pids: set[int] = field(default_factory=set)
    next_leader: int = 0
    ticked_after: set[int] = field(default_factory=set)
    """Who ran ticks that fell due after that."""
    exited: float = 0.0
    log: str = ""


DELAY = 2.0
DRAIN = 12.0
REQUEST = 5.0
"""Seconds: longer than the listeners stay open."""
MEANWHILE = 3


@pytest.fixture(scope="module")
def departure(
    postgres_servers: Callable[[Version], PostgresServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Departure]:
    """The leader of two gets SIGTERM, with a request and a run under way that outlast its listeners."""
    folder = tmp_path_factory.mktemp("departure")
    options: dict[str, Any] = {"execute_on": "leader", "ready_delay": DELAY, "drain_timeout": DRAIN}
    with (
        postgres_servers(16).database() as url,
        Books(url) as books,
        ThreadPoolExecutor(4) as pool,
        application(url, folder / "a", more={"EXPORT_STEPS": "45"}, **options) as one,
        application(url, folder / "b", more={"EXPORT_STEPS": "45"}, **options) as other,
    ):
        all_ready(one, other)
        leader = one if eventually(books.leader) == one.popen.pid else other
        yield depart(leader, books, pool)


def depart(leader: ServerProcess, books: Books, pool: ThreadPoolExecutor) -> Departure:
    eventually(lambda: len(books.ticks()) >= 2)
    seen = Departure(leader.popen.pid, {pid for pids in books.ticks().values() for pid in pids})
    begun = time.monotonic()

    def since() -> float:
        return time.monotonic() - begun

    asked = threading.Event()

    def sent(event: str, _: Any) -> None:
        if event == "http11.send_request_body.complete":
            asked.set()

    def ask() -> None:
        with client_of(leader.url) as client:
            seen.request = client.get(f"/work?seconds={REQUEST}", extensions={"trace": sent})
        seen.request_ended = since()

    def watch_run() -> None:
        with Books(books.url) as own:
            seen.run = own.ended(export).state
        seen.run_ended = since()

    with client_of(leader.url) as client:
        assert client.get("/health/ready").status_code == 200
        export = books.start_export()
        watching = [pool.submit(ask), pool.submit(watch_run)]
        assert asked.wait(STARTING), "the request is under way"
        begun = time.monotonic()
        leader.terminate()
        while seen.readiness is None or seen.readiness.status_code != 503:
            seen.readiness = client.get("/health/ready")
        seen.not_ready = since()
        seen.served_meanwhile = [client.get("/work").status_code for _ in range(MEANWHILE)]
    seen.next_leader = eventually(lambda: books.leader() not in (0, seen.pid) and books.leader())
    seen.handed_over = since()
    handed_over = f"tick@{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    for each in watching:
        each.result(STARTING)
    leader.ended()
    seen.exited, seen.log = since(), leader.told()
    seen.ticked_after = eventually(
        lambda: {pid for fire, pids in books.ticks().items() if fire > handed_over for pid in pids}
    )
    seen.run_pids = {pid for _, pid in books.steps(export)}
    return seen


def test_d5_sigterm_ends_everything_in_order(departure: Departure) -> None:
    """D5: not ready → pause → no more claims, leadership handed over → requests and runs drain → pool last → exit."""
    assert departure.not_ready < departure.handed_over
    assert departure.handed_over >= DELAY, "the balancer gets its time first"
    assert departure.handed_over < departure.request_ended, "another leads while requests are still under way"
    assert departure.handed_over < departure.run_ended
    assert departure.request is not None
    assert (departure.request.status_code, departure.request.json()) == (200, {"pid": departure.pid})
    assert (departure.run, departure.run_pids) == (State.SUCCEEDED, {departure.pid}), "it was let end"
    assert departure.exited < DELAY + DRAIN, "nothing needed the limit"
    last = [line for line in departure.log.splitlines() if line in ENDING]
    assert last == ENDING, departure.log


ENDING = ["the scheduler has left", "the pool is closed"]


def test_d6_readiness_says_503_while_requests_are_served(departure: Departure) -> None:
    """D6: 503 `{"ready": false, "reason": "shutting_down"}` from a server that still takes new requests."""
    assert departure.readiness is not None
    assert (departure.readiness.status_code, departure.readiness.json()) == (503, LEAVING)
    assert departure.not_ready < DELAY
    assert departure.served_meanwhile == [200] * MEANWHILE


# --- D7 ---------------------------------------------------------------------------------------------------


async def test_d7_a_sequence_that_does_not_fit_the_grace_period_is_reported(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D7: by default all fits the platform's 30 s; the document's 45 s are reported at the start."""
    default = Settings()
    assert default.ready_delay + default.drain_timeout <= default.grace_period
    assert default.grace_period.total_seconds() == 30
    async with Scheduler(store=postgres_url):
        assert "grace_period" not in caplog.text
    async with Scheduler(store=postgres_url, ready_delay=5, drain_timeout=40):
        warning = "ready_delay (5s) and drain_timeout (40s) together exceed grace_period (30s)"
        assert warning in caplog.text


def test_d7_what_does_not_end_by_itself_is_ended_within_the_grace_period(
    postgres_url: str, tmp_path: Path
) -> None:
    """D7: the limits hold for a request and a run that would take a minute."""
    more = {"EXPORT_STEPS": "600"}
    with (
        Books(postgres_url) as books,
        application(postgres_url, tmp_path / "a", grace_period=GRACE, more=more) as process,
        ThreadPoolExecutor(1) as pool,
        client_of(process.url) as client,
    ):
        all_ready(process)
        export = books.start_export()
        pool.submit(client.get, "/work?seconds=60")
        begun = time.monotonic()
        process.terminate()
        process.ended()
        took = time.monotonic() - begun
        assert took < GRACE, f"{took:.1f} s"
        assert books.fire(export).state is State.WAITING, "to be resumed by whoever comes next"


GRACE = 4.0


# --- D8 ---------------------------------------------------------------------------------------------------


def test_d8_unfinished_work_is_resumed_elsewhere(postgres_url: str, tmp_path: Path) -> None:
    """D8: a run that outlasts the drain limit is given back with its checkpoint, and another goes on from there."""
    steps = 25
    with Books(postgres_url) as books, ExitStack() as stack:
        processes = [
            stack.enter_context(
                application(
                    postgres_url,
                    tmp_path / name,
                    ready_delay=0.1,
                    drain_timeout=0.1,
                    more={"EXPORT_STEPS": str(steps)},
                )
            )
            for name in "ab"
        ]
        all_ready(*processes)
        export = books.start_export()
        eventually(lambda: len(books.steps(export)) >= 3)
        ((_, first), *_) = books.steps(export)
        leaving = next(process for process in processes if process.popen.pid == first)
        leaving.terminate()
        leaving.ended()
        done = books.ended(export)
        assert done.state is State.SUCCEEDED
        did = books.steps(export)
        assert [step for step, _ in did] == list(range(steps)), "each step once, in order"
        (second,) = {pid for _, pid in did} - {first}
        assert second in {process.popen.pid for process in processes}
        assert [pid for _, pid in did] == sorted((pid for _, pid in did), key=[first, second].index)
        assert done.crashes == 0, "given back, not taken for dead"


# --- D9 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "workers"),
    [
        pytest.param(1, 4, id="uvicorn --workers 4", marks=pytest.mark.slow),
        pytest.param(3, 1, id="3 processes"),
    ],
)
def test_d9_workers_and_processes_on_one_postgresql(
    processes: int, workers: int, postgres_url: str, tmp_path: Path
) -> None:
    """D9: every fire once and every action once, by the ledger, by the audit, and by what jobs and requests wrote."""
    with Books(postgres_url) as books, ExitStack() as stack:
        started = [
            stack.enter_context(application(postgres_url, tmp_path / f"{n}", workers=workers))
            for n in range(processes)
        ]
        all_ready(*started)
        eventually(lambda: len(books.pids()) == processes * workers, STARTING)
        for number in (1, 2, 3):
            books.add_action(number, "1 second")
        before = len(books.ticks())
        with ThreadPoolExecutor(6) as pool:
            answered = list(pool.map(lambda n: ask_for_actions(started[n % processes].url), range(6)))
        eventually(lambda: len(books.ticks()) >= before + 2)
        for process in started:
            process.terminate()
        for process in started:
            process.ended()
        account = asyncio.run(reckon(postgres_url))
        assert account.clean, account
        assert account.ticks >= 2
        assert account.messages >= sum(answered)
        report = books.reader.ask(audit)
        assert report.clean, report.findings


def ask_for_actions(url: str) -> int:
    """How often it was this request that ran an action."""
    won = 0
    with client_of(url) as client:
        for _ in range(3):
            for number in (1, 2, 3):
                answer = ask_for_action(client, number)
                assert answer.status_code == 200, answer.text
                won += answer.json()["claim"] == "won"
    return won


def ask_for_action(client: httpx2.Client, number: int) -> httpx2.Response:
    """As a client of the application does: 503 says when to ask again."""
    for _ in range(60):
        answer = client.post(f"/actions/{number}/run")
        if answer.status_code != 503:
            break
        time.sleep(float(answer.headers["Retry-After"]))
    return answer


@pytest.mark.slow
def test_d9_the_command_ends_in_order_and_says_what_it_counted(postgres_url: str) -> None:
    """`python -m rolling_deploy` leaves no task behind, as asyncio's debug mode would say, and no process."""
    done = subprocess.run(
        [sys.executable, "-m", "rolling_deploy", "--instances", "2", "--clients", "4"],
        env={
            **os.environ,
            "PYTHONPATH": str(EXAMPLE),
            "DATABASE_URL": postgres_url,
            "PYTHONASYNCIODEBUG": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Task was destroyed" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "requests" in done.stdout


@pytest.mark.slow
async def test_d9_a_rolling_deploy_under_load_loses_nothing(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: what `python -m rolling_deploy` shows: all instances replaced, no request failed, no fire lost or doubled. An
    export takes as long as two of its intervals and more, as on a busy machine: the next ones wait."""
    monkeypatch.setenv("EXPORT_EVERY", "1")
    result = await Deploy(postgres_url, tmp_path, instances=2, clients=4).run()
    for log in tmp_path.glob("*.log"):
        assert "Task was destroyed" not in log.read_text(), log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    assert result.traffic.failures == {}
    assert result.account.clean, result.account
    assert len(result.traffic.pids) == 4, "each instance has answered, the old and the new"
    assert result.account.ticks >= 3
    assert all(b" 503 " in refusal and b"shutting_down" in refusal for refusal in result.refusals)
