"""The file store on disk: what a crash, damage, a full disk or a newer version leaves, and what becomes of it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from fencepost.errors import ConfigurationError, StoreCorrupt, StoreUnavailable
from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.store import turn
from fencepost.store.base import FireQuery, PutJob, Settle
from fencepost.store.file import FileStore, journal
from fencepost.store.file import store as store_module
from fencepost.store.file.generation import FORMAT, Draft
from fencepost.store.file.lines import line
from fencepost.store.rules import history
from fencepost.store.unreadable import RowUnreadable
from fencepost.store.urls import store_from_url
from fencepost.testing.conformance import HandClock, Harness, job_of
from tests.protocol.comparison import compare

Files = dict[str, bytes]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


class FileHarness(Harness):
    store: FileStore


async def opened(path: Path, clock: HandClock, **options) -> FileHarness:
    path.mkdir(exist_ok=True)
    store = FileStore(path / "store", clock=clock, **options)
    await store.open()
    return cast(FileHarness, FileHarness.with_clock(store, clock))


def dump_of(store: FileStore) -> list:
    """All rows, those moved out included."""
    state = store._journal.state
    archive = state.fires.archive
    moved = archive.complete(FireQuery(limit=10_000), [])
    return [*state.dump(), sorted(fire.key for fire in moved), archive.pruned_before]


async def dump_at(path: Path, clock: HandClock, **options) -> list:
    """As a process sees it that starts now."""
    harness = await opened(path, clock, **options)
    found = dump_of(harness.store)
    await harness.store.close()
    return found


def files_in(path: Path) -> Files:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def log_in(path: Path) -> Path:
    (found,) = (path / "store" / "default").glob("log-*")
    return found


def snapshot_in(path: Path) -> Path:
    (found,) = (path / "store" / "default").glob("snapshot-*")
    return found


async def some_days(harness: Harness) -> None:
    """A bit of everything."""
    await harness.elect("a")
    await harness.define("daily", every(hours=6), overlap="skip")
    await harness.define("manual", overlap="allow(5)")
    for day in range(3):
        for n in range(4):
            await harness.trigger("manual", f"m{day}-{n}", args={"n": n})
        await pass_hours(harness, 6)
        for fire in await harness.claims("a", room=100):
            await harness.settle(fire, State.FAILED if fire.args == {"n": 2} else State.SUCCEEDED)
        await pass_hours(harness, 13)
    await harness.pause("daily")
    await harness.trigger("manual", "last")


async def pass_hours(harness: Harness, hours: int) -> None:
    await harness.plan()
    await harness.advance(hours * 3600)
    await harness.plan()


# --- reading what was written -------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_bytes", [0, 2000, 1_000_000])
async def test_another_process_arrives_at_the_same_state(tmp_path, clock, snapshot_bytes) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=snapshot_bytes, keep_fires=2)
    await some_days(harness)
    script = (
        "import asyncio, json, sys\n"
        "from fencepost.store.file import FileStore\n"
        "store = FileStore(sys.argv[1])\n"
        "asyncio.run(store.open())\n"
        "print(json.dumps(list(store._journal.state.dump())))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == list(harness.store._journal.state.dump())
    assert dump_of(harness.store) == await dump_at(tmp_path, clock)


class TakingTurns:
    """Several processes' worth of stores on one folder, each asked in turn."""

    def __init__(self, stores: list[FileStore]) -> None:
        self.stores = stores
        self.turn = 0

    def __getattr__(self, name: str):
        self.turn += 1
        # Some are asked often and follow each step; the last one has much to catch up with.
        return getattr(self.stores[-1 if self.turn % 17 == 0 else self.turn % (len(self.stores) - 1)], name)


