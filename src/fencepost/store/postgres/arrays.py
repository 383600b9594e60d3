"""Lists as array parameters in PostgreSQL's binary form: a fraction of the cost of adapting each element."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from psycopg.adapt import Dumper
from psycopg.pq import Format

_TEXT, _TEXTS, _BIGINT, _BIGINTS = 25, 1009, 20, 1016  # the system's own type numbers never change
_HEAD = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)


class Texts(list[str | None]):
    """text[]"""


class Bigints(list[int | None]):
    """bigint[]"""


class TextsDumper(Dumper):
    oid = _TEXTS
    format = Format.BINARY

    def dump(self, obj: Texts) -> bytes:
        parts = [_head(obj, _TEXT)]
        for text in obj:
            if text is None:
                parts.append(_NULL)
            else:
                # An error's text may hold what the server does not take.
                content = text.encode("utf-8", "replace").replace(b"\0", b"?")
                parts += (_LENGTH.pack(len(content)), content)
        return b"".join(parts)


class BigintsDumper(Dumper):
    oid = _BIGINTS
    format = Format.BINARY

    def dump(self, obj: Bigints) -> bytes:
        if None in obj:
            each = (_NULL if number is None else struct.pack("!iq", 8, number) for number in obj)
            return _head(obj, _BIGINT) + b"".join(each)
        words: list[Any] = [8] * (2 * len(obj))
        words[1::2] = obj
        return _head(obj, _BIGINT) + struct.pack("!" + "iq" * len(obj), *words)


def _head(values: list[Any], element: int) -> bytes:
    if not values:
        return struct.pack("!iiI", 0, 0, element)
    return _HEAD.pack(1, None in values, element, len(values), 1)


def columns(rows: Iterable[tuple[Any, ...]], kinds: str) -> tuple[Texts | Bigints, ...]:
    """Rows as one array per column; `kinds` has a letter for each: t for text, b for bigint."""
    turned = list(zip(*rows, strict=True)) or [()] * len(kinds)
    return tuple(
        Texts(values) if kind == "t" else Bigints(values) for kind, values in zip(kinds, turned, strict=True)
    )
