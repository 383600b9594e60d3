"""Where a soak's store is: a file of the machine, or a server of its own behind a proxy that can do harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import ConfigurationError
from fencepost.store.urls import store_from_url
from tests.servers import Clock, Proxy, Server, ServerMissing, clock, mariadb, postgres, redis, valkey

EMBEDDED = ("sqlite", "file")
SERVERS: Mapping[str, Callable[..., Server]] = {
    "valkey": lambda **options: valkey(appendonly=True, appendfsync="always", **options),
    "redis": lambda **options: redis(appendonly=True, appendfsync="always", **options),
    "postgres": lambda **options: postgres(18, **options),
    "mysql": lambda **options: mariadb(**options),
    "postgres16": lambda **options: postgres(16, **options),
}
STORES = (*EMBEDDED, *SERVERS)


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


@contextmanager
def place(store: str, folder: Path) -> Iterator[Place]:
    with clock() as made:
        if store == "sqlite":
            url = f"sqlite:///{folder}/soak.db"
            yield Place(store, folder, url, url, made)
        elif store == "file":
            url = f"file://{folder}/store"
            yield Place(store, folder, url, url, made)
        else:
            env = made.env if made else None
            with SERVERS[store](env=env) as server, Proxy(server.url) as proxy:
                yield Place(store, folder, proxy.url, server.url, made, server, proxy)


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
    if store in ("valkey", "redis"):
        from fencepost.store.redis.scripts import CLAIM, SETTLE

        return CLAIM.sha.encode(), SETTLE.sha.encode()
    if store == "mysql":  # the commits of such steps
        return b"claim_fires", b"update_claims"
    return b".claim(", b".settle("
