"""Whether it keeps every rule: `pip install -e '.[test]' && pytest`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.testing.conformance import HandClock, Harness, StoreConformance
from fencepost_dbm import DbmStore


class TestDbm(StoreConformance):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        clock = HandClock()
        store = DbmStore(tmp_path / "jobs", clock)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()
