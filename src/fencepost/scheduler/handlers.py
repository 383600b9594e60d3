"""`@scheduler.on(…)`: functions of the application that are called with events."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.runs.events import OTHER_EVENTS, RUN_EVENTS, Event
from fencepost.runs.recurring import RecurringErrors
from fencepost.settings import did_you_mean

log = logging.getLogger("fencepost")

Handler = Callable[[Event], Any]
KINDS = RUN_EVENTS + OTHER_EVENTS


class Handlers:
    """One per scheduler. They are called on the host's event loop, and coroutines are awaited there."""

    def __init__(self, on_host: Callable[[Callable[[], None]], None]) -> None:
        """`on_host`: calls a function on the host's event loop."""
        self._on_host = on_host
        self._handlers: list[tuple[tuple[str, ...], Handler]] = []
        self._errors = RecurringErrors(log)

    def add(self, kinds: tuple[str, ...], handler: Handler) -> None:
        self._handlers.append((kinds, handler))

    def publish(self, event: Event) -> None:
        """From any thread."""
        if self._handlers:
            self._on_host(partial(self._call, event))

    def _call(self, event: Event) -> None:
        for kinds, handler in self._handlers:
            if kinds and event.kind not in kinds:
                continue
            try:
                result = handler(event)
            except Exception as error:
                self._failed(handler, error)
                continue
            if inspect.iscoroutine(result):
                asyncio.ensure_future(result).add_done_callback(partial(self._ended, handler))

    def _ended(self, handler: Handler, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(handler, error)

    def _failed(self, handler: Handler, error: BaseException) -> None:
        self._errors.log(f"the handler {getattr(handler, '__qualname__', handler)} failed", error)


def checked_kinds(kinds: tuple[Any, ...]) -> tuple[str, ...]:
    for kind in kinds:
        if not isinstance(kind, str):
            raise ConfigurationError('name the events: @scheduler.on("failed", "lost"), or @scheduler.on()')
        if kind not in KINDS:
            raise ConfigurationError(f"there is no event {kind!r}{did_you_mean(kind, KINDS)}")
    return kinds
