"""The example of docs/new-store.md: a store of one file keeps every rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples.new_store.dbm_store import DbmStore, Rows

from fencepost.testing.conformance import HandClock, Harness, StoreConformance


@pytest.mark.slow
class TestDbm(StoreConformance):
    @pytest.fixture
    async def harness(self, tmp_path: Path):
        clock = HandClock()
        store = DbmStore(tmp_path / "jobs", clock)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


class Dying(dict[bytes, bytes]):
    """A dbm whose process dies after so many writes."""

    left = 1_000

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        super().__setitem__(key, value)


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_step_is_written_as_a_whole_or_not_at_all(writes: int) -> None:
    db = Dying({b"job/a": b"1", b"job/b": b"1"})
    rows = Rows(db)
    for key in ("a", "b"):
        rows.put("job", key, 2)
    db.left = writes
    if writes < 3:
        with pytest.raises(KeyboardInterrupt):
            rows.commit()
    else:
        rows.commit()
    db.left = 1_000
    found = {key: value for key, value in Rows(db).every("job")}
    assert found == ({"a": 1, "b": 1} if not writes else {"a": 2, "b": 2})
    assert json.loads(db[b"job/a"]) == found["a"]
