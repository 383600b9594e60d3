"""A namespace moves from one server to a cluster: everything is there, and the old server is left for good."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import ANY

import pytest
from redis import Redis

from fencepost import Scheduler, every
from fencepost.cli import outcome
from fencepost.clock import Moment
from fencepost.errors import ConfigurationError, NothingStored, StoreUnavailable
from fencepost.store.base import FireQuery
from fencepost.store.redis import RedisStore
from fencepost.store.redis import move as moving
from fencepost.store.redis.keys import KINDS, SCHEMA
from fencepost.store.redis.move import move
from fencepost.store.redis.rest import RedisWork
from tests.servers import RedisServer, redis, valkey
from tests.servers.redis_cluster import one_node
from tests.servers.sentinel import is_in_step, wait_until, watched

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["redis", "valkey"])
def old(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Also the oldest Redis that is supported."""
    with (redis if request.param == "redis" else valkey)() as server:
        yield server


@pytest.fixture
def cluster() -> Iterator[str]:
    with one_node() as server:
        yield f"redis+cluster://{server.host}:{server.port}"


async def use(url: str, namespace: str = "default", jobs: int = 0) -> None:
    """`jobs`: that do nothing yet, besides the two that run."""
    scheduler = Scheduler(url, namespace=namespace)

    @scheduler.job(every(seconds=1), id="live:odd")
    def tidy() -> None: ...

    @scheduler.job(every(days=300))
    def fails() -> None:
        raise ValueError("é" * 300)

    for number in range(jobs):
        scheduler.job(every(days=300), id=f"idle-{number}")(tidy)

    async with scheduler:
        for job in (tidy, fails):
            await (await scheduler.trigger(job)).wait(timeout=60)
        await scheduler.trigger(fails)


async def everything(url: str, namespace: str = "default") -> object:
    store = RedisStore(url, namespace)
    store.creates = False
    try:
        await store.open()
        jobs = sorted(await store.jobs(), key=lambda record: record.id)
        return (
            jobs,
            await store.find_fires(FireQuery(limit=1000)),
            [await store.history(job.id) for job in jobs],
            (await store.roster()).replicas,
        )
    finally:
        await store.close()


async def test_all_of_it_is_there_afterwards(old: RedisServer, cluster: str) -> None:
    await use(old.url)
    before = await everything(old.url)
    assert await move(old.url, cluster, "default") > 10
    assert await everything(cluster) == before
    await use(cluster)


async def test_the_old_server_is_refused_by_those_that_knew_it_and_by_new_ones(
    old: RedisServer, cluster: str
) -> None:
    await use(old.url)
    known = RedisStore(old.url)
    await known.open()
    try:
        await move(old.url, cluster, "default")
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="moved to a cluster"):
                await known.roster()
    finally:
        await known.close()
    with pytest.raises(ConfigurationError, match="moved to a cluster"):
        await everything(old.url)


class CutOff(Exception):
    pass


def cut_off(done: int, total: int) -> None:
    if 2 * done >= total:
        raise CutOff


async def test_a_move_that_was_cut_off_goes_on(old: RedisServer, cluster: str) -> None:
    await use(old.url, jobs=40)
    before = await everything(old.url)
    with pytest.raises(CutOff):
        await move(old.url, cluster, "default", cut_off)
    with pytest.raises(ConfigurationError, match="is being moved here"):
        await everything(cluster)
    with pytest.raises(ConfigurationError, match="moved to a cluster"):
        await everything(old.url)
    assert await move(old.url, cluster, "default") > 40
    assert await everything(cluster) == before
    assert await move(old.url, cluster, "default") == 0


async def test_of_two_moves_the_later_one_ends(old: RedisServer, cluster: str) -> None:
    await use(old.url, jobs=40)
    before, later = await everything(old.url), list[asyncio.Task[int]]()

    def rival(done: int, total: int) -> None:
        if not later:
            later.append(asyncio.create_task(move(old.url, cluster, "default")))

    with pytest.raises(ConfigurationError, match="another `fencepost store move`"):
        await move(old.url, cluster, "default", rival)
    assert await later[0] > 40
    assert await everything(cluster) == before


