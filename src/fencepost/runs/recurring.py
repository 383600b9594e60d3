"""Errors that come back: the traceback once per cause, then only how often.

A loop that fails at once and is tried again would otherwise fill a disk with one and the same traceback.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.clock import SystemClock

MOST_CAUSES = 1_000
AGAIN_AFTER = 60.0
"""Seconds after which a cause that still recurs is mentioned again; and at its 10th, 100th, 1000th … time."""


@dataclass(slots=True)
class _Seen:
    count: int
    logged_at: float


Cause = tuple[str, type[BaseException], str]
"""What failed, with what, and where it was raised."""


class RecurringErrors:
    def __init__(self, log: logging.Logger, steady: Callable[[], float] | None = None) -> None:
        self._log = log
        self._steady = steady or SystemClock().steady
        self._seen: dict[Cause, _Seen] = {}

    def log(self, what: str, error: BaseException, detail: str = "", level: int = logging.ERROR) -> None:
        """`what` failed with `error`. `detail` is logged as well, and makes no other cause."""
        cause, now = (what, type(error), _raised_at(error)), self._steady()
        message = f"{what}: {detail}" if detail else what
        seen = self._seen.get(cause)
        if seen is None:
            if len(self._seen) >= MOST_CAUSES:
                self._seen.clear()
            self._seen[cause] = _Seen(1, now)
            self._log.log(level, "%s", message, exc_info=error)
            return
        seen.count += 1
        if _is_power_of_ten(seen.count) or now - seen.logged_at >= AGAIN_AFTER:
            seen.logged_at = now
            self._log.log(level, "%s, %d times so far: %s", message, seen.count, _line(error))

    def clear(self, what: str) -> None:
        """It works again: should it fail once more, the traceback is logged again, but not within a minute."""
        now = self._steady()
        for cause, seen in list(self._seen.items()):
            if cause[0] == what and now - seen.logged_at >= AGAIN_AFTER:
                del self._seen[cause]


def _raised_at(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[0].filename}:{frames[0].lineno}" if frames else ""


def _is_power_of_ten(number: int) -> bool:
    return number >= 10 and set(str(number)[1:]) == {"0"} and str(number)[0] == "1"


def _line(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:
        return type(error).__name__
