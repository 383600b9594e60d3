"""Every store, for tests that must hold on each: by its URL, or as an object whose time a test owns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.clock import Clock
from fencepost.store.base import Store

PLACES = ("memory", "sqlite", "file", "valkey", "postgres")


def url_of(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if place in ("valkey", "postgres"):
        url: str = request.getfixturevalue(f"{place}_url")
        return url
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/fencepost.db",
        "file": f"file://{tmp_path}/fencepost",
    }[place]


def store_of(place: str, url: str, tmp_path: Path, clock: Clock) -> Store:
    """Judging by this clock."""
    from fencepost.store.file import FileStore
    from fencepost.store.memory import MemoryStore
    from fencepost.store.postgres import PostgresStore
    from fencepost.store.redis import RedisStore
    from fencepost.store.sqlite import SqliteStore

    make: dict[str, Any] = {
        "memory": lambda: MemoryStore(clock),
        "sqlite": lambda: SqliteStore(tmp_path / "fencepost.db", clock=clock),
        "file": lambda: FileStore(tmp_path, "default", clock),
        "valkey": lambda: RedisStore(url, clock=clock, incarnation=0),
        "postgres": lambda: PostgresStore(url, clock=clock),
    }
    made: Store = make[place]()
    return made