async def test_a_place_that_was_reserved_is_kept_for_the_same_store(old: RedisServer, cluster: str) -> None:
    await use(old.url, jobs=40)
    with pytest.raises(CutOff):
        await move(old.url, cluster, "default", cut_off)
    with valkey() as another:
        await use(another.url)
        before = await everything(another.url)
        with pytest.raises(ConfigurationError, match="already holds another store"):
            await move(another.url, cluster, "default")
        assert await everything(another.url) == before


async def test_a_step_begun_before_the_move_writes_nothing_after_it(old: RedisServer, cluster: str) -> None:
    """Adding something changes nothing that was read: only the history tells that the store is another."""
    await use(old.url)
    store = RedisStore(old.url)
    await store.open()
    renamed = threading.Event()

    def slow(rows: RedisWork, at: Moment) -> None:
        if not renamed.is_set():
            asyncio.run(move(old.url, cluster, "default"))
            renamed.set()
        rows.step.batch.add("HSET", "fencepost:default:entries", "name", "text")

    try:
        with pytest.raises(ConfigurationError, match="moved to a cluster"):
            await store._write(slow)  # type: ignore[arg-type]
    finally:
        await store.close()
    with Redis.from_url(old.url, decode_responses=True) as client:
        assert sorted(client.keys("fencepost:*")) == ["fencepost:default:leader", "fencepost:default:meta"]


async def test_every_type_of_key_arrives_whole_and_expires_when_it_would_have(
    old: RedisServer, cluster: str
) -> None:
    await use(old.url)
    p, many = "fencepost:default", 3 * moving.PAGE + 1
    with Redis.from_url(old.url, decode_responses=True) as client:
        client.set(f"{p}:job:text", "é\n\0")
        client.rpush(f"{p}:events:list", *(f"{n}" for n in range(many)))
        client.sadd(f"{p}:held:set", *(f"{n}" for n in range(many)))
        client.hset(f"{p}:hot:hash", mapping={f"{n}": "x" * 100 for n in range(many)})
        client.zadd(f"{p}:done:zset", {f"{n}": 1794960000000001 + n for n in range(many)} | {"half": 0.1})
        client.hset(f"{p}:hot:small", "only", "one")
        client.set(f"{p}:job:brief", "x", px=50_000)
        client.set(f"{p}:job:gone", "x", px=1)
        before = {key: value_of(client, key) for key in client.keys("*") if not key.endswith(":gone")}
    await move(old.url, cluster, "default")
    with Redis.from_url(cluster.replace("redis+cluster", "redis"), decode_responses=True) as client:
        after = {key: value_of(client, key) for key in client.keys("*")}
        assert 0 < client.pttl(f"{{{p}}}:job:brief") <= 50_000
        assert after.pop(f"{{{p}}}:meta") == {**before.pop(f"{p}:meta"), "expected": ANY, "move": ""}
    assert after == {key.replace(p, f"{{{p}}}"): value for key, value in before.items()}


def value_of(client: Redis, key: str) -> Any:
    readers: dict[str, Callable[[], Any]] = {
        "string": lambda: client.get(key),
        "list": lambda: client.lrange(key, 0, -1),
        "set": lambda: client.smembers(key),
        "hash": lambda: client.hgetall(key),
        "zset": lambda: client.zrange(key, 0, -1, withscores=True),
    }
    return readers[str(client.type(key))]()


async def test_a_store_behind_sentinels_moves_and_its_follower_knows(cluster: str) -> None:
    with watched() as servers:
        await use(servers.url)
        before = await everything(servers.url)
        await move(servers.url, cluster, "default")
        with Redis.from_url(servers.servers[1].url) as follower:
            assert follower.hget("fencepost:default:meta", "schema") == b"1000000"
    assert await everything(cluster) == before


async def test_a_follower_that_lags_stops_the_move(
    old: RedisServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "FOLLOWERS_WITHIN", 200)
    await use(old.url)
    with type(old)(old.binary, None, {}) as follower:
        follower.ask(f"REPLICAOF {old.host} {old.port}")
        wait_until(lambda: is_in_step(follower), "the follower is in step")
        os.kill(follower.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="a follower lags"):
                await move(old.url, cluster, "default")
        finally:
            os.kill(follower.pid, signal.SIGCONT)
        monkeypatch.undo()
        assert await move(old.url, cluster, "default") > 10


