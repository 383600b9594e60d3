"""What a fire runs. Around each run Django's database connections are treated as around a request: those that are
broken, or older than `CONN_MAX_AGE`, are closed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from asgiref.sync import sync_to_async
from django import db

from fencepost.django.tasks import enqueuing, is_task

PREPARED_BY = "fencepost.django.process"

thread: Callable[[], AbstractContextManager[None]] = nullcontext
"""Entered around what runs in a thread. `testing.py` puts something else here, where there are none."""


def body_of(target: Any) -> Any:
    """What the scheduler runs for `target`. A pipeline, and whatever else is no function, runs as it is."""
    if is_task(target):
        body = _in_thread(enqueuing(target))
    elif inspect.iscoroutinefunction(target):
        body = _on_loop(target)
    elif inspect.isfunction(target):
        body = _in_thread(target)
    else:
        return target
    marks: Any = body
    marks.stands_for = target
    marks.prepared_by = PREPARED_BY
    return body


def _in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        with thread():
            refresh_connections()
            try:
                return function(**arguments)
            finally:
                refresh_connections()

    return run


def _on_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Connections belong to threads: those of a coroutine to the thread that Django runs its blocking calls in."""

    @functools.wraps(function)
    async def run(**arguments: Any) -> Any:
        await sync_to_async(refresh_connections)()
        try:
            return await function(**arguments)
        finally:
            await sync_to_async(refresh_connections)()

    return run


def refresh_connections() -> None:
    """As Django does when a request starts and when it ends."""
    db.reset_queries()
    db.close_old_connections()