@pytest.mark.parametrize("seed", range(6))
async def test_stores_that_follow_each_other_agree_with_the_model(tmp_path, clock, seed) -> None:
    stores = [FileStore(tmp_path, clock=clock, snapshot_bytes=seed * 700, keep_fires=3) for _ in range(4)]
    for store in stores:
        await store.open()
    harness = Harness.with_clock(TakingTurns(stores), clock)  # type: ignore[arg-type]
    await compare(harness, seed, steps=200)
    for store in stores:
        await store.roster()
    assert all(dump_of(store) == dump_of(stores[0]) for store in stores)
    for store in stores:
        await store.close()


async def test_what_changes_nothing_writes_nothing(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock)
    await harness.elect("a")
    await harness.define("job")
    before = log_in(tmp_path).stat().st_size
    await harness.define("job")
    await harness.ask("nobody")
    await harness.heartbeat("nobody")
    await harness.store.leave("nobody")
    await harness.trigger("nothing")
    assert await harness.store.sweep("a", 99, []) is None
    assert log_in(tmp_path).stat().st_size == before


async def test_what_comes_together_is_one_write(tmp_path, clock, monkeypatch) -> None:
    harness = await opened(tmp_path, clock)
    await harness.define("job")
    before = len(log_in(tmp_path).read_bytes().splitlines())
    adding = [harness.trigger("job", f"m{n}") for n in range(40)]
    assert {added.outcome for added in await asyncio.gather(*adding)} == {"added"}
    assert len(log_in(tmp_path).read_bytes().splitlines()) - before <= 3
    assert len(await harness.fires("job")) == 40


async def test_one_that_breaks_off_half_way_takes_no_other_with_it(tmp_path, clock, monkeypatch) -> None:
    harness = await opened(tmp_path, clock)
    await harness.define("job")

    def broken(state, at, job_id):
        state.fires.put(next(iter(state.fires.rows.values())).__class__(job_id, job_id, at.wall))
        raise ZeroDivisionError

    monkeypatch.setattr(history, "history", broken)
    await harness.trigger("job", "first")
    replies = await asyncio.gather(
        harness.trigger("job", "one"),
        harness.store.history("half"),
        harness.trigger("job", "two"),
        return_exceptions=True,
    )
    assert [getattr(each, "outcome", type(each)) for each in replies] == ["added", ZeroDivisionError, "added"]
    assert {fire.key for fire in await harness.fires("job")} == {"job!first", "job!one", "job!two"}
    assert await harness.store.find_fires(FireQuery(key="half")) == ()


# --- crashes ------------------------------------------------------------------------------------------------


async def test_a_tail_torn_at_any_byte_is_cut_off(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock)
    await harness.define("job")
    await harness.trigger("job", "kept")
    before, size = dump_of(harness.store), log_in(tmp_path).stat().st_size
    await harness.trigger("job", "torn")
    whole = log_in(tmp_path).read_bytes()
    after = dump_of(harness.store)
    await harness.store.close()
    assert len(whole) - size > 100
    tails = [whole[size:cut] for cut in range(size, len(whole))]
    tails += [bytes(len(whole) - size), bytes(100) + whole[size + 100 :], b"garbage\n"]
    for tail in tails:
        log_in(tmp_path).write_bytes(whole[:size] + tail)
        torn = await opened(tmp_path, clock)
        assert dump_of(torn.store) == before
        await torn.store.roster()
        assert log_in(tmp_path).read_bytes() == whole[:size] + tail  # who only reads changes nothing
        await torn.trigger("job", "torn")
        assert log_in(tmp_path).read_bytes() == whole
        await torn.store.close()
    assert await dump_at(tmp_path, clock) == after


