"""The Redis store in a cluster: one namespace is in one slot, whose node may change."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.crc import key_slot

from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.model import Job, State
from fencepost.model.triggers import every
from fencepost.store.base import FireQuery, HeartbeatRequest, PutJob
from fencepost.store.redis import RedisStore
from fencepost.testing.conformance import HandClock, Harness, job_of
from tests.protocol.comparison import ComparedStore, compare
from tests.servers import RedisServer
from tests.servers.ports import Port
from tests.servers.redis_cluster import ValkeyCluster, one_node, valkey_cluster
from tests.servers.sentinel import wait_until
from tests.servers.tls import tls_before
from tests.store.test_redis_topologies import answers, join, opened, seen_of, until

SLOT = key_slot(b"fencepost:default")
P = "{fencepost:default}"
KEYS = f"{P}:*"


@pytest.fixture(scope="session")
def node() -> Iterator[RedisServer]:
    with one_node() as server:
        yield server


@pytest.fixture
def node_url(node: RedisServer) -> str:
    node.empty()
    return f"redis+cluster://{node.host}:{node.port}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ValkeyCluster]:
    with valkey_cluster() as servers:
        yield servers


@contextlib.asynccontextmanager
async def by_hand(url: str, namespace: str = "default") -> AsyncIterator[Harness]:
    clock = HandClock()
    async with opened(url, clock=clock, incarnation=0, namespace=namespace) as store:
        yield Harness.with_clock(store, clock)


@pytest.mark.slow
class TestCluster(ComparedStore):
    @pytest.fixture
    async def harness(self, cluster: ValkeyCluster) -> AsyncIterator[Harness]:
        cluster.empty()
        async with by_hand(cluster.url) as harness:
            yield harness


class TestOneNode:
    """What of it `make test` shows."""

    @pytest.mark.parametrize("seed", [1000, *(pytest.param(n, marks=pytest.mark.slow) for n in (1001, 1002))])
    async def test_it_agrees_with_the_model(self, node_url: str, seed: int) -> None:
        async with by_hand(node_url) as harness:
            await compare(harness, seed, steps=120)

    async def test_all_keys_are_in_one_slot(self, node_url: str, node: RedisServer) -> None:
        async with by_hand(f"{node_url}?prefix=scheduler", "shop") as harness:
            await harness.elect("a")
            await harness.settle(await harness.running("job"))
            await harness.trigger("job")
        with Redis(port=node.port, decode_responses=True) as client:
            keys = set(client.scan_iter("*"))
        assert len(keys) > 10
        assert {key.partition(":")[0] + ":" + key.split(":")[1] for key in keys} == {"{scheduler:shop}"}

    async def test_a_url_of_one_server_says_what_to_write(self, node_url: str) -> None:
        with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
            await RedisStore(node_url.replace("+cluster", "")).open()

    async def test_a_server_that_is_no_cluster_says_so(self, valkey_url: str) -> None:
        url = valkey_url.replace("redis://", "redis+cluster://")
        with pytest.raises(ConfigurationError, match="not part of a cluster"):
            await RedisStore(url).open()
        with pytest.raises(ConfigurationError, match="has only one"):
            RedisStore(url.replace("/0", "/1"))

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")
    async def test_encrypted_and_as_a_user_with_few_rights(self, tmp_path: Path) -> None:
        port = Port()
        with one_node(cluster_announce_port=port.number) as server, ExitStack() as stack:
            trusted = stack.enter_context(tls_before(server.port, port.number, tmp_path))
            rights = "-@all +@read +@write +@scripting +@connection +@pubsub +info +time +cluster|slots +cluster|nodes"
            made = server.ask(f"ACL SETUSER app on >p@ss resetkeys ~{KEYS} resetchannels &{KEYS} {rights}")
            assert b"-ERR" not in made
            url = f"rediss+cluster://app:p%40ss@127.0.0.1:{port.number}?ssl_ca_certs={trusted}"
            async with opened(url) as store, opened(url) as other:
                assert (await join(store)).leader.holder == "a"
                await join(other, "b")
                assert (await other.evidence(["a"])).gone == frozenset()
                await store.put_jobs([PutJob(job_of("job", every(hours=1)))])
                assert await other.wait(10)
                assert [job.id for job in await other.jobs()] == ["job"]
            with pytest.raises(ConfigurationError, match="check the user, the password"):
                await RedisStore(url.replace("p%40ss", "wrong")).open()
            with pytest.raises(ConfigurationError, match="check the user, the password"):
                await RedisStore(url, "another").open()
        port.release()

    async def test_while_the_slot_moves_nothing_is_done_in_part(
        self, node_url: str, node: RedisServer
    ) -> None:
        with one_node(empty=True) as other:
            id = other.ask("CLUSTER MYID").split(b"\r\n")[-3].decode()
            bus = other.option("cluster_port")
            node.ask(f"CLUSTER MEET {other.host} {other.port} {bus}")
            wait_until(lambda: id.encode() in node.ask("CLUSTER NODES"), "they know each other")
            async with by_hand(node_url) as harness:
                fire = await harness.running("job")
                assert b"+OK\r\n+OK" in node.ask(f"CLUSTER SETSLOT {SLOT} MIGRATING {id}")
                before = dump(node)
                with pytest.raises(StoreUnavailable, match="slots that are moved"):
                    await harness.settle(fire)
                with pytest.raises(StoreUnavailable):
                    await harness.store.put_jobs([PutJob(job_of("another", every(minutes=1)))])
                assert dump(node) == before
                node.ask(f"CLUSTER SETSLOT {SLOT} STABLE")
                await harness.settle(fire)
                assert (await harness.fire(fire.key)).state is State.SUCCEEDED
            node.ask(f"CLUSTER FORGET {id}")


def dump(server: RedisServer) -> dict[str, Any]:
    with Redis(port=server.port) as client:
        return {key: client.dump(key) for key in client.scan_iter(KEYS)}


@pytest.mark.slow
class TestNodes:
    async def test_any_node_leads_to_the_one_that_has_the_slot(self, cluster: ValkeyCluster) -> None:
        cluster.empty()
        owner = cluster.owner(SLOT)
        for each in cluster.primaries:
            async with opened(f"redis+cluster://127.0.0.1:1,{each.host}:{each.port}/0") as store:
                assert (await join(store, f"r{each.port}")).known
                assert store._link.primary is not None
                assert store._link.primary.port == owner.port

    async def test_sessions_and_hints_of_processes_that_came_by_different_nodes(
        self, cluster: ValkeyCluster
    ) -> None:
        cluster.empty()
        first, second, _ = cluster.primaries
        async with (
            opened(f"redis+cluster://{first.host}:{first.port}") as store,
            opened(f"redis+cluster://{second.host}:{second.port}") as dying,
        ):
            await join(dying, "leader")
            await join(store, "follower")
            assert (await store.evidence(["leader"])).gone == frozenset()
            waiting = asyncio.create_task(store.wait(20))
            await asyncio.sleep(0.1)
            await dying.put_jobs([PutJob(Job("job", "work", every(hours=1)))])
            assert await waiting
            await dying.close()

            async def is_gone() -> bool:
                return bool((await store.evidence(["leader"])).gone)

            await until(is_gone)

    async def test_namespaces_are_on_different_nodes(self, cluster: ValkeyCluster) -> None:
        cluster.empty()
        ports = set()
        for name in ("a", "b", "c", "d", "e", "f"):
            async with opened(cluster.url, namespace=name) as store:
                await join(store)
                assert store._link.primary is not None
                ports.add(store._link.primary.port)
                assert await store.find_fires(FireQuery()) == ()
        assert len(ports) > 1


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_stale_follower_that_takes_over_has_lost_data() -> None:
    with valkey_cluster(followers=3) as cluster:
        primary, follower = cluster.owner(SLOT), cluster.follower(SLOT)
        async with opened(cluster.url) as store:
            before = (await join(store)).leader
            follower.stop()
            reply = await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0, seen=seen_of(before)))
            seen = replace(seen_of(reply.leader), steps=reply.steps)
            primary.kill()
            follower.start()
            await asyncio.to_thread(cluster.wait_for_primary, follower)
            await until(lambda: answers(store))
            era = (await store.roster()).leader.era
            assert (era.standing, era.incarnation) == ("restarted", before.era.incarnation + 1)
            after = (await store.heartbeat(HeartbeatRequest("a", 3, 30.0, 10.0, seen=seen))).leader.era
            assert after.standing == "lost"
            # A planned failover to the old one and back: each is one that may have lost something.
            primary.start()
            await asyncio.to_thread(
                wait_until, lambda: b"master_link_status:up" in primary.ask("INFO replication"), "it follows"
            )
            primary.ask("CLUSTER FAILOVER")
            await asyncio.to_thread(cluster.wait_for_primary, primary)
            await until(lambda: answers(store))

            async def moved() -> bool:
                with contextlib.suppress(StoreUnavailable):
                    await store.heartbeat(HeartbeatRequest("a", 4, 30.0, 10.0))
                return store._link.primary is not None and store._link.primary.port == primary.port

            await until(moved)
            assert (await store.roster()).leader.era.incarnation > after.incarnation
