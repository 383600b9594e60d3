"""What the bodies write down themselves: a second witness beside the store.

One line per event, one write each with O_APPEND: lines of several processes never mix, and outlive a `kill -9`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fencepost.clock import SystemClock
from fencepost.fire import Fire

PATH = "DEMO_DIARY"
PARENT = "DEMO_PARENT"


@dataclass(frozen=True, slots=True)
class Entry:
    what: str
    """start, end or raised"""
    key: str
    attempt: int
    pid: int
    wall: float


@contextmanager
def noted(fire: Fire) -> Iterator[None]:
    """Around a job's body."""
    _write("start", fire)
    try:
        yield
    except BaseException:
        _write("raised", fire)
        raise
    _write("end", fire)


def read(path: Path) -> list[Entry]:
    """In the order written. A line that is not whole is no entry."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) == 5:
            entries.append(Entry(words[0], words[1], int(words[2]), int(words[3]), float(words[4])))
    return entries


def end_with_parent() -> None:
    """A demo that was itself killed must leave nobody behind. Outside of the demo this does nothing."""
    parent = int(os.environ.get(PARENT, "0"))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    if parent:
        threading.Thread(target=watch, daemon=True).start()


def _write(what: str, fire: Fire) -> None:
    if (file := _file()) is not None:
        wall = SystemClock().wall().timestamp()
        os.write(file, f"{what} {fire.key} {fire.attempt} {os.getpid()} {wall:.6f}\n".encode())


@cache
def _file() -> int | None:
    path = os.environ.get(PATH)
    if not path:
        return None
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
