"""Commands in virtual time: they are not run, something stands in for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fencepost import Fire, Scheduler, every
from fencepost.testing import virtual


def a_scheduler(folder: Path) -> Scheduler:
    scheduler = Scheduler(store="memory://")
    scheduler.command(["touch", str(folder / "ran")], every(hours=1), id="backup", args={"n": 1})
    return scheduler


def test_a_command_is_not_run_and_succeeds(tmp_path: Path) -> None:
    with virtual(a_scheduler(tmp_path)) as t:
        t.advance(days=1)
        t.assert_ran("backup", times=24)
    assert not (tmp_path / "ran").exists()


def test_a_function_stands_in_for_it(tmp_path: Path) -> None:
    called = []

    async def stand_in(fire: Fire, words: Sequence[str]) -> None:
        called.append((fire.args, words))
        if len(called) == 2:
            raise OSError("disk full")

    with virtual(a_scheduler(tmp_path), command=stand_in) as t:
        t.advance(hours=3)
        assert [fire.state for fire in t.fires("backup")] == ["succeeded", "failed", "succeeded"]
    assert called[0] == ({"n": 1}, ("touch", str(tmp_path / "ran")))
