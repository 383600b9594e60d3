"""Changes in folders, as the Linux kernel reports them: the little of inotify that is needed here.

Only a way to look less often. Where there is none (another system, or the limit of the user is reached) one polls.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

ATTRIBUTES, CLOSED_AFTER_WRITING, MOVED_IN, CREATED = 0x4, 0x8, 0x80, 0x100
OVERFLOWED, ENDED = 0x4000, 0x8000
_ONLY_A_FOLDER = 0x1000000
_EVENT = struct.Struct("iIII")


class FolderWatch:
    def __init__(self, descriptor: int, add_watch: ctypes._NamedFuncPointer) -> None:
        self.descriptor = descriptor
        self._add_watch = add_watch
        self._watched: dict[Path, int] = {}

    @classmethod
    def begin(cls) -> FolderWatch | None:
        """None: there is no such thing here."""
        try:
            libc = ctypes.CDLL(None)
            descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            return cls(descriptor, libc.inotify_add_watch) if descriptor >= 0 else None
        except (OSError, AttributeError):
            return None

    def add(self, folder: Path, what: int) -> bool:
        """Whether it is watched from now on, or was."""
        if folder not in self._watched:
            number = self._add_watch(self.descriptor, os.fsencode(folder), what | _ONLY_A_FOLDER)
            if number < 0:
                return False
            self._watched[folder] = number
        return True

    def changes(self) -> Iterator[str]:
        """Names of what has changed, since the last time; an empty one: it is not known what."""
        while True:
            try:
                data = os.read(self.descriptor, 65536)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                number, what, _, length = _EVENT.unpack_from(data, place)
                name = data[place + _EVENT.size :][:length].rstrip(b"\0")
                place += _EVENT.size + length
                if what & ENDED:  # the folder was removed: it is watched again when there is one
                    self._watched = {each: known for each, known in self._watched.items() if known != number}
                yield "" if what & (OVERFLOWED | ENDED) else os.fsdecode(name)

    def close(self) -> None:
        os.close(self.descriptor)
