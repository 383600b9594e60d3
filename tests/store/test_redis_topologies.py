"""Redis that is not one server: behind Sentinel, in a cluster, and a primary that is the primary no longer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.model import Era, Job, Lease
from fencepost.model.triggers import every
from fencepost.store.base import Campaign, HeartbeatRequest, PutJob, Seen
from fencepost.store.redis import RedisStore
from tests.servers import RedisServer, valkey
from tests.servers.sentinel import SERVICE, SentinelServer, is_in_step, wait_until, watched

pytestmark = pytest.mark.timeout(120)


@contextlib.asynccontextmanager
async def opened(url: str, **how: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(url, **how)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def join(store: RedisStore, name: str = "a", number: int = 1, **fields: Any) -> Any:
    request = HeartbeatRequest(
        name, number, 30.0, 10.0, joining=True, targets=("work",), campaign=Campaign(30.0)
    )
    return await store.heartbeat(replace(request, **fields))


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def answers(store: RedisStore) -> bool:
    try:
        await store.roster()
    except StoreUnavailable:
        return False
    return True


def seen_of(lease: Lease | None, era: Era | None = None) -> Seen:
    era = lease.era if lease else era
    assert era is not None
    return Seen(era.incarnation, lease.term if lease else 0, 0, era.server)


@contextlib.contextmanager
def one_sentinel(server: RedisServer, password: str = "") -> Iterator[SentinelServer]:
    with SentinelServer(server.binary, server, 1, password) as sentinel:
        yield sentinel


# --- one address, another server behind it --------------------------------------------------------------------


async def test_a_primary_that_became_a_replica_is_left_and_asked_for_again() -> None:
    with valkey() as other, valkey() as server:
        async with opened(server.url) as store:
            before = (await join(store)).leader.era
            server.ask(f"REPLICAOF {other.host} {other.port}")
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="read only replica|failover"):
                    await store.put_jobs([PutJob(Job("job", "work", every(hours=1)))])
            server.ask("REPLICAOF NO ONE")
            await until(lambda: answers(store))
            assert (await store.roster()).leader.era.incarnation > before.incarnation


async def test_a_server_without_memory_is_unavailable_and_says_the_remedy() -> None:
    with valkey() as server:
        async with opened(server.url) as store:
            await join(store)
            server.ask("CONFIG SET maxmemory 1")
            with pytest.raises(StoreUnavailable, match=r"maxmemory.*retention"):
                await store.put_jobs([PutJob(Job("job", "work", every(hours=1)))])
            server.ask("CONFIG SET maxmemory 0")
            await store.put_jobs([PutJob(Job("job", "work", every(hours=1)))])


# --- Sentinel --------------------------------------------------------------------------------------------------


async def test_the_primary_is_where_a_sentinel_says() -> None:
    with valkey(requirepass="of-the-server") as server, one_sentinel(server, "of-sentinel") as sentinel:
        url = f"redis+sentinel://:of-the-server@{sentinel.host}:{sentinel.port}/{SERVICE}/3"
        async with opened(f"{url}?sentinel_password=of-sentinel&prefix=jobs") as store:
            assert (await join(store)).leader.holder == "a"
        assert b"\r\na\r\n" in server.ask("SELECT 3", "HGET jobs:leader holder")
        with pytest.raises(ConfigurationError, match="check the user, the password"):
            await RedisStore(f"{url}?sentinel_password=wrong").open()
        with pytest.raises(ConfigurationError, match="no service called 'other'"):
            await RedisStore(f"{url.replace(SERVICE, 'other')}?sentinel_password=of-sentinel").open()


async def test_one_of_three_sentinels_is_not_enough() -> None:
    with valkey() as server, one_sentinel(server) as sentinel:
        known = f"{sentinel.host}:{sentinel.port}"
        async with opened(f"redis+sentinel://{known},127.0.0.1:1/{SERVICE}") as store:  # half of them is
            await join(store)
        with pytest.raises(StoreUnavailable, match="1 of 3 Sentinels answer"):
            await RedisStore(f"redis+sentinel://127.0.0.1:1,{known},127.0.0.1:2/{SERVICE}").open()


async def test_without_sentinels_nothing_is_asked_of_a_server_that_may_be_replaced() -> None:
    with valkey() as server, one_sentinel(server) as sentinel:
        async with opened(f"redis+sentinel://{sentinel.host}:{sentinel.port}/{SERVICE}") as store:
            await join(store)
            sentinel.kill()
            with pytest.raises(StoreUnavailable, match="0 of 1 Sentinels"):
                await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0))
            with pytest.raises(StoreUnavailable, match="0 of 1 Sentinels"):
                await store.roster()
            sentinel.start()
            assert (await store.heartbeat(HeartbeatRequest("a", 3, 30.0, 10.0))).known


@pytest.mark.slow
async def test_a_stale_follower_that_is_promoted_has_lost_data(caplog: Any) -> None:
    with watched() as place:
        primary, follower = place.servers
        async with opened(place.url) as store:
            before = (await join(store)).leader
            await join(store, "b")
            follower.stop()
            reply = await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0, seen=seen_of(before)))
            seen = replace(seen_of(reply.leader), steps=reply.steps)
            primary.kill()
            follower.start()
            await asyncio.to_thread(place.wait_for_primary, follower)
            await until(lambda: answers(store))
            era = (await store.roster()).leader.era
            assert (era.standing, era.incarnation) == ("restarted", before.era.incarnation + 1)
            after = (await store.heartbeat(HeartbeatRequest("a", 3, 30.0, 10.0, seen=seen))).leader.era
            assert after.standing == "lost"
            assert after.incarnation > era.incarnation
            # The old primary comes back, and is made a follower: whoever is connected is not misled.
            primary.start()
            await asyncio.to_thread(wait_until, lambda: is_in_step(primary), "it follows")
            assert (await store.roster()).leader.era == after


@pytest.mark.slow
async def test_a_primary_that_was_stopped_and_replaced_is_left_with_the_next_heartbeat() -> None:
    """It goes on as if nothing had happened: until a Sentinel demotes it, it accepts everything."""
    with watched() as place:
        primary, follower = place.servers
        async with opened(place.url) as store, opened(place.url) as other:
            before = (await join(store)).leader.era
            await join(other, "b")
            os.kill(primary.pid, signal.SIGSTOP)
            try:
                await asyncio.to_thread(place.wait_for_primary, follower)
            finally:
                os.kill(primary.pid, signal.SIGCONT)
            reply = await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0, seen=seen_of(None, before)))
            assert store._link.primary is not None
            assert store._link.primary.port == follower.port
            assert reply.leader.era.incarnation > before.incarnation
            waiting = asyncio.create_task(store.wait(20))
            await until(lambda: follows(store, follower.port))
            while await answers(other):
                if other._link.primary is not None and other._link.primary.port == follower.port:
                    break
                with contextlib.suppress(StoreUnavailable):
                    await other.heartbeat(HeartbeatRequest("b", 2, 30.0, 10.0))
            await other.put_jobs([PutJob(Job("job", "work", every(hours=1)))])
            assert await waiting, "the hint comes from where both are now"


async def follows(store: RedisStore, port: int) -> bool:
    primary = store._subscription._primary
    return primary is not None and primary.port == port and bool(store._subscription._confirmed)
