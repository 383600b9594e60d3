"""The log of one generation: every commit is one line, one write and one sync."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fencepost.errors import StoreCorrupt
from fencepost.model import Json
from fencepost.store.file.folder import write_at
from fencepost.store.file.lines import damaged, line, lines


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        """Where the next line goes: everything before it has been read or written by this process."""
        self._lines = 0
        self._torn = False
        self._synced = 0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise damaged(f"{path} is missing", path) from None

    def read_first(self) -> Json:
        """Its header."""
        size = 1 << 16
        while b"\n" not in (data := os.pread(self._file, size, 0)) and len(data) == size:
            size *= 2
        for content, end in lines(data, self.path, torn=True):
            self.end, self._lines = end, 1
            return content
        raise damaged(f"{self.path}, line 1: its checksum does not fit", self.path)

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def since(self, start: int) -> bytes:
        return os.pread(self._file, self.end - start, start)

    def skip(self, length: int) -> bool:
        """Go on after so much, which this process knows from elsewhere. False: there is not so much."""
        data = os.pread(self._file, max(0, length), self.end)
        self.end += len(data)
        self._lines += data.count(b"\n")
        return len(data) == length

    def is_in_place(self) -> bool:
        """Whether its name still means this file."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        return False

    def read(self, until: int | None = None) -> list[Json]:
        """What others have written since, up to a place where a line ends."""
        size = self.size() if until is None else until
        if size < self.end:
            raise StoreCorrupt(
                f"{self.path} is shorter than what this process has read of it: it was replaced while in use; "
                "stop all replicas, check the folder, start again"
            )
        if size == self.end:
            self._torn = False
            return []
        data = os.pread(self._file, size - self.end, self.end)
        contents, end = [], 0
        for content, end in lines(data, self.path, self._lines + 1, torn=True):  # noqa: B007
            contents.append(content)
        self._torn = end < len(data)
        self._lines += len(contents)
        self.end += end
        return contents

    def append(self, content: Json) -> None:
        if self._torn:
            # The rest of a write that a crash cut off: no caller was answered that it happened.
            os.ftruncate(self._file, self.end)
            self._torn = False
        try:
            end = write_at(self._file, line(content), self.end)
            os.fdatasync(self._file)
        except OSError:
            # Others must not see what the caller is told has failed.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.end)
            raise
        self.end = self._synced = end
        self._lines += 1

    def sync(self) -> None:
        """A process may have died between its write and its sync. Before others are answered from what it
        wrote, that must be as lasting as their own."""
        if self._synced < self.end:
            os.fdatasync(self._file)
            self._synced = self.end

    def close(self) -> None:
        os.close(self._file)
