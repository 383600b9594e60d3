"""What only PostgreSQL can get wrong: other servers, poolers, sessions, locks, and the two ways of a step."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from itertools import count
from typing import Any

import psycopg
import pytest

from fencepost.errors import ConfigurationError, StoreCorrupt, StoreUnavailable
from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.store.base import ClaimRequest, GiveBack, HeartbeatRequest, PutJob, Settle, Store
from fencepost.store.postgres import PostgresStore, connection, fast, rest, schema
from fencepost.store.postgres import line as line_module
from fencepost.store.rules import planning, presence
from fencepost.testing.conformance import HandClock, Harness, job_of
from tests.protocol.comparison import Mismatch, compare
from tests.servers import PostgresServer, Proxy, cut_after, postgres
from tests.store.on_postgres import a_harness
from tests.store.transaction_pooler import transaction_pooler

numbers = count()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not come true"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(url: str, *args: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, *args)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def join(store: Store, replica: str) -> None:
    assert (
        await store.heartbeat(HeartbeatRequest(replica, 1, 30.0, 10.0, joining=True, targets=("work",)))
    ).known


async def run_one(store: Store) -> None:
    """A job whose fire falls due at once runs."""
    await store.put_jobs([PutJob(job_of("job", every(seconds=0.1)))])
    harness = Harness(store, asyncio.sleep)
    number = next(numbers)

    async def ran() -> bool:
        nonlocal number
        await harness.plan(5)
        number += 1
        claims = (await store.claim_fires(ClaimRequest("a", number, 10))).claims
        updates = [Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED) for claim in claims]
        return bool(updates) and all((await store.update_claims("a", updates)).accepted)

    await until(ran)


# --- the two ways --------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_comparison_takes_both_ways(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally: Counter[str] = Counter()

    def counting(place: Any, name: str, of: Callable[[Any], int]) -> None:
        original = getattr(place, name)

        @wraps(original)
        def counted(*args: Any) -> Any:
            reply = original(*args)
            tally[f"{place.__name__}.{name}"] += of(reply)
            return reply

        monkeypatch.setattr(place, name, counted)

    counting(fast, "claim", lambda reply: len(reply.claimed.claims) if reply else 0)
    counting(fast, "_closed", lambda reply: 1)
    counting(fast, "settle", lambda reply: sum(reply.updated.accepted))
    counting(fast, "plan", sum)
    counting(fast, "heartbeat", lambda reply: reply is not None)
    counting(fast, "sweep", lambda reply: reply is not None)
    for place, name in (
        (rest, "claim_more"),
        (rest, "update_more"),
        (planning, "_plan"),
        (presence, "heartbeat"),
    ):
        counting(place, name, lambda reply: 1)
    for seed in (40, 41, 43, 45, 47, 49):  # the odd ones are quieter
        async with a_harness(postgres_server.url) as harness:
            await compare(harness, seed, 150)
    assert len(tally) == 10
    assert min(tally.values()) > 2, tally


@pytest.mark.parametrize(
    ("script", "condition", "without"),
    [
        pytest.param(
            "claim",
            "limit 1) is null as plain",
            "limit 1) is distinct from false as plain",
            marks=pytest.mark.rare,
        ),
        ("turns", "(p_leads or not j.leader_only)", "true"),
        pytest.param("close_row", "f.reason = 'coalesced'", "true", marks=pytest.mark.rare),
        ("settle", "other.job_id = w.job_id) = 1", "other.job_id = w.job_id) > 0"),
        ("plan", "and c.cursor = w.cursor", ""),
    ],
)
@pytest.mark.mutants
@pytest.mark.timeout(300)
async def test_a_condition_left_out_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, script: str, condition: str, without: str
) -> None:
    text = schema.script(script)
    assert condition in text
    scripts = {name: schema.script(name) for name in schema.SCRIPTS}
    scripts[script] = text.replace(condition, without)
    monkeypatch.setattr(schema, "script", scripts.__getitem__)

    async def some_seeds() -> None:
        for seed in range(100, 140):
            clock = HandClock()
            async with opened(postgres_url, f"seed{seed}", clock) as store:
                await compare(Harness.with_clock(store, clock), seed, 150)

    with pytest.raises(Mismatch):
        await some_seeds()


# --- who is at the other end ------------------------------------------------------------------------------------


async def test_many_start_together(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    assert [(await store.roster()).replicas for store in stores] == [()] * 5
    for store in stores:
        await store.close()


async def test_a_newer_schema_is_refused(postgres_url: str) -> None:
    async with opened(postgres_url):
        with psycopg.connect(postgres_url) as admin:
            admin.execute("update fencepost.meta set value = '999' where name = 'schema'")
    with pytest.raises(ConfigurationError, match=r"format 999.*upgrade Fencepost"):
        await PostgresStore(postgres_url).open()


async def test_an_old_server_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OLDEST", 99)
    with pytest.raises(ConfigurationError, match="needs 99 or newer: upgrade the server"):
        await PostgresStore(postgres_url).open()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("default_transaction_isolation = 'serializable'", "read committed.*alter role"),
        ("default_transaction_read_only = on", "default_transaction_read_only"),
    ],
)
async def test_a_session_that_cannot_work_says_why(postgres_url: str, setting: str, message: str) -> None:
    async with opened(postgres_url):
        pass
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        database = admin.info.dbname
        admin.execute(f"alter database {database} set {setting}".encode())
    store = PostgresStore(postgres_url)
    with pytest.raises((ConfigurationError, StoreUnavailable), match=message):
        await store.claim_fires(ClaimRequest("a", 1, 1))
    await store.close()


async def test_without_the_right_to_create_a_schema_it_says_what_an_administrator_must_do(
    postgres_url: str,
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("drop role if exists app")
        admin.execute("create role app login")
        url = postgres_url.replace("postgres@", "app@")
        with pytest.raises(ConfigurationError, match='create schema "fencepost" authorization app'):
            await PostgresStore(url).open()
        admin.execute("create schema fencepost authorization app")
        async with opened(url) as store:
            await join(store, "a")
            await run_one(store)
        admin.execute("drop owned by app")


async def test_tables_that_vanish_are_not_made_again_under_a_running_replica(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await join(store, "a")
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("drop schema fencepost cascade")
        with pytest.raises(StoreCorrupt, match="restore them from a backup"):
            await store.roster()


async def test_a_wrong_password_and_a_server_that_is_down_are_told_apart(postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match="does not exist.*check the URL"):
        await PostgresStore(postgres_url.replace("postgres@", "nobody@")).open()
    with pytest.raises(StoreUnavailable) as refused:
        await PostgresStore("postgresql://me:secret@127.0.0.1:1/app").open()
    assert "secret" not in str(refused.value)


def test_without_the_driver_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fencepost.store.urls import store_from_url; store_from_url('postgresql://localhost/app')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'fencepost[postgres]'" in ended.stderr.splitlines()[-1]


# --- failover -----------------------------------------------------------------------------------------------------


class Standby(PostgresServer):
    """The same server, not yet promoted."""

    def ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return lines[0] == str(self.pid) and len(lines) > 7 and lines[7].strip() in ("ready", "standby")


async def test_a_standby_is_refused_and_a_promoted_one_begins_a_new_incarnation() -> None:
    with Standby(16, None, {}) as server:
        store = PostgresStore(server.url)
        await store.open()
        await join(store, "a")
        assert (await store.roster()).leader.era.incarnation == 0
        server.restart()
        await until(lambda: answers(store))
        assert (await store.roster()).leader.era.incarnation == 0, "a restart loses nothing"
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()
        with pytest.raises(StoreUnavailable, match=r"is a standby.*target_session_attrs=primary"):
            await until_told(store)
        server.execute("select pg_promote()")
        await until(lambda: answers(store))
        era = (await store.roster()).leader.era
        assert (era.incarnation, era.standing) == (1, "restarted")
        await store.close()


@pytest.mark.parametrize("fast", [True, False])
async def test_an_end_is_not_counted_while_it_is_doubtful_what_was_lost(
    postgres_url: str, fast: bool
) -> None:
    """It would make up for a step that is missing."""
    async with a_harness(postgres_url, fast) as harness:
        fire = await harness.running()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("update fencepost.lease set standing = 'restarted'")
        first = (await harness.heartbeat("a")).steps
        assert await harness.settle(fire)
        assert (await harness.heartbeat("a")).steps == first + 1


async def answers(store: Store) -> bool:
    try:
        await store.roster()
    except StoreUnavailable:
        return False
    return True


async def until_told(store: Store) -> None:
    """What is said when the connection that was lost is made anew."""
    for _ in range(20):
        try:
            await store.roster()
        except StoreUnavailable as error:
            if "standby" in str(error):
                raise
        await asyncio.sleep(0.1)


# --- sessions -------------------------------------------------------------------------------------------------------

REPLICA = """
import asyncio, os, sys
from fencepost.store.base import HeartbeatRequest
from fencepost.store.postgres import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    await store.heartbeat(HeartbeatRequest("other", 1, 30.0, 10.0, joining=True, targets=()))
    while not await asyncio.wrap_future(store._signs.line()._ask(lambda db: db.one("select 1 from fencepost.beacons"))):
        await asyncio.sleep(0.02)
    if "fork" in sys.argv:
        if os.fork() == 0:
            await asyncio.sleep(60)
    print("joined", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@contextmanager
def another_process(url: str, *words: str) -> Iterator[int]:
    """One that has joined as `other`."""
    process = subprocess.Popen(
        [sys.executable, "-c", REPLICA, url, *words], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"joined\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


async def is_gone(store: Store) -> bool:
    return bool((await store.evidence(["other"])).gone)


@pytest.mark.timely
async def test_a_killed_replica_is_gone_within_a_second(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await join(store, "a")
        with another_process(postgres_url) as pid:
            assert not await is_gone(store)
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.3)
            assert not await is_gone(store), "it was only stopped"
            os.kill(pid, signal.SIGKILL)
            await until(lambda: is_gone(store), 1.0)
            assert (await store.evidence(["other"])).dead == frozenset()


@pytest.mark.timely
async def test_a_forked_child_does_not_keep_its_parents_session_alive(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        with another_process(postgres_url, "fork") as pid:
            assert not await is_gone(store)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: is_gone(store), 1.0)


async def test_a_leader_that_says_it_is_there_is_not_asked_about(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        await join(other, "other")
        await join(store, "a")
        await store.wait(0.01)
        asked: list[Sequence[str]] = []
        line = store._signs.line()
        gone = line.gone

        def noted(replicas: Sequence[str]) -> Future[frozenset[str]]:
            asked.append(replicas)
            return gone(replicas)

        monkeypatch.setattr(line, "gone", noted)

        async def is_taken_at_its_word() -> bool:
            await other.assure("other")
            before = len(asked)
            assert not await is_gone(store)
            return len(asked) == before

        async def is_asked_about() -> bool:
            before = len(asked)
            assert not await is_gone(store)
            return len(asked) > before

        await until(is_taken_at_its_word)
        await until(is_asked_about)  # it has fallen silent


async def test_after_a_restart_of_the_server_nobody_counts_as_gone() -> None:
    with postgres(16) as server:
        async with opened(server.url) as store:
            with another_process(server.url) as pid:
                os.kill(pid, signal.SIGSTOP)  # so that it cannot come back
                server.restart()
                await until(lambda: answers(store))
                await store.wait(0.5)
                assert not await is_gone(store)


async def test_hints_are_heard_again_after_the_line_was_cut(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        await store.wait(0.01)
        line = store._signs.line().db
        assert line is not None
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("select pg_terminate_backend(%s, 5000)", (line.info.backend_pid,))
        await other.put_jobs([PutJob(job_of("job"))])  # nobody listens
        assert await store.wait(5)


async def test_behind_a_pooler_everything_works_but_the_line(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with transaction_pooler(postgres_url) as url:
        clock = HandClock()
        async with opened(url, "seed", clock) as store:
            await compare(Harness.with_clock(store, clock), 7, 100)
        async with opened(url) as store, opened(url) as other:
            await join(store, "a")
            await run_one(store)
            assert await other.evidence(["a"]) == (await store.evidence(["a"]))
            while await store.wait(0.01):
                pass
            waiting = asyncio.create_task(store.wait(60))
            await other.put_jobs([PutJob(job_of("another"))])
            assert await asyncio.wait_for(waiting, 20)
    assert "reached through a pooler" in caplog.text


# --- those who do not answer ----------------------------------------------------------------------------------------


async def test_whoever_stops_in_the_middle_of_a_step_is_thrown_out(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await join(store, "a")
        with psycopg.connect(postgres_url) as stopped:
            stopped.execute("select fencepost.alone()")
            begun = time.monotonic()
            await store.put_jobs([PutJob(job_of("job"))])
            assert time.monotonic() - begun < 4
            with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                stopped.execute("select 1")


async def test_a_server_that_does_not_answer_is_unavailable(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.heartbeat(
            HeartbeatRequest("a", 1, 5.0, 1.0, joining=True, targets=())
        )  # a TTL of 5 s: wait for 1 s
        (pid,) = await store._session.ask(lambda db: db.one("select pg_backend_pid()"))
        os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable, match=r"no answer within 1\.0 s"):
                await store.roster()
            assert time.monotonic() - begun < 3
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await store.roster()).replicas


async def test_a_reply_lost_after_the_commit_is_answered_again(postgres_url: str) -> None:
    with Proxy(postgres_url) as proxy:
        async with opened(postgres_url) as direct, opened(proxy.url) as store:
            await join(store, "a")
            harness = Harness(direct, asyncio.sleep)
            await direct.put_jobs([PutJob(job_of("job", every(seconds=1)))])
            proxy.rule(cut_after, match=b".plan(", times=1)
            proxy.rule(cut_after, match=b".claim(", times=1)
            proxy.rule(cut_after, match=b".settle(", times=1)
            plans = await harness.plans(3)
            with pytest.raises(StoreUnavailable):
                await store.plan_fires(plans)
            assert await store.plan_fires(plans) == (False,)
            assert len(await harness.fires("job")) == len(plans[0].rows) > 0
            await asyncio.sleep(1.1)
            request = ClaimRequest("a", 1, 5)
            with pytest.raises(StoreUnavailable):
                await store.claim_fires(request)
            (claim,) = (await store.claim_fires(request)).claims
            assert claim.fire.state is State.RUNNING
            settle = Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED)
            with pytest.raises(StoreUnavailable):
                await store.update_claims("a", [settle])
            assert (await store.update_claims("a", [settle])).accepted == (True,)
            assert (await store.update_claims("a", [GiveBack(settle.key, settle.token)])).accepted == (False,)


# --- values -----------------------------------------------------------------------------------------------------------


async def test_what_the_server_does_not_take_in_a_text_is_replaced(postgres_url: str) -> None:
    async with a_harness_on(postgres_url) as harness:
        fire = await harness.running()
        error = "NUL \0 and half a character \udcff"
        assert await harness.update(Settle(fire.key, fire.token, State.FAILED, error=error))
        assert (await harness.fire(fire.key)).error == "NUL ? and half a character ?"


async def test_what_is_old_goes_in_batches(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.store.postgres.paths.PRUNE_BATCH", 2)
    async with a_harness_on(postgres_url) as harness:
        for _ in range(5):
            await harness.settle(await harness.running())
        await harness.advance(1)
        assert await harness.store.prune(0) == 5
        assert await harness.fires("job", State.SUCCEEDED) == []


@asynccontextmanager
async def a_harness_on(url: str) -> AsyncIterator[Harness]:
    clock = HandClock()
    async with opened(url, "default", clock) as store:
        yield Harness.with_clock(store, clock)


def test_lines_do_not_all_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage many replicas connect again: not in the same moment."""
    monkeypatch.setattr(line_module, "RECONNECT", 0.2)
    pauses = []
    for _ in range(8):
        line = object.__new__(line_module.PostgresLine)
        line._closing, line._work, line._chance = False, deque(), random.Random()
        line._bell, line._rope = socket.socketpair()
        begun = time.monotonic()
        line._pause()
        pauses.append(time.monotonic() - begun)
        line._bell.close()
        line._rope.close()
    assert min(pauses) >= 0.1
    assert max(pauses) - min(pauses) > 0.01
