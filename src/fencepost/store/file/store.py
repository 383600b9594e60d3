"""The store itself: requests in batches, one lock and one sync for each."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from dataclasses import dataclass
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
from fencepost.store.file.state import find_recent
from fencepost.store.local import (
    Beacons,
    Hint,
    boot_id,
    check_writable,
    checked_namespace,
    refuse_network_file_system,
)
from fencepost.store.mirror import LocalMirror, P, Step, T
from fencepost.store.rules import presence

KEEP_FIRES = 1000
"""Final fires that stay in memory, where the usual questions find them."""


@dataclass(slots=True)
class Request:
    step: Step[..., Any]
    args: tuple[Any, ...]
    writes: bool
    reply: Any = None
    error: BaseException | None = None
    done: bool = False


NEVER_WRITABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)
"""At the opening: these do not pass by themselves."""


class FileStore(LocalMirror):
    """Replicas on one machine share a folder.

    Each keeps the whole state in memory. Under the lock it takes over what the others have logged, decides by the
    host's clocks, logs what that changed, and answers when it is on disk. Time and proof of death: as SQLite.
    """

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
        super().__init__(Beacons(self._folder.path / "alive"), Hint(self._folder.path / "hint"))
        self._clock = clock or SystemClock()
        self._waiting: deque[Request] = deque()
        self._opened_in = 0
        forks.follow(self)

    def for_reading(self) -> FileStore:
        return self

    async def open(self) -> None:
        await self._in_thread(self._open)

    async def close(self) -> None:
        await self._in_thread(self._close)
        self._end_thread()

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        recent, archive = await self._read(find_recent, query)
        if not archive.days:
            return tuple(recent)
        return tuple(await asyncio.to_thread(archive.complete, query, recent))

    # --- one batch after the other ----------------------------------------------------------------------

    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._ask(Request(step, args, writes=True))
        return reply

    async def _read(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._ask(Request(step, args, writes=False))
        return reply

    async def _ask(self, request: Request) -> Any:
        self._waiting.append(request)
        await self._in_thread(self._turn, request)
        if request.error is not None:
            raise request.error
        return request.reply

    def _turn(self, request: Request) -> None:
        """Serve everything that gathered while the last batch was written, this one included."""
        if request.done:
            return
        batch = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        self._serve(batch)
        for each in batch:
            each.done = True

    def _serve(self, batch: list[Request]) -> None:
        try:
            self._open()
            while not self._decided(batch):
                pass
        except (OSError, FencepostError) as error:
            for request in batch:
                request.error = self._told(error)
        except Exception as error:
            # A step broke off half way. The others in this batch have nothing to do with it.
            for request in batch:
                request.error = error
                if len(batch) > 1:
                    request.error = None
                    self._serve([request])

    def _decided(self, batch: list[Request]) -> bool:
        """False: so much has happened that the state must be loaded again."""
        writes = any(request.writes for request in batch)
        self._journal.load()
        with self._folder.turn.taken():
            if not self._journal.catch_up():
                return False
            notify = self._decide(batch, writes)
        if notify:
            self._hint.give()
        return True

    def _decide(self, batch: list[Request], writes: bool) -> bool:
        """Whether other replicas must be notified."""
        state = self._journal.state
        state.notify = False
        try:
            if writes:
                state.mend_lease(moment_of(self._clock))
            for request in batch:
                # The time is read under the lock: steps follow each other in the order of their moments.
                at = moment_of(self._clock)
                request.reply = request.step(state, at, *request.args)
        except BaseException:
            if state.changes:
                self._journal.forget()
            raise
        if writes:
            self._journal.commit([request.step.__name__ for request in batch if request.writes], at.wall)
        return state.notify

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, FencepostError):
            return error
        told = StoreUnavailable(f"{self._folder.path}: {error}")
        told.__cause__ = error
        return told

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
            raise self._told(error) from error
        self._opened_in = os.getpid()

    def _prepared(self) -> bool:
        self._journal.load()
        with self._folder.turn.taken():
            if not self._journal.catch_up():
                return False
            self._journal.state.fires.archive.check()
            self._journal.tidy()
            self._notice_reboot()
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
        self._waiting.clear()
        self._journal.end()
        self._folder.turn.let_go_after_fork()
        self._opened_in = 0
