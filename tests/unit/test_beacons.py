"""Beacons: what a process that died while it lit its own leaves behind, and who clears that up."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fencepost.store.local import Beacons


def test_what_a_crash_left_half_made_is_cleared_up(tmp_path: Path) -> None:
    (tmp_path / "crashed.new").touch()
    beacons = Beacons(tmp_path)
    beacons.hold("a")
    assert [path.name for path in tmp_path.iterdir()] == ["a.alive"]
    beacons.release_all()


def test_what_another_is_just_making_is_left_alone(tmp_path: Path) -> None:
    fresh = tmp_path / "other.new"
    with fresh.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        beacons = Beacons(tmp_path)
        beacons.hold("a")
        assert fresh.exists()
    beacons.release_all()


def test_one_that_was_cleared_up_before_it_was_locked_is_made_again(tmp_path: Path) -> None:
    """As when another process starts in the same moment."""
    beacons = Beacons(tmp_path)
    cleared: list[Path] = []
    rename = os.rename

    def too_late(source: Path, target: Path) -> None:
        if not cleared:
            cleared.append(source)
            os.unlink(source)
        rename(source, target)

    os.rename = too_late  # type: ignore[assignment]
    try:
        beacons.hold("a")
    finally:
        os.rename = rename
    assert cleared
    assert (tmp_path / "a.alive").exists()
    assert Beacons(tmp_path).dead(["a"]) == frozenset(), "it is locked"
    beacons.release_all()
