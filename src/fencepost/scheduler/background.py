"""Taking part in a synchronous host: Flask, Django under WSGI, a script. Nothing there runs an event loop, so there is
one of ours, in a thread: coroutine jobs run on it, functions in threads as ever.

Forks: no thread follows into a child. What the parent had started, the child starts for itself when it uses the
scheduler for the first time. A child that never does, such as a worker of `multiprocessing`, takes no part.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING

from fencepost.errors import UsageError
from fencepost.replica.control import ControlThread
from fencepost.runs.threads import before_exit

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")


class Background:
    """One per scheduler. From any thread."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._thread: ControlThread | None = None
        self._wanted = False
        self._forked = False
        """Whether this process is a fork that has yet to start what its parent had started."""

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        if self._thread is not None and self._thread.is_current:
            raise UsageError("a job on this event loop cannot stop it: call stop_in_background() elsewhere")
        with self._lock:
            self._wanted = self._forked = False
            thread, self._thread = self._thread, None
            if thread is not None:
                _end(self._scheduler, thread)

    def start_if_forked(self) -> None:
        """With every use. The operation that is asked for does not depend on it: a failure is logged."""
        if self._forked:
            with self._lock:
                self._start_after_fork()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._thread = None
        self._forked = self._wanted

    def _start_after_fork(self) -> None:
        if not self._forked:  # another thread was faster
            return
        self._forked = False  # before the start, which is itself a use
        try:
            self._start()
        except Exception:
            log.exception("this forked process takes no part; start_in_background() tries again")

    def _start(self) -> None:
        thread = ControlThread("fencepost-host")
        try:
            thread.submit(self._scheduler.start()).result()
        except BaseException:
            thread.stop()
            raise
        self._thread, self._wanted, self._forked = thread, True, False
        _started.add(self)


def _end(scheduler: Scheduler, thread: ControlThread) -> None:
    try:
        thread.submit(scheduler.stop()).result()
    finally:
        thread.stop()


_started: weakref.WeakSet[Background] = weakref.WeakSet()


@before_exit
def _at_exit() -> None:
    """Also where nobody stops the scheduler: runs end within the drain limit, leadership is handed over."""
    for background in list(_started):
        try:
            background.stop()
        except Exception:
            log.exception("the scheduler could not leave in good order; its presence expires by itself")