async def test_other_namespaces_stay_where_they_are(old: RedisServer, cluster: str) -> None:
    for namespace in ("default", "default:eu", "shop"):
        await use(old.url, namespace)
    others = [await everything(old.url, name) for name in ("default:eu", "shop")]
    await move(old.url, cluster, "default")
    assert [await everything(old.url, name) for name in ("default:eu", "shop")] == others


@pytest.mark.parametrize("other", ["default:live", "default:live:eu"])
async def test_namespaces_that_cannot_be_told_apart_are_refused(
    old: RedisServer, cluster: str, other: str
) -> None:
    await use(old.url)
    await use(old.url, other)
    before, theirs = await everything(old.url), await everything(old.url, other)
    for namespace, named in (("default", f"fencepost:{other}"), (other, "fencepost:default")):
        with pytest.raises(ConfigurationError, match=f"another namespace, {named}:"):
            await move(old.url, cluster, namespace)
        with pytest.raises(NothingStored):
            await everything(cluster, namespace)
    assert (await everything(old.url), await everything(old.url, other)) == (before, theirs)


async def test_what_cannot_be_moved_is_refused_and_nothing_changes(old: RedisServer, cluster: str) -> None:
    await use(old.url)
    before = await everything(old.url)
    await use(cluster)
    with pytest.raises(ConfigurationError, match="already holds another store"):
        await move(old.url, cluster, "default")
    with pytest.raises(ConfigurationError, match="does not hold"):
        await move(old.url, cluster, "nothing")
    with pytest.raises(ConfigurationError, match="from redis://"):
        await move(cluster, old.url, "default")
    with pytest.raises(ConfigurationError, match="from redis://"):
        await move("sqlite:///app.db", cluster, "default")
    with pytest.raises(ConfigurationError, match="is a node of a cluster"):
        await move(cluster.replace("redis+cluster", "redis"), cluster, "default")
    with pytest.raises(StoreUnavailable):
        await move(old.url, "redis+cluster://127.0.0.1:1", "default")
    assert await everything(old.url) == before


async def test_a_store_of_a_newer_version_is_left_alone(old: RedisServer, cluster: str) -> None:
    """It may have keys that this version does not know."""
    await use(old.url)
    with Redis.from_url(old.url, decode_responses=True) as client:
        client.hset("fencepost:default:meta", "schema", SCHEMA + 1)
        before = sorted(client.keys("*"))
        with pytest.raises(ConfigurationError, match="newer than"):
            await move(old.url, cluster, "default")
        assert sorted(client.keys("*")) == before


async def test_a_user_that_may_not_use_the_new_names_is_refused_before_anything_changes(
    old: RedisServer, cluster: str
) -> None:
    await use(old.url)
    before = await everything(old.url)
    old.ask("ACL SETUSER app on >secret ~fencepost:* &* +@all")
    with pytest.raises(ConfigurationError, match="what they may do"):
        await move(f"redis://app:secret@{old.host}:{old.port}/0", cluster, "default")
    assert await everything(old.url) == before
    old.ask("ACL SETUSER app ~{fencepost:*")
    await move(f"redis://app:secret@{old.host}:{old.port}/0", cluster, "default")
    assert await everything(cluster) == before


async def test_every_kind_of_key_is_known(old: RedisServer) -> None:
    await use(old.url)
    with Redis.from_url(old.url, decode_responses=True) as client:
        kinds = {key.removeprefix("fencepost:default:").partition(":")[0] for key in client.keys("*")}
    assert kinds <= set(KINDS)


def test_the_command(old: RedisServer, cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(use(old.url))
    command = ["store", "move", "--from", old.url, "--store", cluster]
    assert outcome(command) == 0
    assert "start the replicas on the cluster" in capsys.readouterr().out
    assert outcome([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "store": cluster,
        "from": old.url,
        "namespace": "default",
        "keys": 0,
    }
    assert outcome(["store", "upgrade", "--store", old.url]) == 78
    assert "moved to a cluster" in capsys.readouterr().err
