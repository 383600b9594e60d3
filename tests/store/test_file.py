"""The file store: the conformance suite, and what touches final fires again with a snapshot at every step."""

from __future__ import annotations

import pytest

from fencepost.store.file import FileStore
from fencepost.testing.conformance import HandClock, Harness
from fencepost.testing.conformance.fires import LedgerRules, ManualRules, SettleRules
from tests.protocol.comparison import ComparedStore


class TestFile(ComparedStore):
    snapshot_bytes, keep_fires = 1_000_000, 1000

    @pytest.fixture
    async def harness(self, tmp_path):
        clock = HandClock()
        store = FileStore(tmp_path, "default", clock, self.snapshot_bytes, self.keep_fires)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


class TestFileWithManySnapshots(LedgerRules, ManualRules, SettleRules):
    snapshot_bytes, keep_fires = 0, 0
    harness = TestFile.harness
    test_it_agrees_with_the_model = ComparedStore.test_it_agrees_with_the_model_over_random_operations
