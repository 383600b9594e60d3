"""A generation: a snapshot, and the log of what came after it."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fencepost.model import FireRecord, Json
from fencepost.store.codec import from_json, to_json
from fencepost.store.file.archive import Archive, Day
from fencepost.store.file.folder import Folder, create, sync_folder
from fencepost.store.file.lines import damaged, line, lines
from fencepost.store.file.state import Change
from fencepost.store.formats import format_of

FORMAT = 2
IN_WORDS = {
    1: "write a new snapshot: job records have fields that 0.1.0 does not know, and its replicas are refused"
}
"""By the format that is found: what brings it to the next."""

ROWS_PER_LINE = 200


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a snapshot, and of its log."""

    format: int
    store: str
    """Which store it is: drawn when it was made."""
    generation: int
    follows: int = 0
    """How much of the log before it is in the snapshot. What came later is at the beginning of its own log."""
    pruned_before: datetime | None = None
    days: dict[str, Day] = field(default_factory=dict)
    """Files of final fires."""


class Draft:
    """The next generation: what it holds is fixed, the rest can be done without the lock. Whatever is on disk
    before the snapshot gets its name counts for nothing."""

    def __init__(
        self,
        folder: Folder,
        header: Header,
        archive: Archive,
        rows: Iterable[Change],
        moving: Sequence[FireRecord] = (),
    ) -> None:
        self.header = header
        self.archive = archive
        self.moving = moving
        self.size = 0
        self._folder = folder
        self._rows = rows
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def write_aside(self) -> None:
        self._thread = threading.Thread(target=self.write, name="fencepost-snapshot")
        self._thread.start()

    @property
    def is_being_written(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def abandon(self) -> None:
        """No other process may begin while it is being written."""
        if self._thread is not None:
            self._thread.join()

    def write(self) -> None:
        try:
            self.archive = self.archive.with_moved(self.moving)
            self.header = replace(self.header, days=dict(self.archive.days))
            chunks = itertools.chain([self._first()], _in_lines(self._rows))
            self.size = create(self._folder.draft(self.header.generation), chunks)
        except OSError as error:
            self._error = error

    def publish(self, logged_since: bytes) -> None:
        """Under the lock: from now on this is the generation."""
        if self._error is not None:
            raise self._error
        generation = self.header.generation
        create(self._folder.log(generation), [self._first(), logged_since])
        sync_folder(self._folder.path)
        os.rename(self._folder.draft(generation), self._folder.snapshot(generation))
        sync_folder(self._folder.path)

    def _first(self) -> bytes:
        return line(to_json(self.header))


def _in_lines(rows: Iterable[Change]) -> Iterator[bytes]:
    rest = iter(rows)
    while chunk := list(itertools.islice(rest, ROWS_PER_LINE)):
        yield line(chunk)
    yield line("end")


def read_snapshot(data: bytes, path: Path) -> tuple[Header, Iterator[Change]]:
    found = [content for content, _ in lines(data, path)]
    if len(found) < 2 or found.pop() != "end":
        raise damaged(f"{path} has no end", path)
    first, *rows = found
    return header_of(first, path), itertools.chain.from_iterable(rows)


def header_of(content: Json, path: Path) -> Header:
    found: Any = content.get("format") if isinstance(content, dict) else None
    if not isinstance(found, int):
        raise damaged(f"{path} does not begin with a header", path)
    format_of(found, FORMAT, IN_WORDS).check(str(path), converts=True)
    header: Header = from_json(Header, content)
    return header
