from __future__ import annotations

import pytest

from fencepost.store.redis import RedisStore
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.comparison import ComparedStore, compare


class TestValkey(ComparedStore):
    server = "valkey_url"

    @pytest.fixture
    async def harness(self, request):
        clock = HandClock()
        store = RedisStore(request.getfixturevalue(self.server), clock=clock, incarnation=0)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


@pytest.mark.slow
class TestRedis(TestValkey):
    server = "redis_url"


class TestRedisBriefly:
    """What of Redis 6.2 `make test` shows; `make test-all` runs the whole suite on it."""

    server, harness = "redis_url", TestValkey.harness

    @pytest.mark.parametrize("seed", range(1000, 1003))
    async def test_it_agrees_with_the_model(self, harness: Harness, seed: int) -> None:
        await compare(harness, seed, steps=120)
