"""What the stores of one machine share: proof of death, wake-up hints, the boot, and where not to be."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from fencepost.errors import ConfigurationError, StoreUnusable
from fencepost.model import checked_id
from fencepost.store import forks
from fencepost.store.base import Evidence
from fencepost.store.inotify import ATTRIBUTES, CLOSED_AFTER_WRITING, CREATED, MOVED_IN, FolderWatch
from fencepost.store.mirror import ProofOfLife
from fencepost.store.preflight import START, Preflight, problem
from fencepost.store.threads import WorkerThread

EVIDENCE_EVERY = 0.2
"""Seconds between two polls of the beacons."""

EVIDENCE_EVERY_WATCHED = 5.0
"""The same where the kernel reports the end of a beacon. A report that is lost is reported as such, so this is only a
precaution."""

POLL_EVERY = 0.1
"""Seconds between two polls of the hint file."""

LOCKS_FREE_AFTER = 0.002
"""Seconds after the kernel has reported the end of a beacon until it can usually be locked."""

ECHOES, ECHO_EVERY = 5, 0.1
"""On a busy machine a process that is ending keeps its locks for longer: so often, and so many seconds apart, the end
of a beacon is hinted at again."""

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse")


class LocalBeacons:
    """Proof of death: a replica holds an flock on a file of its own for as long as it lives. The kernel lets
    go of it however the process ends, and never while it is merely stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        forks.follow(self)

    def hold(self, replica: str) -> None:
        if replica in self._held:
            if self._still_mine(replica):
                return
            # Declared dead although it lived: the file is gone, and without one no replica would see it die.
            os.close(self._held.pop(replica))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clear_up()
        while replica not in self._held:
            self._light(replica)

    def _light(self, replica: str) -> None:
        """Locked before it gets its name: a file that can be found and is not locked means death."""
        fresh = self._folder / f"{replica}.new"
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            os.rename(fresh, self._path(replica))
        except FileNotFoundError:
            os.close(descriptor)  # cleared up by another before it was locked: once more
        else:
            self._held[replica] = descriptor

    def _clear_up(self) -> None:
        """Remove what others have left behind who died before theirs had its name."""
        for path in self._folder.glob("*.new"):
            if _is_free(path):
                path.unlink(missing_ok=True)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(self._held.values())

    def release(self, replica: str) -> None:
        """Without its file there is neither life nor death to be seen: it has left."""
        descriptor = self._held.pop(replica, None)
        if descriptor is not None:
            self.forget([replica])
            os.close(descriptor)

    def release_all(self) -> None:
        for replica in list(self._held):
            self.release(replica)

    def dead(self, replicas: Iterable[str]) -> frozenset[str]:
        return frozenset(
            replica for replica in replicas if replica not in self._held and self._is_dead(replica)
        )

    def forget(self, replicas: Iterable[str]) -> None:
        for replica in replicas:
            self._path(replica).unlink(missing_ok=True)

    def _still_mine(self, replica: str) -> bool:
        try:
            return os.path.samestat(os.fstat(self._held[replica]), os.stat(self._path(replica)))
        except FileNotFoundError:
            return False

    def _is_dead(self, replica: str) -> bool:
        return _is_free(self._path(replica))

    def _path(self, replica: str) -> Path:
        return self._folder / f"{checked_id(replica, 'replica')}.alive"

    def after_fork(self) -> None:
        """A forked child is not the replica: it must not keep the replica looking alive."""
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._held.clear()


