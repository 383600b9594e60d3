"""One process after the other: who writes next to a file that several processes of a machine share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from fencepost.clock import SystemClock
from fencepost.errors import StoreUnavailable

PATIENCE = 5.0
"""Seconds to wait for another process before saying that the store is unavailable."""

_clock = SystemClock()  # waiting for others takes real time, whatever clock a store was given


class Turn:
    """A lock between processes that goes to one that waits as soon as it is free. (Polling, as one must with SQLite's
    own, leaves it unused for half of the time.)

    `flock` and not `lockf`, which any close of the file in this process would undo. The file is never removed by us;
    a process that has locked one that was removed takes the new one, as it would be alone with the old.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: _Queue | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        try:
            queue = self._take()
        except OSError as error:
            raise StoreUnavailable(f"{self.path}: {error.strerror}") from error
        try:
            yield
        finally:
            queue.leave()

    def _take(self) -> _Queue:
        deadline = _clock.steady() + PATIENCE
        while True:
            if self._queue is None:
                self._queue = _Queue(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            if not self._queue.wait(deadline - _clock.steady()):
                raise StoreUnavailable(
                    f"{self.path}: another process has held the lock for {PATIENCE:g} s; is one stopped?"
                )
            if self._is_in_place(self._queue.descriptor):
                return self._queue
            self.let_go()

    def _is_in_place(self, descriptor: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        return False

    def let_go(self) -> None:
        if self._queue is not None:
            self._queue.close()
        self._queue = None

    def let_go_after_fork(self) -> None:
        """The descriptor is the parent's, whose lock it keeps; the thread that stands in line was left behind."""
        if self._queue is not None:
            os.close(self._queue.descriptor)
        self._queue = None


class _Queue:
    """A place in the line for the lock of one open file.

    Waiting in the kernel is what makes the handover quick, and nothing can break it off: a process that was
    stopped with the lock would hold up every other for good. So a thread waits there, which no caller has to wait
    for. A caller that loses patience leaves it standing, and finds it there when it comes again; its turn comes or is
    passed on.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stands = self._granted = self._wanted = self._closed = False
        self._error: OSError | None = None

    def wait(self, seconds: float) -> bool:
        """Whether the turn has come."""
        with self._changed:
            if not self._stands and self._at_once():
                return True
            self._wanted, self._stands = True, True
            if self._thread is None:
                self._thread = threading.Thread(target=self._stand, name="fencepost-turn", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._granted or self._error, max(0.0, seconds))
            self._wanted = False
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            granted, self._granted = self._granted, False
            return granted

    def leave(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """At once, or by the thread as soon as it can."""
        with self._changed:
            self._closed = True
            if self._thread is None:
                os.close(self.descriptor)
            self._changed.notify_all()

    def _at_once(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _stand(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stands or self._closed)
                if self._closed:
                    os.close(self.descriptor)
                    return
            error: OSError | None = None
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            except OSError as caught:
                error = caught
            with self._changed:
                self._stands = False
                self._error = error if self._wanted else None
                self._granted = self._wanted and error is None
                if not self._wanted and error is None:
                    self.leave()
                self._changed.notify_all()
