"""The control thread: claims, heartbeats and settling on an event loop of their own. Reading has another one
(`insight/reader.py`).

A job that blocks the host's event loop, or drains its connection pool, cannot lose its lease: nothing here
waits for user code, and nothing else touches the store.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from fencepost.errors import UsageError

T = TypeVar("T")


def has_greenlets() -> bool:
    """Whether gevent or eventlet has replaced threads: a thread can run one event loop, and theirs are all one."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return bool(
        (gevent is not None and gevent.is_module_patched("threading"))
        or (eventlet is not None and eventlet.is_monkey_patched("thread"))
    )


class ControlThread:
    def __init__(self, name: str = "fencepost-control") -> None:
        if has_greenlets():
            raise UsageError(
                "gevent or eventlet has replaced threads in this process, so it cannot ask the store: use the command "
                "line, the API of `fencepost serve`, or trigger(…, connection=…) with a connection of your own"
            )
        self.loop = asyncio.new_event_loop()
        # A daemon: a host that exits without stopping the scheduler must not hang. What was running then is
        # settled as after a crash.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.close()
