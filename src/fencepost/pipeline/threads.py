"""Where phases run: coroutines on the event loop, functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.errors import FencepostError
from fencepost.runs.threads import DaemonThreads


class StillRunning(FencepostError):
    """A thread goes on although its run was ended. The run must not be given back: no other replica may start it."""


async def called(function: Callable[..., Any], run: object) -> Any:
    """A coroutine on this loop, a function in a thread."""
    arguments = [run] if takes_run(function) else []
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    result = await in_thread(lambda: function(*arguments))
    return await result if inspect.isawaitable(result) else result  # an object whose call is a coroutine


def takes_run(function: Callable[..., Any]) -> bool:
    """What a partial has named is no place for the run."""
    given = function.keywords if isinstance(function, partial) else {}
    return any(name not in given for name in inspect.signature(function).parameters)


async def in_thread(work: Callable[[], Any], stop: Callable[[], None] = lambda: None) -> Any:
    """A thread cannot be cancelled; `stop` may ask its work to end. The caller that ends this run waits for its end:
    only then may another replica go on. If that takes too long the caller cancels again (an event loop that is closed
    does), and the run fails."""
    run = contextvars.copy_context().run
    ended = asyncio.get_running_loop().run_in_executor(_THREADS, run, work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        stop()
        ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # no caller is left
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            raise StillRunning("its phase goes on in a thread") from None
        raise


_THREADS = DaemonThreads("fencepost-phase", sys.maxsize)
