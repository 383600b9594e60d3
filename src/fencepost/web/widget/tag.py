"""The widget's first state for templates: read from the store, without letting a page wait for it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.clock import SystemClock
from fencepost.errors import FencepostError, StoreUnavailable, UsageError
from fencepost.web.seldom import Seldom
from fencepost.web.widget.render import Html, status_html

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")

KEPT_FOR = 1.0
"""Seconds for which all pages share one reading."""
KEPT_WHEN_FAILED = 5.0
PATIENCE = 0.5
"""Seconds that a page waits for the store. Then the browser fills the element."""

ON_A_LOOP = (
    "a template that is rendered on an event loop cannot wait for the store: `status = await tag.read()` in the "
    "handler, and `tag(status)` in the template"
)


@dataclass(frozen=True)
class CachedStatus:
    status: Mapping[str, Any] | None
    until: float


class StatusTag:
    """`tag = StatusTag(scheduler, "stops", time_zone="Europe/Zurich")`, then `tag()` gives the filled element: as a
    global of Jinja2, or in a string. From a coroutine `tag(await tag.read())`. A store that does not answer leaves the
    element empty: no page fails on its account, or waits for more than half a second."""

    def __init__(self, scheduler: Scheduler, job: str | None = None, **attributes: Any) -> None:
        self._scheduler = scheduler
        self._job = job
        self._attributes = {"job": job, **attributes}
        status_html(None, **self._attributes)  # a wrong attribute is an error of the program, not of a page
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._last: CachedStatus | None = None
        self._failing = Seldom(log)

    def __call__(self, status: Mapping[str, Any] | None = None, **attributes: Any) -> Html:
        if status is None:
            status = self._recent() or self._read_blocking()
        return status_html(status or None, **{**self._attributes, **attributes})

    async def read(self) -> Mapping[str, Any]:
        """The status document, at most a second old; empty: it could not be read."""
        found = self._recent()
        if found is None:
            try:
                async with asyncio.timeout(PATIENCE):
                    found = self._keep(await self._scheduler.ask(self._read()))
            except (FencepostError, TimeoutError) as error:
                found = self._failed(error)
        return found

    def _read_blocking(self) -> Mapping[str, Any]:
        _refuse_on_a_loop()
        with self._lock:  # one asks, the others wait for the answer
            found = self._recent()
            if found is not None:
                return found
            try:
                return self._keep(self._scheduler.ask_blocking(self._read(), PATIENCE))
            except (FencepostError, TimeoutError) as error:
                return self._failed(error)

    def _read(self) -> Any:
        from fencepost.pipeline.status import status_of_pipeline  # needs the extra `http`

        return status_of_pipeline(self._scheduler, self._job)

    def _recent(self) -> Mapping[str, Any] | None:
        last = self._last
        return None if last is None or last.until < self._clock.steady() else last.status or {}

    def _keep(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        self._last = CachedStatus(status, self._clock.steady() + KEPT_FOR)
        return status

    def _failed(self, error: FencepostError | TimeoutError) -> Mapping[str, Any]:
        if not isinstance(error, (StoreUnavailable, TimeoutError)):
            self._failing.warning("the status widget is rendered empty: %s", error)
        self._last = CachedStatus(None, self._clock.steady() + KEPT_WHEN_FAILED)
        return {}


def _refuse_on_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(ON_A_LOOP)
