from __future__ import annotations

import pytest

from fencepost.store.memory import MemoryStore
from fencepost.testing.conformance import HandClock, Harness, StoreConformance


class TestMemory(StoreConformance):
    @pytest.fixture
    async def harness(self):
        clock = HandClock()
        store = MemoryStore(clock)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()
