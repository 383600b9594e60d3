"""SQLite's fast path: it is taken, left where it must be, and the comparison watches over it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fencepost.store.rules import claims, updates
from fencepost.store.sqlite import SqliteStore
from fencepost.store.sqlite.fast import SqliteFastPath
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.comparison import Mismatch, compare


async def some_seeds(folder: Path, number: int) -> None:
    for seed in range(40, 40 + number):
        clock = HandClock()
        store = SqliteStore(folder / f"{seed}.db", clock=clock)
        await store.open()
        try:
            await compare(Harness.with_clock(store, clock), seed, 200)
        finally:
            await store.close()


@pytest.mark.slow
async def test_the_comparison_takes_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally: Counter[str] = Counter()

    def count(where: object, name: str) -> None:
        original = getattr(where, name)

        def counted(*args: object) -> object:
            tally[name] += 1
            return original(*args)

        monkeypatch.setattr(where, name, counted)

    count(SqliteFastPath, "claim")
    count(SqliteFastPath, "end")
    count(claims, "decide_job")
    count(updates, "update_claim")
    await some_seeds(tmp_path, 10)
    assert len(tally) == 4
    assert min(tally.values()) > 20, tally


@pytest.mark.parametrize(
    ("query", "condition", "without"),
    [
        ("DUE", "and plain", ""),
        ("DUE", "not exists", "1 or not exists"),
        ("RUNNING", "and plain", ""),
    ],
)
@pytest.mark.mutants
@pytest.mark.timeout(300)
async def test_a_condition_left_out_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, condition: str, without: str
) -> None:
    statement = getattr(SqliteFastPath, query)
    assert condition in statement
    monkeypatch.setattr(SqliteFastPath, query, statement.replace(condition, without))
    with pytest.raises(Mismatch):
        await some_seeds(tmp_path, 40)  # the first that notices is the last
