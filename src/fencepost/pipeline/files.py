"""Files that are complete or not there: written aside, checked, and put in place by a rename."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from fencepost.pipeline.source import Validators

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, flock


@contextmanager
def written(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file that replaces the one of that name when it is complete:

    with written("data/matches.json", "w") as file: ...
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open(mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        put_in_place(part, path)
    finally:
        part.unlink(missing_ok=True)


def put_in_place(part: Path, path: Path) -> None:
    """Its bytes are on the disk. The rename is, too, when this returns."""
    os.replace(part, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Part:
    """What has arrived of a download so far. It is locked: a run that was fenced out may still be writing to it, and
    then this one takes a file of its own."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.note = path.with_name(f"{path.name}.json")
        self.size = os.fstat(file.fileno()).st_size
        self._file = file
        self._of = self._noted() if self.size else Validators()

    @classmethod
    @contextmanager
    def beside(cls, final: Path) -> Iterator[Part]:
        path = final.with_name(f"{final.name}.part")
        file = _locked(path)
        shared = file is not None
        if file is None:
            path = final.with_name(f"{final.name}.{secrets.token_hex(4)}.part")
            file = path.open("ab+")
        part = cls(path, file)
        try:
            yield part
        finally:
            file.close()
            if not shared:
                part.remove()

    def ask_for_the_rest(self) -> dict[str, str]:
        """From the last byte on if all are there: what has no rest cannot be asked for."""
        condition = self._of.etag or self._of.last_modified
        if not self.size or condition is None or condition.startswith("W/"):
            return {}
        if self._of.length is not None and self.size >= self._of.length:
            self._cut(max(0, self._of.length - 1))
        return {"Range": f"bytes={self.size}-", "If-Range": condition}

    def continues_with(self, found: Validators) -> bool:
        same = (found.etag, found.last_modified) == (self._of.etag, self._of.last_modified)
        return same and len({found.length, self._of.length} - {None}) <= 1

    def restart(self, of: Validators) -> None:
        """From nothing. What it will be a part of is noted first: a part without that is never gone on with."""
        self._cut(0)
        self._of = of
        with written(self.note, "w") as note:
            json.dump(of.to_json(), note)

    def append(self, piece: bytes) -> None:
        self._file.write(piece)
        self.size += len(piece)

    def sha256(self) -> str:
        self._file.flush()
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def move_to(self, final: Path) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        put_in_place(self.path, final)
        self.note.unlink(missing_ok=True)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def _cut(self, size: int) -> None:
        self._file.flush()
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)
        self.size = size

    def _noted(self) -> Validators:
        with suppress(OSError, ValueError, AttributeError):  # unreadable: as if there were none
            return Validators.of(json.loads(self.note.read_text()))
        return Validators()


def _locked(path: Path) -> IO[bytes] | None:
    """The file, locked for this process; None: it is in use. Its last owner may have put it in place after we opened it
    and before we locked it: then we hold the finished file, which must not be touched, and open it again."""
    if sys.platform == "win32":  # ownership cannot be checked there, so each download starts from zero
        return None
    while True:
        file = path.open("ab+")
        try:
            flock(file.fileno(), LOCK_EX | LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        file.close()
