"""gunicorn: with `--preload` its master imports the application and forks workers that serve it; it takes no part.

gunicorn offers no hook that an application could reach. Its frames on the stack say which process this is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ARBITER = "gunicorn.arbiter"


def is_master() -> bool:
    """Whether gunicorn's master is importing the application."""
    calls = list(_calls())
    return bool(calls) and "spawn_worker" not in (call.f_code.co_name for call in calls)


def worker() -> Any | None:
    """gunicorn's object for the worker that this process is, or is about to become; while it boots."""
    for call in _calls():
        if call.f_code.co_name == "spawn_worker":
            return call.f_locals.get("worker")
    return None


def before_run(worker: Any, start: Callable[[], None]) -> None:
    """Call this when the worker has booted, as the user that it shall run as, and is about to serve."""
    run: Callable[[], None] = worker.run

    def start_and_run() -> None:
        start()
        run()

    worker.run = start_and_run


def _calls() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1) if ARBITER in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == ARBITER:
            yield frame
        frame = frame.f_back
