"""Where a store is put to be measured: a new folder, or a server of its own that waits for the disk at each commit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import ConfigurationError
from fencepost.store.urls import store_from_url
from tests.servers import Server, ServerMissing, mariadb, postgres, valkey

SERVERS: Mapping[str, Callable[..., Server]] = {
    "valkey": lambda **more: valkey(appendonly=True, appendfsync="always", **more),
    "mysql": lambda **more: mariadb(innodb_flush_method="fsync", innodb_flush_log_at_trx_commit=1, **more),
    "postgres": lambda **more: postgres(18, fsync=True, synchronous_commit=True, **more),
}
STORES = ("memory", "sqlite", "file", *SERVERS)


@dataclass(frozen=True)
class Place:
    url: str
    folder: Path
    server: Server | None = None


@contextmanager
def a_place(store: str, **settings: str | int | bool) -> Iterator[Place]:
    """`settings`: more of the server's own."""
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-", dir=os.environ.get("BENCH_FOLDER")) as name:
        folder = Path(name)
        if store in SERVERS:
            with SERVERS[store](**settings) as server:
                yield Place(server.url, folder, server)
        else:
            urls = {
                "memory": "memory://",
                "sqlite": f"sqlite:///{folder}/bench.db",
                "file": f"file://{folder}/store",
            }
            yield Place(urls[store], folder)


def missing(store: str) -> str | None:
    """Why there is no such store here; None if there is."""
    try:
        with a_place(store) as place:
            store_from_url(place.url)
    except (ConfigurationError, ServerMissing) as error:
        return str(error)
    return None
