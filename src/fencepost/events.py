"""One emit point. Logs, metrics, callbacks and live views all subscribe to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.model import FireRecord

log = logging.getLogger("fencepost")

RUN_EVENTS = (
    "started",
    "succeeded",
    "failed",
    "retrying",
    "skipped",
    "missed",
    "lost",
    "cancelled",
    "given_back",
    "fenced",
)
OTHER_EVENTS = (
    "leader.elected",
    "leader.lost",
    "leader.resigned",
    "replica.joined",
    "replica.draining",
    "replica.left",
    "replica.expired",
    "store.degraded",
    "store.recovered",
    "store.lost_data",
    "job.refused",
)


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    replica: str
    """The replica that tells it."""
    fire: FireRecord | None = None
    detail: str = ""

    @property
    def job_id(self) -> str | None:
        return self.fire.job_id if self.fire else None

    @property
    def key(self) -> str | None:
        return self.fire.key if self.fire else None


Listener = Callable[[Event], None]


class Events:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                # A broken listener must not break the loop that told it.
                log.exception("a listener failed on %s", event.kind)


_LEVELS = {
    "failed": logging.ERROR,
    "lost": logging.ERROR,
    "missed": logging.WARNING,
    "fenced": logging.WARNING,
    "retrying": logging.WARNING,
    "leader.lost": logging.WARNING,
    "replica.expired": logging.WARNING,
    "store.degraded": logging.ERROR,
    "job.refused": logging.WARNING,
    "started": logging.DEBUG,
    "given_back": logging.INFO,
}


def log_event(event: Event) -> None:
    level = _LEVELS.get(event.kind, logging.INFO)
    if not log.isEnabledFor(level):
        return
    fire = event.fire
    if fire is None:
        log.log(level, "%s %s %s", event.kind, event.replica, event.detail, extra={"fencepost_event": event})
        return
    parts = [f"{event.kind} {fire.key}"]
    if fire.count > 1:
        parts.append(f"and {fire.count - 1} more")
    if fire.token:
        parts.append(f"token {fire.token}")
    if fire.why or event.detail:
        parts.append(f"({event.detail or fire.why})")
    log.log(level, " ".join(parts), extra={"fencepost_event": event})
