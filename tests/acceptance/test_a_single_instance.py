"""A: one scheduler, enforced by a row in the application's own SQLite file.

All but two drive `examples/single_instance`, a FastAPI application with an `AsyncIOScheduler`, as uvicorn runs it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from fencepost import ConfigurationError
from fencepost.apscheduler import guard
from fencepost.insight.audit import audit
from fencepost.model import State
from fencepost.store.base import Campaign, FireQuery, HeartbeatRequest, Watched
from fencepost.store.sqlite import SqliteStore
from tests.cluster.harness import Reader
from tests.web.serving import STARTING, ServerProcess, client_of, eventually, server_process

pytestmark = pytest.mark.cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "single_instance"
SHORT = {"leader_ttl": 2, "run_ttl": 2, "heartbeat": 0.5}
LONGER = {"leader_ttl": 6, "run_ttl": 6, "heartbeat": 2}
SHORTER = {"leader_ttl": 1, "run_ttl": 1, "heartbeat": 0.25}


class BanList:
    """The example on one database file, in as many processes as are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "ban_list.db"
        self.env = {"BAN_LIST_DB": str(self.file), "BAN_LIST_WORKERS": "1"}
        self.reader = Reader(f"sqlite:///{self.file}")
        self._ending = ExitStack()
        self._ending.callback(self.reader.close)

    def close(self) -> None:
        self._ending.close()

    def start(self, *options: str, **settings: object) -> ServerProcess:
        """One more server, with settings of Fencepost's. It may still be starting."""
        home = self.folder / f"server-{len(list(self.folder.glob('server-*')))}"
        home.mkdir()
        command = ["uvicorn", "--app-dir", str(EXAMPLE), "ban_list.app:app", "--port", "{port}", *options]
        server = server_process(command, home, self.env, ready_delay=0, **settings)
        return self._ending.enter_context(server)

    def started(self, *options: str, **settings: object) -> ServerProcess:
        server = self.start(*options, **settings)
        self.until(lambda: server.popen.pid in self.pids() and server.listens(), server)
        return server

    def until(
        self, condition: Callable[[], object], *servers: ServerProcess, seconds: float = STARTING
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            told = "\n".join(server.told() for server in servers)
            assert time.monotonic() < deadline, f"not within {seconds} s\n{told}"
            assert all(server.popen.poll() is None for server in servers), told
            time.sleep(0.01)

    def pids(self) -> set[int]:
        if not self.file.exists():
            return set()  # it is the application's to make
        return {replica.pid for replica in self.reader.roster().replicas}

    def leader(self) -> int | None:
        """The process whose name is in the row."""
        roster = self.reader.roster()
        return next((each.pid for each in roster.replicas if each.id == roster.leader.holder), None)

    def lease(self) -> dict[str, Any]:
        """The row itself, without any code of ours."""
        [row] = self.rows("select value from fencepost_meta where name = 'leader'")
        lease: dict[str, Any] = json.loads(row[0])
        return lease

    def renewed(self, times: int, *servers: ServerProcess) -> None:
        """Wait until the owner has renewed it so many times."""
        before = self.lease().get("renewals", 0)
        self.until(lambda: self.lease().get("renewals", 0) >= before + times, *servers)

    def runs(self, pid: int | None = None) -> list[str]:
        """Fires, as the jobs themselves have noted them: in this process, or in any."""
        return [fire for fire, ran_in in self.rows("select * from runs") if pid in (None, ran_in)]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.file, timeout=5)) as db:
            return db.execute(query).fetchall()

    def kill(self, server: ServerProcess, *, leave_proof: bool = True) -> None:
        """`kill -9`. Without its beacon nobody can see that it is dead, as if it had been on another machine."""
        if not leave_proof:
            [holder] = [each.id for each in self.reader.roster().replicas if each.pid == server.popen.pid]
            [beacon] = self.folder.rglob(f"{holder}.alive")
            server.popen.send_signal(signal.SIGSTOP)  # or its next heartbeat would make another
            os.waitpid(server.popen.pid, os.WUNTRACED)
            beacon.unlink()
        server.popen.kill()
        server.popen.wait()

    def stop(self, *servers: ServerProcess) -> None:
        for server in servers:
            server.terminate()
        for server in servers:
            server.ended()

    def every_fire_once(self) -> set[State]:
        """By the audit, which works out anew what was due; by the ledger; and by what the jobs themselves noted. Gives
        the states that fires ended in."""
        report = self.reader.ask(lambda store: audit(store))
        assert report.clean, report.findings
        query = FireQuery(states=(State.SUCCEEDED,), limit=1_000)
        succeeded = {fire.key for fire in self.reader.ask(lambda store: store.find_fires(query))}
        times = Counter(self.runs())
        assert succeeded <= times.keys()
        assert set(times.values()) == {1}, times
        return set(report.states)


@pytest.fixture
def ban_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BanList]:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    with closing(BanList(tmp_path)) as running:
        yield running


def boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- A1 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "says"),
    [("4", "BAN_LIST_WORKERS is '4'"), (None, "BAN_LIST_WORKERS is not set")],
    ids=["four", "unset"],
)
def test_a1_a_declared_number_of_workers_other_than_one_aborts_the_start(
    declared: str | None, says: str, ban_list: BanList
) -> None:
    """A1: the gate names the variable, its value and the remedy; unset aborts too where the gate is strict."""
    del ban_list.env["BAN_LIST_WORKERS"]
    if declared is not None:
        ban_list.env["BAN_LIST_WORKERS"] = declared
    server = ban_list.start()
    assert server.ended() == 3  # uvicorn's code for a start that failed
    assert says in server.told()
    assert "set BAN_LIST_WORKERS=1 and start one worker" in server.told()
    assert not ban_list.pids()
    assert not ban_list.runs()


@pytest.mark.parametrize(("declared", "starts"), [("3", False), ("1", True), (None, True)])
async def test_a1_by_default_the_gate_looks_at_web_concurrency(
    declared: str | None, starts: bool, ban_list: BanList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: without a name of its own the application's gate is `WEB_CONCURRENCY`, which may be unset."""
    if declared is not None:
        monkeypatch.setenv("WEB_CONCURRENCY", declared)
    scheduler = AsyncIOScheduler(timezone="UTC")
    guard(scheduler, f"sqlite:///{ban_list.file}", single_instance=True)
    if starts:
        scheduler.start()
        scheduler.shutdown()
    else:
        with pytest.raises(ConfigurationError, match=r"WEB_CONCURRENCY is '3'.*set WEB_CONCURRENCY=1"):
            scheduler.start()
        assert not scheduler.running


# --- A2 -------------------------------------------------------------------------------------------------------


def test_a2_the_row_has_an_owner_a_heartbeat_and_an_expiry(ban_list: BanList) -> None:
    """A2: one row in the application's own file: owner, heartbeat 10 s, expiry after 30 s, on no wall clock."""
    server = ban_list.started()
    ban_list.until(lambda: ban_list.leader() == server.popen.pid, server)
    lease = ban_list.lease()
    assert f"-{server.popen.pid}-" in lease["holder"]
    assert (lease["heartbeat"], lease["ttl"]) == (10, 30)
    assert 10 < lease["expires"] - boot_time() <= 30
    assert ("bans",) in ban_list.rows("select name from sqlite_master")


def test_a2_a_live_row_is_not_stolen_and_a_stale_one_is_taken(ban_list: BanList) -> None:
    """A2: nobody takes it while it is renewed, nor before it has expired; then one does, and keeps it."""
    first, second = ban_list.start(**SHORTER), ban_list.start(**SHORTER)
    ban_list.until(lambda: len(ban_list.pids()) == 2 and ban_list.leader(), first, second)
    if ban_list.leader() != first.popen.pid:
        first, second = second, first
    live = ban_list.lease()
    ban_list.renewed(6, first, second)  # one and a half TTLs
    assert ban_list.lease()["holder"] == live["holder"]

    ban_list.kill(first, leave_proof=False)
    stale = ban_list.lease()
    assert stale["holder"] == live["holder"]
    ban_list.until(lambda: ban_list.leader() == second.popen.pid, second, seconds=5)
    assert boot_time() >= stale["expires"]
    ban_list.renewed(1, second)
    assert ban_list.lease()["term"] == live["term"] + 1


RACERS, ROUNDS = 4, 25


def test_a2_of_several_that_take_it_at_the_same_moment_one_gets_it(tmp_path: Path) -> None:
    """A2: the take is atomic, in the first round of a row that nobody has, then of one whose owner is gone."""
    fork = multiprocessing.get_context("fork")
    ready, told = fork.Barrier(RACERS), fork.SimpleQueue()
    racers = [fork.Process(target=race, args=(tmp_path / "shared.db", ready, told)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    answers = [told.get() for _ in racers]
    for racer in racers:
        racer.join()
    for number, answered in enumerate(zip(*answers, strict=True), start=1):
        assert {term for _, _, term in answered} == {number}
        [owner] = {owner for _, owner, _ in answered}
        assert [me for me, _, _ in answered].count(owner) == 1


def race(file: Path, ready: Barrier, told: SimpleQueue[list[tuple[str, str | None, int]]]) -> None:
    """In each round under a new name: whom the row names after our attempt to take it, and in which term."""

    async def rounds() -> list[tuple[str, str | None, int]]:
        store, answers = SqliteStore(file), []
        await store.open()
        for number in range(ROUNDS):
            me = f"racer-{os.getpid()}-{number}"
            before = (await store.heartbeat(HeartbeatRequest(me, 1, 30, 10, joining=True))).leader
            campaign = Campaign(30, Watched(before.term, before.renewals, 0.0, gone=True))
            ready.wait(10)
            after = (await store.heartbeat(HeartbeatRequest(me, 2, 30, 10, campaign=campaign))).leader
            answers.append((me, after.holder, after.term))
            ready.wait(10)
        await store.close()
        return answers

    told.put(asyncio.run(rounds()))


# --- A3 -------------------------------------------------------------------------------------------------------


def test_a3_the_loser_serves_without_scheduling_and_takes_over_later(ban_list: BanList) -> None:
    """A3: a second process serves its requests and runs nothing, until the first has gone."""
    first = ban_list.started(**SHORT)
    second = ban_list.started(**SHORT)
    with client_of(second.url) as client:
        assert eventually(lambda: status(client)["ready"])
        assert client.put("/bans/192.0.2.7?seconds=1").json() == {"192.0.2.7": 1}
        eventually(lambda: client.get("/").json()["banned"] == [])  # lifted, by the first
        assert not status(client)["is_leader"]
        assert not ban_list.runs(second.popen.pid)

        ban_list.stop(first)
        ban_list.until(lambda: ban_list.runs(second.popen.pid), second, seconds=4)
        assert status(client)["is_leader"]
    ban_list.stop(second)
    assert ban_list.every_fire_once() == {State.SUCCEEDED}


def status(client: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.get("/fencepost/scheduler/status").json()
    return answer


# --- A4 -------------------------------------------------------------------------------------------------------


def test_a4_after_a_crash_a_restart_takes_over_at_once(ban_list: BanList) -> None:
    """A4: `kill -9`, and a new process on the same host leads within a second, with an expiry of 30 s."""
    crashed = ban_list.started()
    ban_list.until(lambda: ban_list.runs(crashed.popen.pid), crashed)
    ban_list.kill(crashed)
    left = ban_list.lease()
    restarted = ban_list.started()
    ban_list.until(lambda: ban_list.leader() == restarted.popen.pid, restarted, seconds=1)
    assert left["expires"] > boot_time(), "it did not wait for that"
    assert ban_list.lease()["term"] == left["term"] + 1
    ban_list.until(lambda: ban_list.runs(restarted.popen.pid), restarted, seconds=4)
    ban_list.stop(restarted)
    ban_list.every_fire_once()


def test_a4_without_proof_of_death_another_takes_over_within_the_expiry(ban_list: BanList) -> None:
    """A4: where a death cannot be seen the row expires by itself; nobody cleans up by hand there either."""
    crashed, other = ban_list.start(**LONGER), ban_list.start(**LONGER)
    ban_list.until(lambda: len(ban_list.pids()) == 2 and ban_list.leader(), crashed, other)
    if ban_list.leader() != crashed.popen.pid:
        crashed, other = other, crashed
    ban_list.renewed(1, crashed, other)
    time.sleep(LONGER["heartbeat"] / 2)  # in mid-heartbeat, as it is at most moments
    begun = time.monotonic()
    ban_list.kill(crashed, leave_proof=False)
    expiry = begun + LONGER["leader_ttl"] - time.monotonic()
    ban_list.until(lambda: ban_list.leader() == other.popen.pid, other, seconds=expiry)
    ban_list.until(lambda: ban_list.runs(other.popen.pid), other, seconds=4)
    ban_list.stop(other)
    ban_list.every_fire_once()


# --- A5 -------------------------------------------------------------------------------------------------------


def test_a5_one_process(ban_list: BanList) -> None:
    """A5: one process runs all that is due."""
    server = ban_list.started(**SHORT)
    ban_list.until(lambda: len(ban_list.runs()) >= 4, server)
    ban_list.stop(server)
    assert ban_list.every_fire_once() == {State.SUCCEEDED}


def test_a5_accidental_second_process(ban_list: BanList) -> None:
    """A5: two workers although one is declared, so that the gate cannot see it: one of them runs all jobs."""
    server = ban_list.start("--workers", "2", **SHORT)
    ban_list.until(lambda: len(ban_list.pids()) == 2, server)
    before = len(ban_list.runs())
    ban_list.until(lambda: len(ban_list.runs()) >= before + 4, server)
    ban_list.stop(server)
    assert len(set(ban_list.rows("select pid from runs"))) == 1
    assert ban_list.every_fire_once() == {State.SUCCEEDED}


def test_a5_rolling_restart(ban_list: BanList) -> None:
    """A5: the new process stands by, the old one ends and hands over, and no fire is lost or missed."""
    old = ban_list.started(**SHORT)
    new = ban_list.started(**SHORT)
    ban_list.until(lambda: ban_list.runs(old.popen.pid), old, new)
    ban_list.stop(old)
    ban_list.until(lambda: len(ban_list.runs(new.popen.pid)) >= 2, new)
    ban_list.stop(new)
    assert ban_list.every_fire_once() == {State.SUCCEEDED}


def test_a5_intended_multi_worker(ban_list: BanList) -> None:
    """A5: `uvicorn --workers 4`, any of which runs what is due, and every fire once."""
    ban_list.env |= {"BAN_LIST_MODE": "many", "BAN_LIST_WORKERS": "4"}
    server = ban_list.start("--workers", "4", **SHORT)
    ban_list.until(lambda: len(ban_list.pids()) == 4, server)
    before = len(ban_list.runs())
    ban_list.until(lambda: len(ban_list.runs()) >= before + 4, server)
    ban_list.stop(server)
    assert ban_list.every_fire_once() == {State.SUCCEEDED}
