"""Checksummed lines of JSON, and what a line that does not check means."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from fencepost.errors import StoreCorrupt
from fencepost.model import Json


def damaged(what: str, path: Path) -> StoreCorrupt:
    """`what` is wrong with this file of a store. It cannot be known which rows it would have changed, so all of the
    store stops; the message says what to type."""
    folder = path.parents[1 if path.suffix == ".jsonl" else 0]
    aside = folder.parent.with_name(f"{folder.parent.name}-{folder.name}.damaged")
    return StoreCorrupt(
        f"{what}; nothing was changed: stop all replicas and restore the folder from a backup, or begin anew, without "
        f"its jobs and its ledger: mv {quote(str(folder))} {quote(str(aside))}"
    )


class ChecksummedLine(NamedTuple):
    content: Json
    end: int
    """Where the next one begins."""


def line(content: Json) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def lines(data: bytes, path: Path, number: int = 1, torn: bool = False) -> Iterator[ChecksummedLine]:
    """The lines of `data`, the first of which has this number in its file. With `torn` the last one may be the
    rest of a write that a crash cut off, and is left out; any other that does not check is damage."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        text = checked(data[start:end]) if end >= 0 else None
        if text is None:
            last = end < 0 or end + 1 == len(data)
            if torn and last:
                return
            raise damaged(f"{path}, line {number}: its checksum does not fit", path)
        yield ChecksummedLine(json.loads(text), end + 1)
        start = end + 1
        number += 1


def checked(raw: bytes) -> bytes | None:
    """What the line says, if it is whole."""
    try:
        expected = int(raw[:8], 16)
    except ValueError:
        return None
    return raw[9:] if raw[8:9] == b" " and zlib.crc32(raw[9:]) == expected else None
