"""Beacons: what a process that died while it lit its own leaves behind, and who clears that up."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.store.inotify import FolderWatch
from fencepost.store.local import ECHOES, Hint, LocalBeacons


def test_what_a_crash_left_half_made_is_cleared_up(tmp_path: Path) -> None:
    (tmp_path / "crashed.new").touch()
    beacons = LocalBeacons(tmp_path)
    beacons.hold("a")
    assert [path.name for path in tmp_path.iterdir()] == ["a.alive"]
    beacons.release_all()


def test_what_another_is_just_making_is_left_alone(tmp_path: Path) -> None:
    fresh = tmp_path / "other.new"
    with fresh.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        beacons = LocalBeacons(tmp_path)
        beacons.hold("a")
        assert fresh.exists()
    beacons.release_all()


def test_one_that_was_cleared_up_before_it_was_locked_is_made_again(tmp_path: Path) -> None:
    """As when another process starts in the same moment."""
    beacons = LocalBeacons(tmp_path)
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
    assert LocalBeacons(tmp_path).dead(["a"]) == frozenset(), "it is locked"
    beacons.release_all()


# Hints, as the kernel reports them

HOLD = "import sys, time; from pathlib import Path; from fencepost.store.local import LocalBeacons; "
HOLD += "LocalBeacons(Path(sys.argv[1])).hold('other'); print('held', flush=True); time.sleep(600)"


async def watched(hint: Hint) -> asyncio.Task[bool]:
    """A wait that the kernel ends."""
    if not hint.is_watched:
        assert await hint.wait(600), "what ended before it was watched"
    waiting = asyncio.create_task(hint.wait(600))
    await until_watched(hint)
    assert not waiting.done()
    return waiting


async def until_watched(hint: Hint) -> None:
    while not hint.is_watched:
        await asyncio.sleep(0.01)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "beacons").mkdir()
    return tmp_path / "hint", tmp_path / "beacons"


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
async def test_a_hint_ends_a_wait_that_looks_at_nothing(folders: tuple[Path, Path]) -> None:
    hint = Hint(*folders)
    for _ in range(3):  # the first one makes the file
        waiting = await watched(hint)
        (folders[0].parent / "something else").touch()
        Hint(*folders).give()
        assert await asyncio.wait_for(waiting, 30)
    while await hint.wait(0.01):  # one may be reported twice
        pass
    hint.close()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
async def test_the_end_of_a_beacon_is_a_hint_and_then_it_is_free(folders: tuple[Path, Path]) -> None:
    hint, beacons = Hint(*folders), LocalBeacons(folders[1])
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folders[1])], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert beacons.dead(["other"]) == frozenset()
        waiting = await watched(hint)
        other.send_signal(signal.SIGKILL)
        assert await asyncio.wait_for(waiting, 30)
        hints = 1
        while not beacons.dead(["other"]):  # on a busy machine its lock is free a moment later
            assert await hint.wait(30)
            hints += 1
        assert hints <= 1 + ECHOES
    hint.close()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
async def test_a_beacon_that_ended_before_it_was_watched_is_a_hint(folders: tuple[Path, Path]) -> None:
    """As when a replica dies while another, which has just started, still makes the folder to be watched."""
    folders[1].rmdir()
    hint = Hint(*folders)
    waiting = asyncio.create_task(hint.wait(600))
    await asyncio.sleep(0)
    assert not hint.is_watched
    folders[1].mkdir()
    (
        folders[1] / "other.alive"
    ).touch()  # made and closed: the kernel reports neither to a watch that comes later
    assert await asyncio.wait_for(waiting, 30)
    assert hint.is_watched
    hint.close()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
async def test_the_end_of_a_beacon_is_hinted_at_again_because_its_lock_may_be_free_later(
    folders: tuple[Path, Path],
) -> None:
    hint = Hint(*folders)
    (folders[1] / "other.alive").touch()
    waiting = await watched(hint)
    with (folders[1] / "other.alive").open("a"):
        pass  # what the kernel reports of a process that ends
    assert await asyncio.wait_for(waiting, 30)
    again = 0
    while await hint.wait(0.01):
        again += 1
    assert again == ECHOES
    hint.close()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
async def test_a_folder_that_is_removed_and_made_again_is_watched_again(folders: tuple[Path, Path]) -> None:
    hint = Hint(*folders)
    waiting = await watched(hint)
    folders[1].rmdir()
    assert await asyncio.wait_for(waiting, 30)
    waiting = asyncio.create_task(hint.wait(600))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    folders[1].mkdir()
    await until_watched(hint)
    hint.give()
    assert await asyncio.wait_for(waiting, 30)
    hint.close()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
async def test_the_end_of_a_beacon_is_not_passed_over_because_of_a_hint(folders: tuple[Path, Path]) -> None:
    hint = Hint(*folders)
    (folders[1] / "other.alive").touch()
    waiting = await watched(hint)
    hint.give()
    assert await asyncio.wait_for(waiting, 30)
    while await hint.wait(0.01):  # one may be reported twice
        pass
    hint.give()
    with (folders[1] / "other.alive").open("a"):
        pass
    assert await hint.wait(30), "the hint"
    assert [await hint.wait(0.01) for _ in range(ECHOES)] == [True] * ECHOES, "the end of the beacon"
    hint.close()


async def test_without_the_kernel_the_file_is_looked_at(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderWatch, "begin", lambda: None)
    hint = Hint(*folders)
    waiting = asyncio.create_task(hint.wait(600))
    await asyncio.sleep(0)
    hint.give()
    assert await asyncio.wait_for(waiting, 30)
    assert not hint.is_watched
