"""A store on PostgreSQL for a test: emptied rather than made anew, which takes a tenth of a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import psycopg

from fencepost.store.postgres import PostgresStore
from fencepost.testing.conformance import HandClock, Harness

TABLES = (
    "definitions calendars outcomes jobs events targets planned later live final replicas replica_targets"
    " beacons lease entries"
)
EMPTY = "; ".join(f"delete from fencepost.{table}" for table in TABLES.split())


@cache
def _admin(url: str) -> psycopg.Connection[Any]:
    """Kept for all tests: hundreds empty the same few databases."""
    return psycopg.connect(url, autocommit=True)


@asynccontextmanager
async def a_harness(url: str, fast: bool = True, direct: str | None = None) -> AsyncIterator[Harness]:
    """`direct`: the URL of the server itself, if `url` leads through a pooler."""
    clock = HandClock()
    store = PostgresStore(url, clock=clock, fast=fast)
    await store.open()
    store._session.patience = 60.0  # these tests say nothing of how soon a busy server answers
    _admin(direct or url).execute(f"{EMPTY}; insert into fencepost.lease default values".encode())
    yield Harness.with_clock(store, clock)
    await store.close()
