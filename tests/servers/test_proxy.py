"""The proxy between real clients and real servers."""

from __future__ import annotations

import hashlib
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import pytest
import redis.asyncio
from redis import Redis

from tests.servers import (
    Proxy,
    cut_after,
    cut_before,
    delay,
    half_open,
    hold,
    reset,
    sliced,
    valkey,
)

pytestmark = pytest.mark.cluster

SOON = 5.0
BRIEFLY = 0.2


@dataclass
class Counter:
    """Something that counts in a store: a key, or a row. `tag` is in each request that adds one."""

    url: str
    tag: bytes
    broken: type[Exception]
    connect: Callable[[str], Any]
    """A client with `add`, `total`, `connections` and `close`."""


class RedisCounter:
    """Counts only its own connections: on a busy machine the server still lists those of the test before."""

    def __init__(self, url: str, name: str) -> None:
        self._name = name
        self._client = Redis.from_url(url, retry=None, client_name=name)

    def add(self) -> None:
        self._client.incr("counter")

    def total(self) -> int:
        return int(self._client.get("counter") or 0)

    def connections(self) -> int:
        return sum(client["name"] == self._name for client in self._client.client_list())

    def close(self) -> None:
        self._client.close()


class PostgresCounter:
    """Counts only its own connections: on a busy machine the one that made the table is listed a little longer."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, application_name=name
        )

    def add(self) -> None:
        self._connection.execute("/* test:add */ UPDATE counter SET total = total + %s", [1])

    def total(self) -> int:
        row = self._connection.execute("SELECT total FROM counter").fetchone()
        assert row is not None
        return int(row[0])

    def connections(self) -> int:
        row = self._connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = current_setting('application_name')"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(params=["valkey_url", "redis_url", "postgres_url"])
def counter(request: pytest.FixtureRequest) -> Counter:
    url: str = request.getfixturevalue(request.param)
    name = f"counter-{uuid.uuid4().hex}"
    if request.param != "postgres_url":
        return Counter(url, b"INCR", redis.ConnectionError, partial(RedisCounter, name=name))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE counter AS SELECT 0 AS total")
    return Counter(url, b"test:add", psycopg.OperationalError, partial(PostgresCounter, name=name))


@pytest.fixture
def proxy(counter: Counter) -> Iterator[Proxy]:
    with Proxy(counter.url) as proxy:
        yield proxy


@pytest.fixture
def connect(counter: Counter, proxy: Proxy) -> Iterator[Callable[[], Any]]:
    """More clients by way of the proxy."""
    clients = []

    def connect() -> Any:
        clients.append(counter.connect(proxy.url))
        return clients[-1]

    yield connect
    proxy.cut()  # nobody waits any more
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[[], Any]) -> Any:
    return connect()


@pytest.fixture
def direct(counter: Counter) -> Iterator[Any]:
    client = counter.connect(counter.url)
    yield client
    client.close()


@pytest.fixture
def meanwhile() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, f"not within {SOON} s"
        time.sleep(0.01)


# --- what can happen to a request -------------------------------------------------------------------------


def test_without_rules_everything_passes(proxy, client, direct):
    for _ in range(10):
        client.add()
    assert client.total() == direct.total() == 10
    assert proxy.connections == 1
    assert proxy.requests > 11


def test_cut_before_the_server_has_not_heard_of_it(counter, proxy, client, connect, direct):
    rule = proxy.rule(cut_before, counter.tag, times=1)
    with pytest.raises(counter.broken):
        client.add()
    assert direct.total() == 0
    connect().add()
    assert direct.total() == 1
    assert (rule.seen, rule.done) == (2, 1)


def test_cut_after_the_server_has_done_it_and_the_client_does_not_know(counter, proxy, connect, direct):
    rule = proxy.rule(cut_after, counter.tag)
    for done in range(1, 21):
        with pytest.raises(counter.broken):
            connect().add()
        assert direct.total() == done
    assert str(rule) == "cut_after: 20 of 20"


def test_reset_the_client_is_told_that_the_connection_was_reset(counter, proxy, client, direct):
    rule = proxy.rule(reset, counter.tag)
    with pytest.raises(counter.broken):
        client.add()
    assert direct.total() == 0
    assert rule.done == 1


@pytest.mark.parametrize(("action", "seen"), [(cut_before, b""), (reset, ConnectionResetError)])
def test_what_the_socket_sees_of_a_cut_and_of_a_reset(valkey_url, action, seen):
    with Proxy(valkey_url) as proxy:
        proxy.rule(action)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON) as client:
            client.sendall(b"PING\r\n")
            try:
                answer: Any = client.recv(100)
            except OSError as error:
                answer = type(error)
            assert answer == seen


def test_half_open_nobody_hears_of_anybody_not_even_of_the_end(counter, proxy, client, direct, meanwhile):
    proxy.rule(half_open, counter.tag)
    client.total()  # connects
    before = direct.connections()
    waiting = meanwhile(client.add)
    with pytest.raises(NotYet):
        waiting.result(BRIEFLY)
    assert direct.total() == 0
    assert direct.connections() == before
    proxy.cut()
    with pytest.raises(counter.broken):
        waiting.result(SOON)
    wait_for(lambda: direct.connections() < before)


def test_half_open_the_server_does_not_hear_that_the_client_is_gone(counter, proxy, client, direct):
    client.add()
    before = direct.connections()
    assert proxy.silence() == 1
    client.close()
    time.sleep(BRIEFLY)
    assert direct.connections() == before
    assert proxy.cut() == 1
    wait_for(lambda: direct.connections() < before)


def test_hold_the_server_has_done_it_before_the_client_knows(counter, proxy, client, direct, meanwhile):
    proxy.rule(hold(60), counter.tag)
    waiting = meanwhile(client.add)
    wait_for(lambda: direct.total() == 1)
    assert not waiting.done()
    proxy.cut()
    with pytest.raises(counter.broken):
        waiting.result(SOON)


def test_hold_the_reply_comes_late(counter, proxy, client):
    proxy.rule(hold(0.3), counter.tag)
    begun = time.monotonic()
    client.add()
    assert time.monotonic() - begun >= 0.3


def test_delay_the_server_hears_of_it_late(counter, proxy, client, direct, meanwhile):
    proxy.rule(delay(0.3), counter.tag)
    begun = time.monotonic()
    waiting = meanwhile(client.add)
    wait_for(lambda: direct.total() == 1)
    assert time.monotonic() - begun >= 0.3
    waiting.result(SOON)


def test_sliced_it_is_the_same_in_tiny_pieces(counter, proxy, client, direct):
    rule = proxy.rule(sliced(size=1, pause=0.0002))
    for _ in range(3):
        client.add()
    assert client.total() == direct.total() == 3
    assert rule.done == rule.seen >= 4


async def test_an_action_of_ones_own(counter, proxy, client, direct, meanwhile):
    async def lose_the_reply_for_ever(link, request):
        link.silence()
        await link.forward(request)

    proxy.rule(lose_the_reply_for_ever, counter.tag, name="lost")
    waiting = meanwhile(client.add)
    wait_for(lambda: direct.total() == 1)
    with pytest.raises(NotYet):
        waiting.result(BRIEFLY)
    proxy.cut()


# --- which requests ---------------------------------------------------------------------------------------


def test_every_third_and_at_most_twice(counter, proxy, connect, direct):
    rule = proxy.rule(cut_before, counter.tag, every=3, times=2, name="cut adds")
    client, broken = connect(), []
    for turn in range(1, 11):
        try:
            client.add()
        except counter.broken:
            broken.append(turn)
            client = connect()
    assert broken == [3, 6]
    assert direct.total() == 8
    assert str(rule) == "cut adds: 2 of 10"


def test_only_some_connections(counter, proxy, connect):
    rule = proxy.rule(cut_before, counter.tag, connections={2})
    connect().add()
    with pytest.raises(counter.broken):
        connect().add()
    connect().add()
    assert (rule.seen, rule.done) == (1, 1)


def test_a_predicate_and_no_rules_any_more(counter, proxy, client, connect):
    rule = proxy.rule(cut_before, lambda said: counter.tag.lower() in said.lower())
    with pytest.raises(counter.broken):
        client.add()
    assert rule.done == 1
    proxy.clear()
    connect().add()


def test_the_first_rule_that_applies_has_the_request(counter, proxy, connect, direct):
    every_third = proxy.rule(cut_before, counter.tag, every=3)
    rest = proxy.rule(cut_after, counter.tag)
    for _ in range(6):
        with pytest.raises(counter.broken):
            connect().add()
    assert (every_third.done, rest.done) == (2, 4)
    assert direct.total() == 4


# --- switches ---------------------------------------------------------------------------------------------


def test_hold_and_release_everything(proxy, client, direct, meanwhile):
    client.add()
    proxy.hold()
    waiting = meanwhile(client.add)
    with pytest.raises(NotYet):
        waiting.result(BRIEFLY)
    assert direct.total() == 1
    proxy.release()
    waiting.result(SOON)
    assert direct.total() == 2


def test_cut_all_that_is_open(proxy, connect, direct):
    clients = [connect(), connect()]
    for client in clients:
        client.add()
    before = direct.connections()
    assert proxy.cut() == 2
    wait_for(lambda: direct.connections() == before - 2)
    connect().add()
    assert direct.total() == 3


def test_a_server_that_is_down_looks_down_and_comes_back():
    with valkey() as server, Proxy(server.url) as proxy, Redis.from_url(proxy.url, retry=None) as client:
        assert client.ping()
        server.kill()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.ping()
        server.start()
        assert client.ping()


# --- what is special about each protocol ------------------------------------------------------------------


def test_redis_each_command_of_a_pipeline_is_a_request(valkey_url):
    with Proxy(valkey_url) as proxy, Redis.from_url(valkey_url) as direct:
        rule = proxy.rule(cut_after, b"INCR", every=3)
        with Redis.from_url(proxy.url, retry=None) as client:
            pipeline = client.pipeline(transaction=False)
            for _ in range(5):
                pipeline.incr("counter")
            with pytest.raises(redis.ConnectionError):
                pipeline.execute()
        assert direct.get("counter") == b"3"
        assert (rule.seen, rule.done) == (3, 1)


def test_redis_a_script_is_known_by_its_digest(valkey_url):
    script = "return redis.call('INCR', KEYS[1])"
    with Proxy(valkey_url) as proxy, Redis.from_url(valkey_url) as direct:
        direct.script_load(script)
        rule = proxy.rule(cut_after, hashlib.sha1(script.encode()).hexdigest().encode(), every=2)
        with Redis.from_url(proxy.url, retry=None) as client:
            run = client.register_script(script)
            assert run(["counter"]) == 1
            with pytest.raises(redis.ConnectionError):
                run(["counter"])
            assert run(["counter"]) == 3
        assert (rule.seen, rule.done) == (3, 1)


def test_postgres_a_prepared_statement_is_known_by_its_text(postgres_url):
    insert = "INSERT INTO rows VALUES (%s) /* test:insert */"
    with Proxy(postgres_url) as proxy, psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("CREATE TABLE rows (n int)")
        rule = proxy.rule(cut_after, b"test:insert", every=3)
        with psycopg.connect(proxy.url, autocommit=True, prepare_threshold=1) as connection:
            for n in (1, 2):
                connection.execute(insert, [n])
            with pytest.raises(psycopg.OperationalError):
                connection.execute(insert, [3])
        assert direct.execute("SELECT n FROM rows ORDER BY n").fetchall() == [(1,), (2,), (3,)]
        assert (rule.seen, rule.done) == (3, 1)


def test_postgres_has_committed_although_it_sends_rows_before_it_commits(postgres_url):
    insert = "INSERT INTO rows SELECT repeat('x', 100) FROM generate_series(1, 5000) RETURNING *"
    with Proxy(postgres_url) as proxy, psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("CREATE TABLE rows (text text)")
        proxy.rule(cut_after, b"INSERT")
        for turn in range(1, 6):
            connection = psycopg.connect(proxy.url, autocommit=True)
            with connection, pytest.raises(psycopg.OperationalError):
                connection.execute(insert)
            assert direct.execute("SELECT count(*) FROM rows").fetchone() == (turn * 5000,)


@pytest.mark.parametrize(("action", "committed"), [(cut_before, 0), (cut_after, 1)])
def test_postgres_a_transaction_stands_or_falls_with_its_commit(postgres_url, action, committed):
    with Proxy(postgres_url) as proxy, psycopg.connect(postgres_url, autocommit=True) as direct:
        direct.execute("CREATE TABLE rows (n int)")
        proxy.rule(action, b"COMMIT")
        with pytest.raises(psycopg.OperationalError), psycopg.connect(proxy.url) as connection:
            connection.execute("INSERT INTO rows VALUES (1)")
        assert direct.execute("SELECT count(*) FROM rows").fetchone() == (committed,)


async def test_asynchronous_clients_too(valkey_url, postgres_url):
    with Proxy(valkey_url) as proxy:
        proxy.rule(cut_after, b"INCR", every=2)
        async with redis.asyncio.Redis.from_url(proxy.url, retry=None) as client:
            assert await client.incr("counter") == 1
            with pytest.raises(redis.ConnectionError):
                await client.incr("counter")
            assert await client.incr("counter") == 3
    with Proxy(postgres_url) as proxy:
        proxy.rule(cut_after, b"CREATE TABLE")
        async with await psycopg.AsyncConnection.connect(proxy.url, autocommit=True) as connection:
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("CREATE TABLE made (n int)")
        async with await psycopg.AsyncConnection.connect(proxy.url) as connection:
            assert await (await connection.execute("SELECT n FROM made")).fetchall() == []


# --- the proxy itself -------------------------------------------------------------------------------------


def test_its_address_keeps_user_password_and_path():
    with Proxy("postgresql://me:secret@127.0.0.1:1/data?sslmode=disable") as proxy:
        assert proxy.url == f"postgresql://me:secret@127.0.0.1:{proxy.port}/data?sslmode=disable"


def test_a_failing_action_is_not_lost(valkey_url):
    async def broken(link, request):
        raise ValueError("a mistake in a test")

    def use() -> None:
        with Proxy(valkey_url) as proxy, Redis.from_url(proxy.url, retry=None) as client:
            proxy.rule(broken)
            with pytest.raises(redis.ConnectionError):
                client.ping()

    with pytest.raises(ExceptionGroup, match="the proxy failed") as raised:
        use()
    assert raised.group_contains(ValueError, match="a mistake in a test")


def test_any_other_protocol_passes_as_it_comes():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data)

        pool.submit(echo)
        with Proxy(f"tcp://127.0.0.1:{server.getsockname()[1]}") as proxy:
            rule = proxy.rule(cut_before, b"bye")
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON) as client:
                client.sendall(b"hello")
                assert client.recv(100) == b"hello"
                client.sendall(b"bye")
                assert client.recv(100) == b""
            assert rule.done == 1
