from __future__ import annotations

import pytest

from fencepost.store.redis import RedisStore
from fencepost.testing.conformance import HandClock, Harness, StoreConformance


class TestValkey(StoreConformance):
    server = "valkey_url"

    @pytest.fixture
    async def harness(self, request):
        clock = HandClock()
        store = RedisStore(request.getfixturevalue(self.server), clock=clock, incarnation=0)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


class TestRedis(TestValkey):
    server = "redis_url"