def _is_free(path: Path) -> bool:
    """Whether it is there, and no process holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


class LocalProof(ProofOfLife):
    """By beacons: all replicas are on one machine."""

    def __init__(self, beacons: LocalBeacons, thread: WorkerThread) -> None:
        self._beacons = beacons
        self._thread = thread

    async def begin(self, replica: str) -> None:
        await self._thread.run(self._beacons.hold, replica)

    def end(self, replica: str) -> None:
        self._beacons.release(replica)

    def forget(self, replicas: Iterable[str]) -> None:
        self._beacons.forget(replicas)

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return Evidence(dead=await self._thread.run(self._beacons.dead, replicas))


class Hint:
    """A file whose time of change says that there may be something to do. Where the kernel reports changes no
    process polls it; then the end of a beacon is a hint as well."""

    def __init__(self, path: Path, beacons: Path | None = None) -> None:
        self._path = path
        self._beacons = beacons
        self._seen = self._changed_at()
        self._watch: FolderWatch | None = None
        self._cannot_watch = False
        self._in_use = False
        self._echoes = 0
        self.is_watched = False
        """Whether the kernel reports changes."""
        forks.follow(self)

    def give(self) -> None:
        with contextlib.suppress(OSError):  # only a hint: polling finds it too
            self._path.touch(mode=0o600)

    async def wait(self, seconds: float) -> bool:
        if self._echoes:
            self._echoes -= 1
            await asyncio.sleep(min(seconds, ECHO_EVERY))
            return True
        for polls_left in range(max(1, round(seconds / POLL_EVERY)), 0, -1):
            if self._has_changed():
                if self._watch is not None and not self._in_use:
                    self._concerns_us(list(self._watch.changes()))  # a beacon may have ended, too
                return True
            was_watched = self.is_watched
            if (watch := self._begin_watching()) is not None:
                if not was_watched:
                    return True  # a beacon that ended before this is not reported
                return self._has_changed() or await self._reported(watch, polls_left * POLL_EVERY)
            await asyncio.sleep(POLL_EVERY)
        return False

    def close(self) -> None:
        self.is_watched = False
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    after_fork = close

    def _has_changed(self) -> bool:
        before, self._seen = self._seen, self._changed_at()
        return before != self._seen

    def _begin_watching(self) -> FolderWatch | None:
        """None: not here, not yet, or another is at it."""
        if self._cannot_watch or self._in_use:
            return None
        if self._watch is None:
            self._watch = FolderWatch.begin()
            self._cannot_watch = self._watch is None
        if self._watch is None:
            return None
        hints = self._watch.add(self._path.parent, ATTRIBUTES | MOVED_IN | CREATED)
        ends = self._beacons is None or self._watch.add(self._beacons, CLOSED_AFTER_WRITING)
        self.is_watched = hints and ends
        return self._watch if self.is_watched else None

    async def _reported(self, watch: FolderWatch, seconds: float) -> bool:
        loop, self._in_use = asyncio.get_running_loop(), True
        readable = asyncio.Event()
        try:
            loop.add_reader(watch.descriptor, readable.set)
        except NotImplementedError:  # an event loop of a test, which owns the time
            self._cannot_watch, self._in_use = True, False
            self.close()
            return False
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await readable.wait()
                    readable.clear()
                    if self._concerns_us(list(watch.changes())):
                        # The end of a process is reported a moment before its locks are free.
                        await asyncio.sleep(LOCKS_FREE_AFTER)
                        self._has_changed()
                        return True
        except TimeoutError:
            return False
        finally:
            self._in_use = False
            loop.remove_reader(watch.descriptor)

    def _concerns_us(self, changes: Sequence[str]) -> bool:
        if "" in changes:
            self.is_watched = False
        has_ended = any(name.endswith(".alive") for name in changes)
        if has_ended:
            self._echoes = ECHOES
        return has_ended or "" in changes or self._path.name in changes

    def _changed_at(self) -> int:
        try:
            return os.stat(self._path).st_mtime_ns
        except OSError:  # not there yet, or not to be reached: only a hint
            return 0


def checked_namespace(namespace: str) -> str:
    """Becomes the name of a folder, and must not lead out of it."""
    if not checked_id(namespace, "namespace").strip("."):
        raise ConfigurationError(f"namespace {namespace!r} cannot be the name of a folder; use another")
    return namespace


def create_privately(path: Path) -> None:
    """An empty file that only its owner can read, unless there is one. SQLite gives its journals the same mode.

    To close a database file drops the locks that this process holds on it. That can only be harmful if another
    connection opens the new file before it is closed here; all of ours come through here first, one by one.
    """
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


_creating = threading.Lock()


def boot_id() -> str | None:
    """Which boot of this machine it is; None where that cannot be known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def check_writable(path: Path, *beside: Path) -> None:
    """Raise `StoreUnusable` with the reason if `path`, or a file kept beside it, cannot be written by this process."""
    try:
        reason = _why_not_writable(path, beside)
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise StoreUnusable(f"cannot write {path}: {reason}")


def _why_not_writable(path: Path, beside: Iterable[Path]) -> str | None:
    folder = path.parent
    if not folder.exists():
        return f"there is no folder {folder}; create it first"
    if not folder.is_dir():
        return f"{folder} is not a folder"
    for each in (path, folder, *beside):
        if not each.exists():
            continue
        if os.statvfs(each).f_flag & os.ST_RDONLY:
            return f"{each} is on a file system that is mounted read-only"
        if not os.access(each, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            return f"{each} may not be written by user {os.geteuid()}; change its owner or its mode"
    return None


def refuse_network_file_system(folder: Path) -> None:
    """Locks and atomic renames hold only on a file system of this machine."""
    kind = _file_system(folder.resolve())
    if kind and kind.startswith(NETWORK_FILE_SYSTEMS):
        raise ConfigurationError(
            f"{folder} is on a network file system ({kind}), where file locks cannot be trusted; "
            "use a local disk, or PostgreSQL or Redis for several machines"
        )


def _file_system(folder: Path) -> str | None:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    best, kind = "", None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        inside = folder.is_relative_to(point)
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


KEPT = "a local disk: what was answered outlives a crash, each fire is claimed exactly once; one machine only"
"""The promise of a store on one machine."""


def unless_rebooted(boot: str | None, found: Preflight) -> Preflight:
    here = boot_id()
    if here is None or boot == here:
        return found
    what = (
        "this machine has started anew, and no replica since: nothing runs, and what ran then is not settled"
    )
    return Preflight((*found.findings, problem(what, START)), may_open=False)
