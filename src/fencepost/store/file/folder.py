"""The folder on disk: its lock, the names of its files, and writing that lasts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fencepost.clock import SystemClock
from fencepost.errors import StoreUnavailable

PATIENCE = 5.0
"""Seconds to wait for another process before saying that the store is unavailable."""

_NAME = re.compile(r"(log|snapshot)-([0-9]{1,15})")


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.fires = path / "fires"
        self._lock = path / "lock"
        self._held: int | None = None
        self._drafting: int | None = None
        self._chance = random.Random()

    def make(self) -> None:
        for each in (self.path.parent, self.path, self.fires):
            each.mkdir(mode=0o700, exist_ok=True)

    # --- the lock -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, shared: bool = False) -> Iterator[None]:
        """Nobody else writes meanwhile; unless `shared`, nobody else reads either.

        `flock` and not `lockf`, which any close of the file in this process would undo. The file is never
        removed: whoever locked a removed one would be alone with it.
        """
        descriptor = self._locked(fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _locked(self, kind: int) -> int:
        clock = SystemClock()
        deadline = clock.steady() + PATIENCE
        while True:
            if self._held is None:
                self._held = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._held, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.steady() > deadline:
                    raise StoreUnavailable(
                        f"{self.path}: another process has held the lock for {PATIENCE:g} s; is one stopped?"
                    ) from None
                time.sleep(self._chance.uniform(0.0002, 0.003))
                continue
            if self._is_in_place(self._held):
                return self._held
            self.let_go()

    def _is_in_place(self, descriptor: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self._lock))
        return False

    def let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
        self._held = None

    def begin_draft(self) -> bool:
        """Whether nobody else is writing the next generation. The kernel ends it if this process dies."""
        if self._drafting is not None:
            return False
        descriptor = os.open(self.path / "drafting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._drafting = descriptor
        return True

    def end_draft(self) -> None:
        if self._drafting is not None:
            os.close(self._drafting)
        self._drafting = None

    # --- generations ----------------------------------------------------------------------------------

    def log(self, generation: int) -> Path:
        return self.path / f"log-{generation}"

    def snapshot(self, generation: int) -> Path:
        return self.path / f"snapshot-{generation}"

    def draft(self, generation: int) -> Path:
        return self.path / f"snapshot-{generation}.new"

    def generation(self) -> int | None:
        """The newest snapshot names it."""
        return max(self._generations("snapshot"), default=None)

    def logs(self) -> list[int]:
        return self._generations("log")

    def _generations(self, kind: str) -> list[int]:
        found = (_NAME.fullmatch(name) for name in os.listdir(self.path))
        return [int(each[2]) for each in found if each and each[1] == kind]

    def tidy(self, generation: int, fires: Iterable[str]) -> None:
        """Remove what a snapshot has made superfluous, or a crash has left behind."""
        for name in os.listdir(self.path):
            found = _NAME.fullmatch(name)
            if name.endswith(".new") or (found and int(found[2]) != generation):
                (self.path / name).unlink(missing_ok=True)
        for name in set(os.listdir(self.fires)) - set(fires):
            (self.fires / name).unlink(missing_ok=True)


# --- writing that lasts ---------------------------------------------------------------------------------


def create(path: Path, chunks: Iterable[bytes]) -> int:
    """A file with this content, on disk when this returns; its name is not (`sync_folder`). Its size."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        size = 0
        for chunk in chunks:
            size = write_at(descriptor, chunk, size)
        os.fsync(descriptor)
        return size
    finally:
        os.close(descriptor)


def write_at(descriptor: int, data: bytes, offset: int) -> int:
    """Where it ends. The system may write less than it was given."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
    return offset


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