@pytest.mark.parametrize(("keep_fires", "many_rows"), [(0, 5000), (3, 5000), (0, -1)])
async def test_a_crash_at_any_step_of_a_snapshot_loses_nothing(
    tmp_path, clock, monkeypatch, keep_fires, many_rows
) -> None:
    """Before every call that changes the disk the folder is copied: each copy is what a crash there leaves."""
    monkeypatch.setattr(journal, "MANY_ROWS", many_rows)
    harness = await opened(tmp_path / "live", clock, keep_fires=keep_fires)
    await some_days(harness)
    await harness.store.prune(30 * 3600)
    store = harness.store
    copies: list[Path] = []

    def copied_before(name: str):
        call = getattr(os, name)

        def with_copy(*args, **kwargs):
            copies.append(tmp_path / f"{len(copies)}-{name}")
            shutil.copytree(tmp_path / "live", copies[-1])
            return call(*args, **kwargs)

        return with_copy

    store._journal._snapshot_bytes = 0
    with monkeypatch.context() as patched:
        for name in ("pwrite", "fsync", "fdatasync", "ftruncate", "rename", "unlink"):
            patched.setattr(os, name, copied_before(name))
        await harness.trigger("manual", "during")
        while store._journal._draft:
            store._journal._draft.abandon()
            await harness.trigger("manual", "after")
    shutil.copytree(tmp_path / "live", tmp_path / "end")
    assert store._journal.header.generation == 2
    assert len(copies) > 15
    expected = await everything(harness)
    changes = {"manual!during", "manual!after"}
    seen = set()
    for copy in [*copies, tmp_path / "end"]:
        survivor = await opened(copy, clock, keep_fires=keep_fires, snapshot_bytes=0)
        assert not list(copy.rglob("*.new"))
        found = await everything(survivor)
        seen.add(len(found))
        missing = expected.keys() - found.keys()
        assert missing <= changes, copy.name
        assert {key: expected[key] for key in found} == found, copy.name
        await survivor.trigger("manual", "goes-on")
        await survivor.trigger("manual", "and-on")
        rows = await survivor.store.find_fires(FireQuery(limit=10_000))
        assert len(rows) == len({row.key for row in rows}) == len(found) + 2
        await survivor.store.close()
    assert len(seen) > 1
    await store.close()


async def everything(harness: Harness) -> dict:
    return {fire.key: fire for fire in await harness.store.find_fires(FireQuery(limit=10_000))}


async def test_a_crash_while_it_is_made_leaves_nothing_in_the_way(tmp_path, clock, monkeypatch) -> None:
    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    for where in ("rename", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, where, crash)
            with pytest.raises(KeyboardInterrupt):
                FileStore(tmp_path / "store")._open()
    harness = await opened(tmp_path, clock)
    assert (await harness.define("job")).outcome == "created"


# --- damage -------------------------------------------------------------------------------------------------


async def test_damage_in_the_middle_of_the_log_is_named_and_left_alone(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock)
    await some_days(harness)
    await harness.store.close()
    path = log_in(tmp_path)
    whole = path.read_bytes()
    starts = [0, *(n + 1 for n, byte in enumerate(whole) if byte == 10)]
    for number in range(2, len(starts) - 1, 7):
        at = starts[number - 1] + 20
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        before = files_in(tmp_path)
        with pytest.raises(StoreCorrupt, match=f"{path.name}, line {number}: .* restore the folder") as told:
            await opened(tmp_path, clock)
        assert str(path) in str(told.value)
        assert files_in(tmp_path) == before
    path.write_bytes(whole)
    harness = await opened(tmp_path, clock)
    assert await harness.store.jobs()
    await harness.store.close()
    # What the message says to type, where there is no backup.
    subprocess.run(shlex.split(str(told.value).rpartition(": ")[2]), check=True)
    harness = await opened(tmp_path, clock)
    assert await harness.store.jobs() == ()
    await harness.store.close()


async def test_damage_met_by_a_store_in_use_stops_it_until_mended(tmp_path, clock) -> None:
    one, two = await opened(tmp_path, clock), await opened(tmp_path, clock)
    await one.define("job")
    await two.store.jobs()
    before = log_in(tmp_path).stat().st_size
    await one.trigger("job", "first")
    await one.trigger("job", "second")
    whole = log_in(tmp_path).read_bytes()
    log_in(tmp_path).write_bytes(whole[: before + 20] + b"?" + whole[before + 21 :])
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="log-1, line "):
            await two.trigger("job", "third")
    log_in(tmp_path).write_bytes(whole)
    assert (await two.trigger("job", "third")).outcome == "added"


