"""The store itself: requests in batches, one lock and one sync for each."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import (
    ConfigurationError,
    FencepostError,
    NothingStored,
    StoreUnavailable,
    StoreUnusable,
)
from fencepost.model import FireRecord
from fencepost.store import forks
from fencepost.store.base import FireQuery
from fencepost.store.file.folder import Folder, namespaces
from fencepost.store.file.journal import SNAPSHOT_BYTES, Journal
from fencepost.store.file.preflight import contents, preflight
from fencepost.store.file.state import find_recent
from fencepost.store.formats import Contents
from fencepost.store.local import (
    EVIDENCE_EVERY,
    EVIDENCE_EVERY_WATCHED,
    Hint,
    LocalBeacons,
    LocalProof,
    boot_id,
    check_writable,
    checked_namespace,
    refuse_network_file_system,
)
from fencepost.store.mirror import Mirror, P, Step, T
from fencepost.store.preflight import Preflight
from fencepost.store.rules import presence
from fencepost.store.threads import QueuedStep, StepQueue, WorkerThread

KEEP_FIRES = 1000
"""Final fires that stay in memory, where the usual questions find them."""


NEVER_WRITABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)
"""At the opening: these do not pass by themselves."""


class FileStore(Mirror):
    """Replicas on one machine share a folder.

    Each keeps the whole state in memory. Under the lock it takes over what the others have logged, decides by the
    host's clocks, logs what that changed, and answers when it is on disk. Time and proof of death: as SQLite.
    """

    may_lose_writes = False

    def __init__(
        self,
        path: str | Path,
        namespace: str = "default",
        clock: Clock | None = None,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        keep_fires: int = KEEP_FIRES,
    ) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ConfigurationError(f"{self.path} is a file; the file store needs a folder of its own")
        self._folder = Folder(self.path / checked_namespace(namespace))
        self._journal = Journal(self._folder, snapshot_bytes, keep_fires, self.unreadable)
        self._beacons = LocalBeacons(self._folder.path / "alive")
        self._hint = Hint(self._folder.path / "hint", self._folder.path / "alive")
        self._thread = WorkerThread()
        self._proof = LocalProof(self._beacons, self._thread)
        self._queue = StepQueue(self._thread, self._serve)
        self._clock = clock or SystemClock()
        self._opened_in = 0
        forks.follow(self)

    def for_reading(self) -> FileStore:
        return self

    async def preflight(self, name: str) -> Preflight:
        return await asyncio.to_thread(preflight, self.path, self._folder.path.name)

    async def contents(self) -> Contents:
        return await asyncio.to_thread(contents, self.path, self._folder.path.name)

    async def open(self) -> None:
        await self._thread.run(self._open)

    async def close(self) -> None:
        await self._thread.run(self._close)
        self._thread.end()
        self._hint.close()

    @property
    def descriptors(self) -> Sequence[int]:  # type: ignore[override]
        return self._beacons.descriptors

    @property
    def evidence_every(self) -> float:  # type: ignore[override]
        return EVIDENCE_EVERY_WATCHED if self._hint.is_watched else EVIDENCE_EVERY

    async def wait(self, seconds: float) -> bool:
        return await self._hint.wait(seconds)

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        recent, archive = await self._read(find_recent, query)
        if not archive.days:
            return tuple(recent)
        return tuple(await asyncio.to_thread(archive.complete, query, recent))

    # --- one batch after the other ----------------------------------------------------------------------

    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=True))
        return reply

    async def _read(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._queue.ask(QueuedStep(step, args, kwargs, writes=False))
        return reply

    def _serve(self, batch: list[QueuedStep]) -> list[Any]:
        try:
            self._open()
            replies = None
            while replies is None:
                replies = self._decided(batch)
            return replies
        except OSError as error:
            raise self._wrapped(error) from error

    def _decided(self, batch: list[QueuedStep]) -> list[Any] | None:
        """None: so much has happened that the state must be loaded again."""
        writes = any(request.writes for request in batch)
        self._journal.load()
        with self._folder.turn.taken():
            if not self._journal.catch_up():
                return None
            replies, notify = self._decide(batch, writes)
        if notify:
            self._hint.give()
        return replies

    def _decide(self, batch: list[QueuedStep], writes: bool) -> tuple[list[Any], bool]:
        """The replies, and whether other replicas must be notified."""
        state = self._journal.state
        state.notify = False
        replies = []
        try:
            if writes:
                state.mend_lease(moment_of(self._clock))
            for request in batch:
                # The time is read under the lock: steps follow each other in the order of their moments.
                at = moment_of(self._clock)
                replies.append(request.take(state, at, *request.args, **request.kwargs))
        except BaseException:
            if state.changes:
                self._journal.forget()
            raise
        if writes:
            self._journal.commit([request.take.__name__ for request in batch if request.writes], at.wall)
        return replies, state.notify

    def _wrapped(self, error: Exception) -> Exception:
        if isinstance(error, FencepostError):
            return error
        wrapped = StoreUnavailable(f"{self._folder.path}: {error}")
        wrapped.__cause__ = error
        return wrapped

    # --- opening and closing ----------------------------------------------------------------------------

    def _open(self) -> None:
        if self._opened_in == os.getpid():
            return
        if not self.creates and self._folder.path.name not in (found := namespaces(self.path)):
            raise NothingStored(f"file://{self.path.absolute()}", self._folder.path.name, found)
        if self.creates:
            check_writable(self.path, self._folder.path, self._folder.fires, self._folder.turn.path)
        try:
            refuse_network_file_system(self.path.parent if not self.path.exists() else self.path)
            self._folder.make()
            with self._folder.turn.taken():
                self._journal.create()
            while not self._prepared():
                pass
        except OSError as error:
            if error.errno in NEVER_WRITABLE:
                raise StoreUnusable(
                    f"cannot write {error.filename or self.path}: {error.strerror}"
                ) from error
            raise self._wrapped(error) from error
        self._opened_in = os.getpid()

    def _prepared(self) -> bool:
        self._journal.load()
        with self._folder.turn.taken():
            if not self._journal.catch_up():
                return False
            self._journal.format.check(str(self._folder.path), converts=self.creates)
            self._journal.state.fires.archive.check()
            self._journal.tidy()
            self._notice_reboot()
            self._journal.convert()
        return True

    def _notice_reboot(self) -> None:
        """Leases are counted from the machine's start: after a new one they mean nothing, and all are dead."""
        boot, state = boot_id(), self._journal.state
        if boot is None or boot == state.boot:
            return
        at = moment_of(self._clock)
        if state.boot is not None:
            presence.reboot(state, at)
        state.mark_boot(boot)
        self._journal.commit(["reboot"], at.wall)

    def _close(self) -> None:
        self._beacons.release_all()
        self._journal.end()
        self._folder.turn.let_go()
        self._opened_in = 0

    def after_fork(self) -> None:
        """The child shares its parent's locks: it must neither use nor keep them."""
        self._queue.clear()
        self._journal.end()
        self._folder.turn.let_go_after_fork()
        self._opened_in = 0
