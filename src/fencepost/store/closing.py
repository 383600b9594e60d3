"""A connection that cannot be made ready is not left open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


@contextmanager
def closed_on_error(connection: Closable) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise
