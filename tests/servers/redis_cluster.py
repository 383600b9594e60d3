"""A Valkey cluster: three primaries that share the slots, and a follower of each that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.servers.ports import Port
from tests.servers.redislike import Option, RedisServer, valkey
from tests.servers.sentinel import wait_until

NODE_TIMEOUT = 1000
"""Milliseconds after which a node that does not answer is taken for down."""
SLOTS = 16384


@dataclass(frozen=True)
class ValkeyCluster:
    primaries: tuple[RedisServer, ...]
    followers: tuple[RedisServer, ...]
    """The first follows the primary that has the first slots, and so on."""

    @property
    def url(self) -> str:
        login = f":{self.primaries[0].password}@" if self.primaries[0].password else ""
        return f"redis+cluster://{login}{','.join(f'{each.host}:{each.port}' for each in self.primaries)}"

    @property
    def nodes(self) -> tuple[RedisServer, ...]:
        return (*self.primaries, *self.followers)

    def owner(self, slot: int) -> RedisServer:
        """Of this slot, at the beginning."""
        return self.primaries[slot * len(self.primaries) // SLOTS]

    def follower(self, slot: int) -> RedisServer:
        return self.followers[slot * len(self.primaries) // SLOTS]

    def empty(self) -> None:
        for each in self.primaries:
            each.empty()

    def wait_for_primary(self, server: RedisServer) -> None:
        """Until it has taken over, and all others that live know."""
        line = f"{server.host}:{server.port}"

        def known(node: RedisServer) -> bool:
            told = node.ask("CLUSTER NODES", "CLUSTER INFO").decode()
            mine = next(each for each in told.splitlines() if line in each)
            return "cluster_state:ok" in told and "master" in mine.split()[2]

        wait_until(lambda: all(known(node) for node in self.nodes if node.alive), f"{server} takes over")


@contextmanager
def valkey_cluster(followers: int = 0, **config: Option) -> Iterator[ValkeyCluster]:
    """`followers`: of how many primaries."""
    with ExitStack() as stack:
        if "requirepass" in config:
            config["masterauth"] = config["requirepass"]
        servers = [_node(stack, config) for _ in range(3 + followers)]
        buses = {server.port: int(server.option("cluster_port")) for server in servers}
        first, primaries = servers[0], servers[:3]
        for number, server in enumerate(servers):
            _told(server, f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            if number < 3:
                begin, end = (-(-(number + more) * SLOTS // 3) for more in (0, 1))
                _told(server, f"CLUSTER ADDSLOTSRANGE {begin} {end - 1}")
            if server is not first:
                _told(server, f"CLUSTER MEET {first.host} {first.port} {buses[first.port]}")
        wait_until(
            lambda: all(_knows_all(each, len(servers)) for each in servers), "all nodes know each other"
        )
        for primary, follower in zip(primaries, servers[3:], strict=False):
            _told(follower, f"CLUSTER REPLICATE {_id(primary)}")
        wait_until(
            lambda: all(b"master_link_status:up" in each.ask("INFO replication") for each in servers[3:]),
            "the followers are in step",
        )
        yield ValkeyCluster(tuple(primaries), tuple(servers[3:]))


@contextmanager
def one_node(*, empty: bool = False, **config: Option) -> Iterator[RedisServer]:
    """A cluster of one, which has all slots: ready at once. `empty`: it has none, and waits to be made part of one."""
    with ExitStack() as stack:
        server = _node(stack, {"appendonly": False, **config})
        if empty:
            yield server
            return
        _told(server, f"CLUSTER ADDSLOTSRANGE 0 {SLOTS - 1}")
        wait_until(lambda: _knows_all(server, 1), "it has all slots")
        yield server


def _node(stack: ExitStack, config: dict[str, Option]) -> RedisServer:
    bus = Port()  # by default ten thousand above its own, where outgoing connections are
    stack.callback(bus.release)
    options: Any = {
        "appendonly": True,
        "appendfsync": "no",
        "repl_diskless_sync_delay": 0,
        "cluster_enabled": True,
        "cluster_port": bus.number,
        "cluster_node_timeout": NODE_TIMEOUT,
        "cluster_replica_validity_factor": 0,  # one that lags may be promoted
        **config,
    }
    return stack.enter_context(valkey(**options))


def _told(server: RedisServer, command: str) -> None:
    reply = server.ask(command)
    assert reply.count(b"+OK") >= 2, (command, reply)


def _id(server: RedisServer) -> str:
    return server.ask("CLUSTER MYID").split(b"\r\n")[-3].decode()


def _knows_all(server: RedisServer, number: int) -> bool:
    told = server.ask("CLUSTER INFO")
    return b"cluster_known_nodes:%d\r" % number in told and b"cluster_state:ok" in told
