"""Where a soak's store is: a file of the machine, a server of its own behind a proxy that can do harm, or several
servers of which another can take over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from redis.crc import key_slot

from fencepost.errors import ConfigurationError
from fencepost.store.urls import store_from_url
from tests.servers import Clock, Proxy, Server, ServerMissing, clock, mariadb, postgres, redis, valkey
from tests.servers.pgbouncer import pgbouncer
from tests.servers.redis_cluster import valkey_cluster
from tests.servers.sentinel import watched
from tests.servers.standby import Standby

EMBEDDED = ("sqlite", "file")
SERVERS: Mapping[str, Callable[..., Server]] = {
    "valkey": lambda **options: valkey(appendonly=True, appendfsync="always", **options),
    "redis": lambda **options: redis(appendonly=True, appendfsync="always", **options),
    "postgres": lambda **options: postgres(18, **options),
    "mysql": lambda **options: mariadb(**options),
    "postgres16": lambda **options: postgres(16, **options),
}
STALE = 2.0
"""Seconds of writes that a server has missed when it is promoted."""


@dataclass(frozen=True)
class Place:
    store: str
    folder: Path
    url: str
    """For the replicas."""
    direct: str
    """For who watches: past the proxy."""
    clock: Clock | None
    """By which fires are due: the server's, or that of the replicas if they are started with it. None: it cannot be
    set here."""
    server: Server | None = None
    proxy: Proxy | None = None
    rate: int | None = None
    """Fires a second; None: as much as such a store can well bear."""
    fail_over: Callable[[], None] | None = None
    """The primary is killed, and one that lacks its last writes takes over. None: there is only one server."""


@contextmanager
def place(store: str, folder: Path) -> Iterator[Place]:
    with clock() as made:
        if store == "sqlite":
            url = f"sqlite:///{folder}/soak.db"
            yield Place(store, folder, url, url, made)
        elif store == "file":
            url = f"file://{folder}/store"
            yield Place(store, folder, url, url, made)
        elif store in TOPOLOGIES:
            with TOPOLOGIES[store](folder) as found:
                yield found
        else:
            env = made.env if made else None
            with SERVERS[store](env=env) as server, Proxy(server.url) as proxy:
                yield Place(store, folder, proxy.url, server.url, made, server, proxy)


# --- more than one server: the clock of the moment's primary cannot be set, so `clock` is None ------------------------


@contextmanager
def cluster(folder: Path) -> Iterator[Place]:
    """Three primaries and their followers. The node of our slot is announced at the address of a proxy."""
    slot = key_slot(b"fencepost:default")
    with valkey_cluster(followers=3, appendfsync="always") as nodes:
        primary, follower = nodes.owner(slot), nodes.follower(slot)
        with Proxy(primary.url) as proxy:
            primary.ask(f"CONFIG SET cluster-announce-port {proxy.port}")

            def fail_over() -> None:
                follower.stop()
                sleep(STALE)
                primary.kill()
                follower.start()
                nodes.wait_for_primary(follower)

            yield Place("cluster", folder, nodes.url, nodes.url, None, primary, proxy, fail_over=fail_over)


@contextmanager
def sentinel(folder: Path) -> Iterator[Place]:
    """Three Sentinels over a primary, which they name at the address of a proxy, and its follower."""
    with watched(proxied=True, appendfsync="always") as servers:
        primary, follower = servers.servers

        def fail_over() -> None:
            follower.stop()
            sleep(STALE)
            primary.kill()
            follower.start()
            servers.wait_for_primary(follower)

        url, proxy = servers.url, servers.proxy
        yield Place("sentinel", folder, url, url, None, primary, proxy, fail_over=fail_over)


@contextmanager
def standby(folder: Path) -> Iterator[Place]:
    """A primary and a standby, both named in the URL."""
    with postgres(18) as primary, Standby(primary) as second, Proxy(primary.url) as proxy:

        def url(port: int) -> str:
            hosts = f"{primary.host}:{port},{second.host}:{second.port}"
            return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

        def fail_over() -> None:
            _promote_stale(primary, second)

        yield Place(
            "standby", folder, url(proxy.port), url(primary.port), None, primary, proxy, fail_over=fail_over
        )


@contextmanager
def pooled(folder: Path) -> Iterator[Place]:
    """PgBouncer in transaction mode before a primary; it is led to the standby. It tries a failed login again after a
    second; its default is 15."""
    with (
        postgres(18) as primary,
        Standby(primary) as second,
        pgbouncer(primary, default_pool_size=10, server_login_retry=1) as pooler,
        Proxy(pooler.url) as proxy,
    ):

        def fail_over() -> None:
            _promote_stale(primary, second)
            pooler.lead_to(second)

        yield Place("pgbouncer", folder, proxy.url, pooler.url, None, primary, proxy, fail_over=fail_over)


def _promote_stale(primary: Server, second: Standby) -> None:
    second.wait_in_step()
    second.stop()
    sleep(STALE)
    primary.kill()
    second.start()
    second.promote()


TOPOLOGIES: Mapping[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "cluster": cluster,
    "sentinel": sentinel,
    "standby": standby,
    "pgbouncer": pooled,
}
STORES = (*EMBEDDED, *SERVERS, *TOPOLOGIES)


def missing(store: str, folder: Path) -> str | None:
    """Why there is no such store here; None if there is."""
    try:
        with place(store, folder) as found:
            store_from_url(found.url)
    except (ConfigurationError, ServerMissing) as error:
        return str(error)
    return None


def tags(store: str) -> tuple[bytes, bytes]:
    """By which bytes a claim and a settle are told from other requests on their way."""
    if store in ("valkey", "redis", "cluster", "sentinel"):
        from fencepost.store.redis.scripts import CLAIM, SETTLE

        return CLAIM.sha.encode(), SETTLE.sha.encode()
    if store == "mysql":  # the commits of such steps
        return b"claim_fires", b"update_claims"
    return b".claim(", b".settle("
