"""What only MySQL can get wrong: locks, sessions, servers that become read-only, collations, TLS and forks."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from fencepost.errors import ConfigurationError, NothingStored, StoreUnavailable
from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.store.base import ClaimRequest, HeartbeatRequest, NewFire, PutJob, Settle
from fencepost.store.mysql import MysqlStore
from fencepost.store.mysql.connection import STEP, MysqlConnection, MysqlNames
from fencepost.store.mysql.fast import MysqlFastPath
from fencepost.store.mysql.store import WRITE
from fencepost.testing.conformance import HandClock, Harness, job_of
from tests.protocol.comparison import Mismatch, compare
from tests.servers import MariaServer, Proxy, cut_after, mariadb
from tests.servers.certificates import certificate
from tests.store import test_mysql


class TestMysqlInShort:
    """What of the suite `make test` shows; `make test-all` runs the whole."""

    harness = test_mysql.TestMysql.harness

    @pytest.mark.parametrize("seed", [1000, 1002])
    async def test_it_agrees_with_the_model(self, harness: Harness, seed: int) -> None:
        await compare(harness, seed, steps=120)


@pytest.mark.parametrize(
    ("query", "condition", "without"),
    [
        ("DUE", "and plain", ""),
        ("DUE", "limit 1) is null", "limit 1) is null in (0, 1)"),
        ("RUNNING", "and plain", ""),
    ],
)
@pytest.mark.mutants
@pytest.mark.timeout(600)
async def test_a_condition_left_out_is_noticed(
    mysql_url: str, monkeypatch: pytest.MonkeyPatch, query: str, condition: str, without: str
) -> None:
    statement = getattr(MysqlFastPath, query)
    assert condition in statement
    monkeypatch.setattr(MysqlFastPath, query, statement.replace(condition, without))

    async def some_seeds() -> None:
        for seed in range(40, 80):
            clock = HandClock()
            store = MysqlStore(mysql_url, f"seed{seed}", clock)
            await store.open()
            try:
                await compare(Harness.with_clock(store, clock), seed, 200)
            finally:
                await store.close()

    with pytest.raises(Mismatch):
        await some_seeds()  # the first that notices is the last


@asynccontextmanager
async def opened(url: str, namespace: str = "default") -> AsyncIterator[MysqlStore]:
    store = MysqlStore(url, namespace)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def join(store: MysqlStore, replica: str, ttl: float = 30.0) -> None:
    request = HeartbeatRequest(replica, 1, ttl, ttl / 3, joining=True, targets=("work",))
    assert (await store.heartbeat(request)).known


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not come true"
        await asyncio.sleep(0.15)  # what it says of transactions is renewed when nobody asks for 0.1 s


def outside(url: str) -> closing[MysqlConnection]:
    """Another program in the same database."""
    return closing(MysqlConnection(url, MysqlNames("default")))


# --- locks and time -------------------------------------------------------------------------------------------


async def test_replicas_that_claim_at_once_share_the_fires(mysql_url: str) -> None:
    async with opened(mysql_url) as one, opened(mysql_url) as two, opened(mysql_url) as three:
        stores = {"a": one, "b": two, "c": three}
        for name, store in stores.items():
            await join(store, name)
        await one.put_jobs([PutJob(job_of(f"job{number}", every(days=1))) for number in range(60)])
        for number in range(60):
            await one.add_fire(NewFire(f"job{number}!now", f"job{number}"))
        claimed: Counter[str] = Counter()

        async def claim(name: str, store: MysqlStore) -> None:
            for number in range(1, 20):
                claims = (await store.claim_fires(ClaimRequest(name, number, 4))).claims
                claimed.update(claim.fire.key for claim in claims)
                ends = [Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED) for claim in claims]
                assert all((await store.update_claims(name, ends)).accepted)

        await asyncio.gather(*(claim(*each) for each in stores.items()))
        assert len(claimed) == 60
        assert set(claimed.values()) == {1}


async def test_the_time_of_a_step_is_read_when_it_has_the_lock(
    mysql_url: str, mysql_server: MariaServer
) -> None:
    async with opened(mysql_url) as store:
        with outside(mysql_url) as other:
            other.last_of("start transaction; select * from {turn} for update")
            roster = asyncio.create_task(store.roster())

            async def waits() -> bool:
                query = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
                return bool(mysql_server.execute(query)[0][0])

            await until(waits)
            (released,) = other.one("select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))")
            other.last_of("commit")
        assert (await roster).now.timestamp() * 1e6 >= released


async def test_who_falls_silent_with_the_lock_is_thrown_out(mysql_url: str) -> None:
    async with opened(mysql_url) as store:
        with outside(mysql_url) as silent:
            silent.last_of(WRITE.replace("HOLD", "1"))
            await join(store, "a")
            with pytest.raises(Exception, match=r"(?i)lost|gone|closed|timed? ?out|inactiv"):
                silent.last_of("commit")


async def waiting_for_lock(server: MariaServer) -> bool:
    query = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
    return bool((await asyncio.to_thread(server.execute, query))[0][0])


async def test_a_short_ttl_leaves_time_to_throw_out_who_holds_the_lock(
    mysql_url: str, mysql_server: MariaServer
) -> None:
    """The error would restart the observation of a leader that was stopped with the lock: a late takeover."""
    async with opened(mysql_url) as store:
        await join(store, "a", ttl=2.0)
        await store.roster()  # on a connection with the patience that fits the TTL
        with outside(mysql_url) as stopped:
            stopped.last_of(WRITE.replace("HOLD", "1"))
            roster = asyncio.create_task(store.roster())
            await until(lambda: waiting_for_lock(mysql_server))
            stopped.one("select 1")  # in the middle of its step: the second begins now
            assert len((await roster).replicas) == 1


async def test_who_is_silent_in_the_middle_of_a_step_makes_way_before_the_server_ends_its_session(
    mysql_url: str,
) -> None:
    """The server counts whole seconds: starts were late by more than one after a leader was stopped."""
    async with opened(mysql_url) as store:
        await join(store, "a", ttl=2.0)
        with outside(mysql_url) as stopped:
            stopped.last_of(WRITE.replace("HOLD", "30"))
            roster = asyncio.create_task(store.roster())
            while not roster.done():
                await store._line.hints()
                await asyncio.sleep(0.05)
            assert len((await roster).replicas) == 1


async def test_who_works_in_the_middle_of_a_step_is_left_alone(mysql_url: str) -> None:
    async with opened(mysql_url) as store:
        await join(store, "a", ttl=5.0)
        with outside(mysql_url) as works:
            works.last_of(WRITE.replace("HOLD", "30"))
            for _ in range(100):
                works.one("select sleep(0.01)")
                await store._line.hints()
            works.last_of("commit")


async def test_a_step_that_fails_leaves_a_session_that_may_be_idle(mysql_url: str) -> None:
    def fails(rows: object, at: object) -> None:
        raise LookupError("no such thing")

    async with opened(mysql_url) as store:
        with pytest.raises(LookupError):
            await store._write(fails)
        assert store._session.db is not None
        rest = "select @@session.wait_timeout, @@in_transaction, is_used_lock(" + STEP + ")"
        assert store._session.db.one(rest) == (86400, 0, None)


async def test_a_step_takes_few_requests_however_many_fires_it_is_about(mysql_url: str) -> None:
    """Each is a trip to the server and back while all other replicas wait for the lock."""
    with Proxy(mysql_url) as proxy:
        async with opened(proxy.url) as store:
            await join(store, "a")
            await store.put_jobs([PutJob(job_of(f"job{number}", every(days=1))) for number in range(20)])
            for number in range(20):
                await store.add_fire(NewFire(f"job{number}!now", f"job{number}"))
            before = proxy.requests
            claims = (await store.claim_fires(ClaimRequest("a", 1, 20))).claims
            claimed = proxy.requests
            assert (await store.claim_fires(ClaimRequest("a", 1, 20))).claims == claims
            answered = proxy.requests
            ends = [Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED) for claim in claims]
            assert all((await store.update_claims("a", ends)).accepted)
            settled = proxy.requests
            await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0))
            assert len(claims) == 20
            requests = {
                "claim": claimed - before,
                "answer again": answered - claimed,
                "settle": settled - answered,
                "heartbeat": proxy.requests - settled,
            }
            most = {"claim": 8, "answer again": 4, "settle": 4, "heartbeat": 4}
            assert all(requests[name] <= most[name] for name in most), requests


async def test_a_claim_reads_no_more_where_there_is_much_history(mysql_url: str) -> None:
    """It did: all that is live was listed by reading the whole index, while the others waited for the lock."""
    ended = [
        (f"old!{number}", "old", number, 0, "succeeded", 1, 1, number, 1, 0, number, 0)
        for number in range(3000)
    ]
    columns = (
        "key job_id due_at scheduled state count token claim_no attempt crashes settled cancel_requested"
    )
    async with opened(mysql_url) as store:
        await join(store, "a")
        await store.put_jobs([PutJob(job_of(f"job{number}", every(days=1))) for number in range(20)])
        with outside(mysql_url) as other:
            other.put("fires", columns.split(), ended)
            other.do("analyze table {fires}")
            plan = other.all(
                "explain " + MysqlFastPath.DUE.replace("AMONG", "in ?"), *[0] * 2, ["job1", "job2"], 0
            )
        assert not [row for row in plan if row[3] in ("index", "ALL")], plan


async def test_a_new_connection_takes_few_requests(mysql_url: str) -> None:
    with Proxy(mysql_url) as proxy:
        async with opened(proxy.url) as store:
            before = proxy.requests
            store._session.hang_up()
            await store.jobs()
            assert proxy.requests - before <= 11


async def test_a_deadlock_with_another_program_is_taken_again(mysql_url: str) -> None:
    async with opened(mysql_url) as store:
        await store.put_jobs([PutJob(job_of("job", every(hours=1)))])
        with outside(mysql_url) as other:
            # It has changed more, so it is our transaction that the server undoes.
            other.last_of("start transaction; select * from {jobs} where id = 'job' for update")
            other.put("entries", ("key", "entry"), [(f"x{number}", "") for number in range(500)])
            ours = asyncio.create_task(store.add_fire(NewFire("job!one", "job")))
            locked = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"

            async def waits() -> bool:
                return bool((await asyncio.to_thread(other.one, locked))[0])

            await until(waits)
            await asyncio.to_thread(other.last_of, "select * from {turn} for update")
            other.last_of("rollback")
        assert (await ours).fire is not None


async def test_a_claim_whose_commit_was_not_answered_is_answered_again(mysql_url: str) -> None:
    with Proxy(mysql_url) as proxy:
        async with opened(proxy.url) as store:
            await join(store, "a")
            await store.put_jobs([PutJob(job_of("job", every(days=1)))])
            await store.add_fire(NewFire("job!now", "job"))
            lost = proxy.rule(cut_after, b"claim_fires", times=2)
            [claim] = (await store.claim_fires(ClaimRequest("a", 1, 5))).claims
            assert (claim.fire.key, claim.fire.attempt, lost.done) == ("job!now", 1, 2)
            lost = proxy.rule(cut_after, b"update_claims")
            settle = Settle("job!now", claim.fire.token, State.SUCCEEDED)
            with pytest.raises(StoreUnavailable):
                await store.update_claims("a", [settle])
            proxy.clear()
            assert lost.done == 5
            assert all((await store.update_claims("a", [settle])).accepted)


async def test_steps_that_share_a_lost_reply_are_late_together(mysql_url: str) -> None:
    """Only those are repeated that are answered as the first time; the others are told that nothing is known."""
    with Proxy(mysql_url) as proxy:
        async with opened(proxy.url) as store:
            await join(store, "a")
            await store.put_jobs([PutJob(job_of("job", every(days=1)))])
            lost = proxy.rule(cut_after, b"claim_fires", times=1)
            added, claimed = await asyncio.gather(
                store.add_fire(NewFire("job!now", "job")),
                store.claim_fires(ClaimRequest("a", 1, 5)),
                return_exceptions=True,
            )
            assert lost.done == 1
            assert isinstance(added, StoreUnavailable)
            assert not isinstance(claimed, BaseException)
            assert [claim.fire.key for claim in claimed.claims] == ["job!now"]


# --- servers --------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(mysql_url: str, mysql_server: MariaServer) -> str:
    """The URL of somebody who may not do more than an application."""
    database = mysql_url.rpartition("/")[2]
    for who in ("app@localhost", "app@'127.0.0.1'"):
        mysql_server.execute(
            f"create or replace user {who} identified by 'pass word'", f"grant all on {database}.* to {who}"
        )
    return mysql_url.replace("root@", "app:pass%20word@")


async def test_a_server_that_becomes_read_only_is_unavailable(
    limited: str, mysql_server: MariaServer
) -> None:
    async with opened(limited) as store:
        await join(store, "a")
        mysql_server.execute("set global read_only = 1")
        try:
            for _ in range(2):  # on the old connection, and on a new one
                with pytest.raises(StoreUnavailable, match=r"read.only"):
                    await store.put_jobs([PutJob(job_of("job", every(hours=1)))])
        finally:
            mysql_server.execute("set global read_only = 0")
        await store.put_jobs([PutJob(job_of("job", every(hours=1)))])


async def test_a_wrong_password_is_refused_and_not_shown(limited: str) -> None:
    store = MysqlStore(limited.replace("pass%20word", "secret%20words"))
    with pytest.raises(ConfigurationError, match="check the URL") as refused:
        await store.open()
    await store.close()
    assert "secret" not in str(refused.value)
    assert "secret" not in store.name


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://app:secret@host/", "one database"),
        ("mysql://app:secret@host/jobs?ssl_mod=secret", "did you mean 'ssl_mode'"),
        ("mysql://app:secret@host/jobs?ssl_mode=secret", "use one of disabled"),
        ("mysql://app:secret@host/jobs?ssl_ca=/secret", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_secrets(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        MysqlStore(url)
    assert "secret" not in str(refused.value)


async def test_a_beacon_shows_that_a_session_has_ended(mysql_url: str, mysql_server: MariaServer) -> None:
    async with opened(mysql_url) as one, opened(mysql_url) as two:
        await join(one, "a")
        await join(two, "b")
        assert (await two.evidence(["a", "never heard of"])).gone == frozenset()
        assert one._line.session.db is not None
        mysql_server.execute(f"kill {one._line.session.db.raw.thread_id()}")
        await until(lambda: _is_gone(two, "a"))
        assert await one._line.hints() is None  # it notices, and connects again
        assert await one._line.hints() is not None
        assert (await two.evidence(["a"])).gone == frozenset()
        await one.leave("a")
        assert (await two.evidence(["a"])).gone == frozenset()


async def _is_gone(store: MysqlStore, replica: str) -> bool:
    return replica in (await store.evidence([replica])).gone


@pytest.mark.slow
async def test_a_restart_of_the_server_is_no_evidence_and_no_loss() -> None:
    with mariadb() as server:
        async with opened(server.url) as one, opened(server.url) as two:
            await join(one, "a")
            await join(two, "b")
            begun = server.execute("select unix_timestamp()")

            async def a_second_is_over() -> bool:  # a start is known by its second
                return server.execute("select unix_timestamp()") != begun

            await until(a_second_is_over)
            server.kill()
            server.start()
            await two._line.hints()
            assert (await two.evidence(["a"])).gone == frozenset()
            with pytest.raises(StoreUnavailable):
                await two.roster()
            assert (await two.roster()).leader.era.standing == "settled"
        server.restart()
        server.execute("set global innodb_flush_log_at_trx_commit = 2")
        async with opened(server.url) as store:
            assert (await store.roster()).leader.era.standing == "restarted"


async def test_steps_that_wait_while_a_failover_is_noted_are_answered(
    mysql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(mysql_url) as store:
        with outside(mysql_url) as other:
            other.do("update {meta} set value = 'another server' where name = 'history'")
        store._session.hang_up()
        loop, late = asyncio.get_running_loop(), list[asyncio.Task[object]]()

        def meanwhile(*args: object) -> None:
            loop.call_soon_threadsafe(lambda: late.append(asyncio.create_task(store.roster())))
            while not store._queue._waiting:
                time.sleep(0.001)

        monkeypatch.setattr("fencepost.store.mysql.store.prepare", meanwhile)
        assert (await store.roster()).leader.era.standing == "restarted"
        await asyncio.wait_for(late[0], 10)


async def test_a_hint_reaches_other_processes(mysql_url: str) -> None:
    async with opened(mysql_url) as one, opened(mysql_url) as two:
        await join(one, "a")
        while await two.wait(0.2):
            pass
        waiting = asyncio.create_task(two.wait(20.0))
        await one.put_jobs([PutJob(job_of("job", every(hours=1)))])
        await one.add_fire(NewFire("job!now", "job"))
        assert await waiting


async def test_tls_is_used_and_demanded(mysql_server: MariaServer) -> None:
    with folder() as here, folder() as elsewhere:
        made = certificate(here)
        os.chmod(made["tls_key"], 0o644)  # the server may run as somebody else
        settings = {"ssl": "ON", "ssl_cert": made["tls_cert"], "ssl_key": made["tls_key"]}
        with mariadb(**settings) as server:
            ca = f"?ssl_ca={made['tls_cert']}"
            for query in (ca, f"{ca}&ssl_mode=verify_ca", "?ssl_mode=required"):
                with outside(server.url + query) as db:
                    assert db.one("show session status like 'Ssl_cipher'")[1]
            store = MysqlStore(f"{server.url}?ssl_ca={certificate(elsewhere)['tls_cert']}")
            with pytest.raises(StoreUnavailable, match="certificate"):
                await store.open()
            await store.close()
    store = MysqlStore(f"{mysql_server.url}?ssl_mode=required")
    with pytest.raises(StoreUnavailable, match="SSL"):
        await store.open()
    await store.close()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fp-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


# --- tables ---------------------------------------------------------------------------------------------------


async def test_tables_that_take_ids_for_the_same_are_refused(
    mysql_url: str, mysql_server: MariaServer
) -> None:
    async with opened(mysql_url) as store:
        await store.put_jobs([PutJob(job_of(id, every(hours=1))) for id in ("job", "JOB")])
        assert len(await store.jobs()) == 2
    database = mysql_url.rpartition("/")[2]
    for change in (
        "engine=MyISAM",
        "engine=InnoDB, convert to character set utf8mb4 collate utf8mb4_unicode_ci",
    ):
        mysql_server.execute(f"use {database}", f"alter table fencepost_meta {change}")
        store = MysqlStore(mysql_url)
        with pytest.raises(ConfigurationError, match=r"alter table `fencepost_meta` engine=InnoDB"):
            await store.open()
        await store.close()


async def test_namespaces_do_not_meet(mysql_url: str) -> None:
    async with opened(mysql_url) as one, opened(mysql_url, "replica") as two:
        await join(one, "a")
        await one.put_jobs([PutJob(job_of("job", every(hours=1)))])
        assert await two.jobs() == ()
        assert (await two.roster()).replicas == ()
    looking = MysqlStore(mysql_url, "other")
    looking.creates = False
    with pytest.raises(NothingStored, match="default, replica"):
        await looking.open()
    await looking.close()
    with pytest.raises(ConfigurationError, match="at most 38"):
        MysqlStore(mysql_url, "n" * 39)


async def test_a_newer_format_is_refused(mysql_url: str) -> None:
    async with opened(mysql_url) as store:
        assert (await store.contents()).format.is_current
        assert (await store.preflight("")).may_open
        with outside(mysql_url) as db:
            db.do("update {meta} set value = '99' where name = 'schema'")
    store = MysqlStore(mysql_url)
    with pytest.raises(ConfigurationError, match="newer than"):
        await store.open()
    await store.close()


def test_a_forked_child_has_connections_of_its_own(mysql_url: str) -> None:
    store = MysqlStore(mysql_url)

    async def begin() -> None:
        await store.open()
        await join(store, "a")
        await store.put_jobs([PutJob(job_of("job", every(hours=1)))])

    asyncio.run(begin())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if len(asyncio.run(store.jobs())) == 1 else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    async def go_on() -> None:
        assert len(await store.jobs()) == 1
        async with opened(mysql_url) as other:
            assert (await other.evidence(["a"])).gone == frozenset()
        await store.close()

    asyncio.run(go_on())
