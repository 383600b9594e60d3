"""Taking part in a synchronous host: Flask, Django under WSGI, a script. Nothing there runs an event loop, so there is
one of ours, in a thread: coroutine jobs run on it, functions in threads as ever.

Forks: no thread follows into a child. What the parent had started, the child starts for itself when it uses the
scheduler for the first time. A child that never does, such as a worker of `multiprocessing`, takes no part. gunicorn's
workers do so as they begin to serve (`prefork.py`). Where threads are greenlets, a process beside them takes part
(`companion.py`).
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING

from fencepost.errors import UsageError
from fencepost.replica.control import ControlThread, has_greenlets
from fencepost.runs.threads import before_exit
from fencepost.scheduler import prefork
from fencepost.scheduler.companion import Companion

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")


class Background:
    """One per scheduler. From any thread."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._thread: ControlThread | None = None
        self._companion: Companion | None = None
        self._wanted = False
        self._is_master = False
        """Whether only the workers of this process take part, not the process itself."""
        self._forked = False
        """Whether this process is a fork that has yet to start what its parent had started."""

    def start(self) -> None:
        if prefork.is_master():
            self._wanted = self._is_master = True
            return
        with self._lock:
            if self._thread is None and self._companion is None:
                self._start()

    def stop(self) -> None:
        if self._thread is not None and self._thread.is_current:
            raise UsageError("a job on this event loop cannot stop it: call stop_in_background() elsewhere")
        with self._lock:
            self._wanted = self._forked = False
            thread, self._thread = self._thread, None
            companion, self._companion = self._companion, None
            if thread is not None:
                _end(self._scheduler, thread)
            if companion is not None:
                companion.stop()

    def start_if_forked(self) -> None:
        """With every use. The operation that is asked for does not depend on it: a failure is logged."""
        if self._forked:
            with self._lock:
                self._start_after_fork()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._companion is not None:
            self._companion.forget()
        self._thread = self._companion = None
        self._forked = self._wanted
        if self._is_master and (worker := prefork.worker()) is not None:
            self._is_master = False
            prefork.before_run(worker, self.start_if_forked)

    def _start_after_fork(self) -> None:
        if not self._forked:  # another thread starts it
            return
        self._forked = False  # before the start, which is itself a use
        try:
            self._start()
        except Exception:
            log.exception("this forked process takes no part; start_in_background() tries again")

    def _start(self) -> None:
        before, self._wanted = self._wanted, True  # also for a child that is forked meanwhile
        try:
            if has_greenlets():
                self._companion = Companion(self._scheduler.settings.drain_timeout.total_seconds())
            else:
                self._thread = _begin(self._scheduler)
        except BaseException:
            self._wanted = before
            raise
        self._forked = False
        _started.add(self)


def _begin(scheduler: Scheduler) -> ControlThread:
    thread = ControlThread("fencepost-host")
    try:
        thread.submit(scheduler.start()).result()
    except BaseException:
        thread.stop()
        raise
    return thread


def _end(scheduler: Scheduler, thread: ControlThread) -> None:
    try:
        thread.submit(scheduler.stop()).result()
    finally:
        thread.stop()


_started: weakref.WeakSet[Background] = weakref.WeakSet()


@before_exit
def _at_exit() -> None:
    """Stops schedulers that the host has not stopped: runs end within the drain limit, leadership is handed over."""
    for background in list(_started):
        try:
            background.stop()
        except Exception:
            log.exception("the scheduler could not leave in good order; its presence expires by itself")
