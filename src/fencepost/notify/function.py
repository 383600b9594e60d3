"""`call(function)`: a channel of one's own."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.notify.sending import checked_name, in_thread, shown

TIMEOUT = 60.0
"""Seconds for one notice."""

Function = Callable[[Notice], Awaitable[None] | None]


def call(function: Function, *, name: str | None = None) -> FunctionChannel:
    """`function(notice)` is called for each notice, in a thread; a coroutine gets an event loop of its own there. What
    it raises means "try again later", `DeliveryFailed(…, permanent=True)` means "never". It may see a notice twice."""
    if not callable(function):
        raise ConfigurationError(f"call needs a function of one notice, not {type(function).__name__}")
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", getattr(function, "__name__", "call")).strip("-") or "call"
    return FunctionChannel(checked_name(name), function)


@dataclass(frozen=True)
class FunctionChannel:
    name: str
    function: Function = field(repr=False)
    causes: Causes = ALERTS
    busy: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Held while a call runs: one that has not come back within its time must not pile up."""

    async def deliver(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            await in_thread(lambda notice=notice: self._called(notice), TIMEOUT)  # type: ignore[misc]

    def _called(self, notice: Notice) -> None:
        if not self.busy.acquire(blocking=False):
            raise DeliveryFailed(f"{self.name} is still at an earlier notice")
        try:
            answer = self.function(notice)
            if inspect.iscoroutine(answer):
                asyncio.run(answer)
        except DeliveryFailed:
            raise
        except Exception as error:
            raise DeliveryFailed(f"{type(error).__name__}: {shown(str(error))}") from error
        finally:
            self.busy.release()
