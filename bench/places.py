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
from tests.servers import Server, ServerMissing, postgres, valkey

SERVERS: Mapping[str, Callable[[], Server]] = {
    "valkey": lambda: valkey(appendonly=True, appendfsync="always"),
    "postgres": lambda: postgres(18, fsync=True, synchronous_commit=True),
}
STORES = ("memory", "sqlite", "file", *SERVERS)


@dataclass(frozen=True)
class Place:
    url: str
    folder: Path
    server: Server | None = None


@contextmanager
def a_place(store: str) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-", dir=os.environ.get("BENCH_FOLDER")) as name:
        folder = Path(name)
        if store in SERVERS:
            with SERVERS[store]() as server:
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
