"""Threads that do not keep the process from ending: a job or a phase may be stuck in one for ever."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  it registers its own end when it is imported: before ours
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from fencepost.store import forks

Work = Callable[[], None]

before_exit: Callable[[Work], Any] = getattr(threading, "_register_atexit", atexit.register)
"""By the time of `atexit` all thread pools are shut down, those of jobs and of stores among them. This is how they
get there in time themselves; the last to register is the first to be called."""


class DaemonThreads(Executor):
    """A pool of up to `most` threads, started as they are needed."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self.after_fork()
        forks.follow(self)

    def after_fork(self) -> None:
        """No thread came along, and a lock may have been held."""
        self._outstanding = 0
        """Work not yet done: waiting, or in a thread."""
        self._started = 0
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        self.put(partial(_answer, answer, partial(function, *args, **keywords)))
        return answer

    def put(self, work: Work) -> None:
        """Bodies that go on although their runs have been settled."""
        with self._lock:
            self._work.put(work)
            self._outstanding += 1
            if self._started < min(self._outstanding, self._most):
                self._started += 1
                name = f"{self._name}-{self._started}"
                threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                contextvars.copy_context().run(work)
            finally:
                with self._lock:
                    self._outstanding -= 1


def _answer(answer: Future[Any], work: Callable[[], Any]) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # given up while it waited for a thread
    try:
        answer.set_result(work())
    except StopIteration as error:  # a future cannot carry it: its awaiter would wait for ever
        answer.set_exception(RuntimeError(f"raised {error!r}"))
    except BaseException as error:
        answer.set_exception(error)
