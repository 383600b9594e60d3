"""The whole suite on a server that Sentinels have promoted, and that lacked what the one before had acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.store.redis import RedisStore
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.comparison import ComparedStore
from tests.servers.sentinel import Watched, watched


@pytest.fixture(scope="session")
def failed_over() -> Iterator[Watched]:
    with watched() as place:
        primary, follower = place.servers
        follower.stop()
        primary.ask("SET only-the-old-one-knows 1")
        primary.kill()
        follower.start()
        place.wait_for_primary(follower)
        assert b"$-1" in follower.ask("GET only-the-old-one-knows")
        yield place


@pytest.mark.slow
class TestSentinel(ComparedStore):
    @pytest.fixture
    async def harness(self, failed_over: Watched) -> AsyncIterator[Harness]:
        failed_over.servers[1].empty()
        clock = HandClock()
        store = RedisStore(failed_over.url, clock=clock, incarnation=0)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()
