"""A log line that outsiders can cause, written at most once in a while: they must not be able to fill a disk."""

from __future__ import annotations

import logging

from fencepost.clock import Clock, SystemClock

EVERY = 60.0


class Seldom:
    """Logs at most once in `every` seconds, and then says how many lines it left out."""

    def __init__(self, log: logging.Logger, every: float = EVERY, clock: Clock | None = None) -> None:
        self._log = log
        self._every = every
        self._clock = clock or SystemClock()
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, message: str, *values: object) -> None:
        now = self._clock.steady()
        if now < self._next:
            self._left_out += 1
            return
        more = f" ({self._left_out} more like this since the last message)" if self._left_out else ""
        self._next, self._left_out = now + self._every, 0
        self._log.warning(message + more, *values)


class Repeats(logging.Filter):
    """Lets a warning with the same text pass once in `every` seconds. For loggers that are not ours."""

    def __init__(self, every: float = EVERY, clock: Clock | None = None) -> None:
        super().__init__()
        self._every = every
        self._clock = clock or SystemClock()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or not isinstance(record.msg, str):
            return True
        now = self._clock.steady()
        if now < self._next.get(record.msg, float("-inf")):
            return False
        if len(self._next) > 100:
            self._next.clear()
        self._next[record.msg] = now + self._every
        return True
