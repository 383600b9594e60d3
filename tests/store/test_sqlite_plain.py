"""SQLite's short way for plain fires: it is taken, left where it must be, and the comparison watches over it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fencepost.store.sqlite import SqliteStore, plain
from fencepost.store.sqlite.plain import PlainRows
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

    def count(name: str) -> None:
        original = getattr(PlainRows, name)

        def counted(self: PlainRows, *args: object) -> object:
            tally[name] += 1
            return original(self, *args)

        monkeypatch.setattr(PlainRows, name, counted)

    for name in ("put_plain_claims", "put_plain_ends", "_decide_job", "_update"):
        count(name)
    await some_seeds(tmp_path, 6)
    assert (
        min(tally[name] for name in ("put_plain_claims", "put_plain_ends", "_decide_job", "_update")) > 20
    ), tally


@pytest.mark.parametrize(
    ("query", "condition", "without"),
    [
        ("_DUE", "and plain", ""),
        ("_DUE", "not exists", "1 or not exists"),
        ("_RUNNING", "and plain", ""),
    ],
)
@pytest.mark.mutants
@pytest.mark.timeout(300)
async def test_a_condition_left_out_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, condition: str, without: str
) -> None:
    statement = getattr(plain, query)
    assert condition in statement
    monkeypatch.setattr(plain, query, statement.replace(condition, without))
    with pytest.raises(Mismatch):
        await some_seeds(tmp_path, 40)  # the first that notices is the last