async def test_a_damaged_snapshot_is_refused_and_left_alone(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=0)
    await some_days(harness)
    await harness.store.close()
    path = snapshot_in(tmp_path)
    whole = path.read_bytes()
    broken = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 61)]
    broken += [whole[:cut] for cut in (0, 1, 300, len(whole) // 2, len(whole) - 1)]
    broken += [whole[: whole.rindex(b"\n", 0, -1) + 1]]
    for content in broken:
        path.write_bytes(content)
        before = files_in(tmp_path)
        with pytest.raises(StoreCorrupt, match=f"{path.name}.*restore the folder from a backup"):
            await opened(tmp_path, clock)
        assert files_in(tmp_path) == before
    path.write_bytes(whole)
    await opened(tmp_path, clock)


@pytest.mark.parametrize("gone", ["log-*", "snapshot-*", "fires/manual-*", "fires/fires-*"])
async def test_a_missing_file_is_noticed(tmp_path, clock, gone) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=0, keep_fires=0)
    await some_days(harness)
    await harness.store.close()
    next((tmp_path / "store" / "default").glob(gone)).unlink()
    with pytest.raises(StoreCorrupt, match="nothing was changed"):
        await opened(tmp_path, clock)


async def test_damage_to_a_daily_file_sets_one_ended_fire_aside(tmp_path, clock) -> None:
    """It is told of, and may be the fire of any key of its job: none of those is added a second time."""
    harness = await opened(tmp_path, clock, snapshot_bytes=0, keep_fires=0)
    await some_days(harness)
    before = await harness.store.find_fires(FireQuery(limit=1000))
    (path, *_) = sorted((tmp_path / "store/default/fires").glob("manual-*"))
    path.write_bytes(path.read_bytes().replace(b"m0-1", b"m0-9", 1))
    found = await harness.store.find_fires(FireQuery(limit=1000))
    assert len(found) == len(before) - 1
    [row] = harness.store.unreadable.rows
    assert "checksum" in row.why
    assert path.name in row.why
    with pytest.raises(RowUnreadable, match="not added again"):
        await harness.trigger(row.job_id or "", "m0-1")


async def test_a_folder_replaced_in_use_is_noticed(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock)
    await harness.define("job")
    shutil.rmtree(tmp_path / "store")
    other = await opened(tmp_path, clock)
    await other.define("other")
    with pytest.raises(StoreCorrupt, match="replaced by another store while in use"):
        await harness.define("job")
    assert [record.id for record in await other.store.jobs()] == ["other"]


async def test_a_folder_removed_in_use_is_not_made_again(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock)
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreUnavailable, match="store/default"):
        await harness.define("job")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("which", ["snapshot", "log"])
async def test_a_newer_format_is_refused(tmp_path, clock, which) -> None:
    harness = await opened(tmp_path, clock)
    await harness.store.close()
    path = snapshot_in(tmp_path) if which == "snapshot" else log_in(tmp_path)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(line({**json.loads(first[9:]), "format": FORMAT + 1, "new": 1}) + b"".join(rest))
    before = files_in(tmp_path)
    with pytest.raises(ConfigurationError, match=f"newer than the {FORMAT} .* upgrade Fencepost"):
        await opened(tmp_path, clock)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("rows", [[["colour", "x", 1]], [["replica", "a", {"colour": "red"}]]])
async def test_what_a_newer_version_logged_is_not_guessed_at(tmp_path, clock, rows) -> None:
    harness = await opened(tmp_path, clock)
    await harness.join("a")
    with log_in(tmp_path).open("ab") as file:
        file.write(line({"at": 0, "do": ["new"], "rows": rows}))
    with pytest.raises(ConfigurationError, match="colour.* upgrade Fencepost"):
        await harness.store.roster()


