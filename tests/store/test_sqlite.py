from __future__ import annotations

import pytest

from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.comparison import ComparedStore


class TestSqlite(ComparedStore):
    @pytest.fixture
    async def harness(self, tmp_path):
        clock = HandClock()
        store = SqliteStore(tmp_path / "fencepost.db", clock=clock)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()
