"""Servers that the tests of one process share: each kind starts when the first test asks, and stays to the end.

A test that stops, kills or reconfigures a server takes one of its own: `with valkey() as server`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.servers.mariadb import MariaServer, mariadb
from tests.servers.postgresql import PostgresServer, Version, postgres
from tests.servers.process import ServerMissing
from tests.servers.redislike import RedisServer, redis, valkey


@pytest.fixture
def valkey_url(valkey_server: RedisServer) -> str:
    """Of an empty Valkey."""
    valkey_server.empty()
    return valkey_server.url


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """Of an empty Redis 6.2, the oldest we support."""
    redis_server.empty()
    return redis_server.url


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Of an empty database, on the version that `postgres_server` says."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    with valkey() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    if sys.version_info >= (3, 13):
        pytest.skip("Redis 6.2 comes in a package without a build for this Python")
    with redis() as server:
        yield server


@pytest.fixture
def postgres_server(
    request: pytest.FixtureRequest, postgres_servers: Callable[[Version], PostgresServer]
) -> PostgresServer:
    """PostgreSQL 16, or as `@pytest.mark.parametrize("postgres_server", [18, "system"], indirect=True)` says."""
    version: Version = getattr(request, "param", 16)
    try:
        return postgres_servers(version)
    except ServerMissing as reason:
        if version == "system":
            pytest.skip(str(reason))
        raise


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Callable[[Version], PostgresServer]]:
    """One of each version, whatever the order in which tests ask."""
    with ExitStack() as stack:
        yield cache(lambda version: stack.enter_context(postgres(version)))


@pytest.fixture
def mysql_url(mysql_server: MariaServer) -> Iterator[str]:
    """Of an empty database on MariaDB."""
    with mysql_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariaServer]:
    """Skips where there is no MariaDB; where CI=true it must be there."""
    try:
        server = mariadb()
    except ServerMissing as reason:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _no_defaults_for_postgres_clients() -> Iterator[None]:
    """Of this process and of those it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PG")]:
            patch.delenv(name)
        yield
