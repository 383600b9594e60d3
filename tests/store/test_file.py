"""The file store: the conformance suite, as it is and with a snapshot at every step."""

from __future__ import annotations

import pytest

from fencepost.store.file import FileStore
from fencepost.testing.conformance import HandClock, Harness, StoreConformance


class TestFile(StoreConformance):
    snapshot_bytes, keep_fires = 1_000_000, 1000

    @pytest.fixture
    async def harness(self, tmp_path):
        clock = HandClock()
        store = FileStore(tmp_path, "default", clock, self.snapshot_bytes, self.keep_fires)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


class TestFileWithManySnapshots(TestFile):
    """Every fire that is final leaves memory, and everything is read back from disk."""

    snapshot_bytes, keep_fires = 0, 0
