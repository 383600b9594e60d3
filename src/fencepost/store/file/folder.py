"""The folder on disk: its lock, the names of its files, and writing that lasts."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path

from fencepost.store.turn import Turn

_NAME = re.compile(r"(log|snapshot)-([0-9]{1,15})")


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.fires = path / "fires"
        self.turn = Turn(path / "lock")
        self._drafting: int | None = None

    def make(self) -> None:
        for each in (self.path.parent, self.path, self.fires):
            each.mkdir(mode=0o700, exist_ok=True)

    def begin_draft(self) -> bool:
        """Whether no other process is writing the next generation. The kernel ends it if this process dies."""
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


def namespaces(path: Path) -> list[str]:
    """Those that exist in the folder of a store."""
    if not path.is_dir():
        return []
    return sorted(
        each.name for each in path.iterdir() if each.is_dir() and Folder(each).generation() is not None
    )


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