# --- a disk that fails ----------------------------------------------------------------------------------------

FULL_DISK = """
import asyncio, resource, sys
from fencepost.errors import StoreUnavailable
from fencepost.store.base import FireQuery, NewFire, PutJob
from fencepost.store.file import FileStore
from fencepost.testing.conformance import job_of

async def main():
    store = FileStore(sys.argv[1], snapshot_bytes=int(sys.argv[2]))
    await store.open()
    await store.put_jobs([PutJob(job_of("job"))])
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    added, failed = [], 0
    for n in range(60):
        try:
            await store.add_fire(NewFire(f"job!{n}", "job", {"text": "x" * 400}))
            added.append(f"job!{n}")
        except StoreUnavailable as error:
            failed += "File too large" in str(error)
    found = {fire.key for fire in await store.find_fires(FireQuery(limit=100))}
    assert found == set(added), (found, added)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    await store.add_fire(NewFire("job!after", "job"))
    print(len(added), failed)

asyncio.run(main())
"""


@pytest.mark.parametrize("snapshot_bytes", [1_000_000, 3_000])
async def test_a_full_disk_fails_the_operation_and_loses_nothing(tmp_path, clock, snapshot_bytes) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "store"), str(snapshot_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    added, failed = map(int, done.stdout.split())
    assert added >= 10
    assert added + failed == 60
    assert failed >= 20
    harness = await opened(tmp_path, clock)
    assert len(await harness.fires("job")) == added + 1
    assert ("no snapshot could be written" in done.stderr) == (snapshot_bytes == 3_000)


async def test_a_sync_that_fails_fails_the_operation_for_everybody(tmp_path, clock, monkeypatch) -> None:
    one, two = await opened(tmp_path, clock), await opened(tmp_path, clock)
    await one.define("job")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await one.trigger("job")
    assert await two.fires("job") == await one.fires("job") == []
    assert (await one.trigger("job")).outcome == "added"
    assert len(await two.fires("job")) == 1


async def test_an_answer_from_what_a_dead_process_wrote_waits_until_it_lasts(
    tmp_path, clock, monkeypatch
) -> None:
    one, two = await opened(tmp_path, clock), await opened(tmp_path, clock)
    await one.define("job")
    await two.store.jobs()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        await one.trigger("job")  # and dies before its sync
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    assert (await two.trigger("job")).outcome == "exists"
    assert len(synced) == 1


@pytest.mark.parametrize("call", ["rename", "fsync", "ftruncate"])
async def test_a_snapshot_that_fails_fails_no_operation(tmp_path, clock, monkeypatch, caplog, call) -> None:
    harness = await opened(tmp_path, clock, keep_fires=0)
    await some_days(harness)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    harness.store._journal._snapshot_bytes = 0
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        assert (await harness.trigger("manual", "during")).outcome == "added"
    assert "no snapshot could be written" in caplog.text
    assert (await harness.trigger("manual", "after")).outcome == "added"
    await harness.trigger("manual", "later")
    assert harness.store._journal.header.generation > 1
    assert dump_of(harness.store) == await dump_at(tmp_path, clock)


# --- daily files ------------------------------------------------------------------------------------------------


async def test_final_fires_leave_memory_and_are_found_again(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=0, keep_fires=0)
    await some_days(harness)
    names = sorted(path.name for path in (tmp_path / "store/default/fires").iterdir())
    assert names[0] == "fires-2026-11-15.jsonl"
    assert "manual-2026-11-17.jsonl" in names
    state = harness.store._journal.state
    assert [fire.key for fire in state.fires.rows.values() if fire.state.final and not fire.scheduled] == []
    (failed, *_) = await harness.store.find_fires(FireQuery(states=(State.FAILED,), limit=1))
    assert failed.key == "manual!m2-2"
    assert await harness.store.find_fires(FireQuery(key=failed.key)) == (failed,)
    assert (await harness.trigger("manual", "m2-2")).fire == failed
    assert await harness.store.cancel_fire(failed.key) == failed
    assert await harness.update(Settle(failed.key, failed.token, State.FAILED))  # a repeated request
    assert await harness.store.find_fires(FireQuery(key='x"@2026-11-15')) == ()
    assert await harness.store.find_fires(FireQuery(key="../../x@2026-11-15T")) == ()


async def test_days_that_are_pruned_disappear(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=0, keep_fires=0)
    await some_days(harness)
    folder = tmp_path / "store/default/fires"
    before, rows = {path.name for path in folder.iterdir()}, await everything(harness)
    gone = await harness.store.prune(timedelta(days=1).total_seconds())
    left = await everything(harness)
    assert gone == len(rows) - len(left) > 0
    assert {path.name for path in folder.iterdir()} < before
    assert await harness.store.prune(timedelta(days=1).total_seconds()) == 0
    await harness.store.prune(0)
    assert not any(fire.state.final for fire in (await everything(harness)).values())
    assert list(folder.iterdir()) == []


async def test_a_day_that_was_pruned_can_come_back(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=0, keep_fires=0)
    await harness.join("a")
    await harness.define("job", overlap="allow(5)")
    for name in ("slow", "quick", "third"):
        await harness.trigger("job", name)
    quick, slow, third = await harness.claims("a")
    for fire in (quick, third):
        await harness.settle(fire)
    assert (await harness.trigger("job", "quick")).outcome == "exists"
    await harness.advance(24 * 3600)
    await harness.store.prune(3600)
    assert list((tmp_path / "store/default/fires").iterdir()) == []
    await harness.settle(slow)
    assert len(list((tmp_path / "store/default/fires").iterdir())) == 1
    assert (await harness.trigger("job", slow.key.removeprefix("job!"))).outcome == "exists"
    assert (await harness.trigger("job", "quick")).outcome == "added"


# --- processes and the machine ----------------------------------------------------------------------------------


async def test_after_a_reboot_all_replicas_are_dead(tmp_path, clock, monkeypatch) -> None:
    harness = await opened(tmp_path, clock)
    await harness.elect("a")
    fire = await harness.running()
    await harness.store.close()
    again = await opened(tmp_path, clock)
    assert (await again.fire(fire.key)).state is State.RUNNING
    await again.store.close()
    for boot, state in ((None, State.RUNNING), ("another boot", State.LOST)):
        monkeypatch.setattr(store_module, "boot_id", lambda boot=boot: boot)
        again = await opened(tmp_path, clock)
        assert (await again.fire(fire.key)).state is state
        await again.store.close()
    again = await opened(tmp_path, clock)
    roster = await again.store.roster()
    assert (roster.replicas, roster.leader.holder, roster.leader.term) == ((), None, 1)


async def test_only_the_owner_may_read_it(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock, snapshot_bytes=0, keep_fires=0)
    await some_days(harness)
    modes = {
        (path.is_dir(), stat.S_IMODE(path.stat().st_mode))
        for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    }
    assert modes == {(True, 0o700), (False, 0o600)}


AFTER_A_FORK = """
import asyncio, os, sys, fcntl
from fencepost.store.base import NewFire, PutJob
from fencepost.store.file import FileStore
from fencepost.testing.conformance import job_of

store = FileStore(sys.argv[1])
asyncio.run(store.put_jobs([PutJob(job_of("job"))]))
with store._folder.turn.taken():  # as if another thread were in the middle of something
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        added = asyncio.run(store.add_fire(NewFire("job!child", "job")))
        os._exit(added.outcome != "added")
os.write(go, b"x")
_, status = os.waitpid(child, 0)
print(status, asyncio.run(store.add_fire(NewFire("job!child", "job"))).outcome)
"""


def test_a_fork_gets_a_connection_of_its_own(tmp_path) -> None:
    command = [sys.executable, "-c", AFTER_A_FORK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("0 exists", "")


async def test_a_lock_that_stays_taken_makes_it_unavailable(tmp_path, clock, monkeypatch) -> None:
    monkeypatch.setattr(turn, "PATIENCE", 0.05)
    one, two = await opened(tmp_path, clock), await opened(tmp_path, clock)
    with (
        two.store._folder.turn.taken(),
        pytest.raises(StoreUnavailable, match="held the lock .* stopped"),
    ):
        await one.define("job")
    assert (await one.define("job")).outcome == "created"


async def test_a_lock_file_that_was_replaced_is_not_trusted(tmp_path, clock) -> None:
    one, two = await opened(tmp_path, clock), await opened(tmp_path, clock)
    lock = tmp_path / "store/default/lock"
    lock.unlink()
    await one.define("job")
    with one.store._folder.turn.taken(), pytest.raises(BlockingIOError):
        fcntl.flock(os.open(lock, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert [record.id for record in await two.store.jobs()] == ["job"]
    queue = two.store._folder.turn._queue
    assert queue is not None
    assert os.path.samestat(os.fstat(queue.descriptor), lock.stat())


async def test_a_large_state_is_written_while_others_go_on(tmp_path, clock, monkeypatch) -> None:
    monkeypatch.setattr(journal, "MANY_ROWS", 10)
    one = await opened(tmp_path, clock, keep_fires=2)
    two = await opened(tmp_path, clock)
    await some_days(one)
    one.store._journal._snapshot_bytes = 0
    with monkeypatch.context() as held:
        held.setattr(Draft, "is_being_written", True)  # it takes long
        await one.trigger("manual", "begins")
    draft = one.store._journal._draft
    assert draft is not None
    draft.abandon()
    for n in range(5):
        await two.trigger("manual", f"meanwhile-{n}")
    two.store._journal._snapshot_bytes = 0
    await two.trigger("manual", "cannot-begin-another")
    assert two.store._journal._draft is None
    assert two.store._journal.header.generation == 1
    await two.store.prune(24 * 3600)
    one.store._journal._snapshot_bytes = 10**9
    await one.trigger("manual", "ends")
    assert one.store._journal.header.generation == 2
    await two.store.roster()
    assert two.store._journal.header.generation == 2
    assert dump_of(one.store) == dump_of(two.store) == await dump_at(tmp_path, clock)


# --- names ------------------------------------------------------------------------------------------------------


async def test_namespaces_are_folders_apart(tmp_path, clock) -> None:
    one, two = (FileStore(tmp_path, name, clock) for name in ("one", "two"))
    await one.put_jobs([PutJob(job_of("job"))])
    assert await two.jobs() == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("namespace", ["", ".", "..", "../x", "a/b", "a\0b", "x" * 300])
def test_a_namespace_that_is_no_name_is_refused(tmp_path, namespace) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        FileStore(tmp_path, namespace)


async def test_a_replica_s_name_cannot_leave_the_folder(tmp_path, clock) -> None:
    harness = await opened(tmp_path, clock)
    with pytest.raises(ConfigurationError, match="replica"):
        await harness.join("../../x")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///var/lib/fencepost", "/var/lib/fencepost"),
        ("file:////var/lib/fencepost", "/var/lib/fencepost"),
        ("file:///var/my%20jobs", "/var/my jobs"),
        ("file:jobs/here", "jobs/here"),
    ],
)
def test_urls(url, path) -> None:
    store = store_from_url(url, "ns")
    assert isinstance(store, FileStore)
    assert store.path == Path(path)


@pytest.mark.parametrize("url", ["file://", "file:///", "file://jobs", "file://host/jobs"])
def test_urls_that_name_no_folder(url) -> None:
    with pytest.raises(ConfigurationError, match="three slashes"):
        store_from_url(url)


async def test_where_it_cannot_be(tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="is a file"):
        FileStore(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="create it first"):
        await FileStore(tmp_path / "no" / "folder").open()
