"""One emit point. Logs, metrics, callbacks and live views all subscribe to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.model import FireRecord
from fencepost.runs.recurring import RecurringErrors

if TYPE_CHECKING:
    from fencepost.runs.failures import Failure
    from fencepost.runs.tracing import Traceable

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
    "leader.failover",
    "leader.lost",
    "leader.resigned",
    "replica.joined",
    "replica.draining",
    "replica.left",
    "replica.expired",
    "store.degraded",
    "store.recovered",
    "store.lost_data",
    "loop.degraded",
    "loop.recovered",
    "job.refused",
    "job.conflict",
    "job.moved",
    "job.removed",
    "row.unreadable",
    "row.readable",
    "notice.delivered",
    "notice.failed",
    "notice.set_aside",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt ended: what its replica knows of it beside the fire's record."""

    seconds: float | None
    """How long the body took; None: it did not start."""
    failure: Failure | None = None
    attempt: int = 1
    """Without attempts that a crash cut short."""
    attempts: int = 1
    """How many its job allows."""
    retry_in: float | None = None
    """Seconds until the next attempt."""
    settled_after: float = 0.0
    """Seconds from the end of the body until its outcome was written."""


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    replica: str
    """The replica that emitted it."""
    fire: FireRecord | None = None
    detail: str = ""
    ending: Ending | None = None
    """Of an attempt that ended on this replica."""
    count: int = 1
    """Fires that this is about. A row of skipped or missed ones may stand for more, which earlier events have
    counted."""
    queued: float = 0.0
    """Of a start: seconds that the fire waited for the run before it to end."""
    run: Traceable | None = None
    """Of a start: the run, whose body begins after this."""

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
        self._errors = RecurringErrors(log)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:
                # A broken listener must not break the loop that emitted the event.
                self._errors.log(f"a listener failed on {event.kind}", error)


_LEVELS = {
    "failed": logging.ERROR,
    "lost": logging.ERROR,
    "missed": logging.WARNING,
    "fenced": logging.WARNING,
    "retrying": logging.WARNING,
    "leader.lost": logging.WARNING,
    "replica.expired": logging.WARNING,
    "store.degraded": logging.ERROR,
    "loop.degraded": logging.ERROR,
    "job.refused": logging.WARNING,
    "job.conflict": logging.WARNING,
    "row.unreadable": logging.ERROR,
    "notice.failed": logging.WARNING,
    "notice.set_aside": logging.ERROR,
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
    failure = event.ending.failure if event.ending else None
    # With the exception itself, for error trackers that read log records.
    log.log(
        level,
        "%s",
        _run_line(event, fire),
        exc_info=failure.error if failure else None,
        extra={"fencepost_event": event},
    )


def _run_line(event: Event, fire: FireRecord) -> str:
    """`failed report@… token 7 after 0.21 s, attempt 5 of 5: ValueError: row 7 is bad`."""
    ending, line = event.ending, f"{event.kind} {fire.key}"
    if event.count > 1:
        line += f" and {event.count - 1} more"
    if fire.token:
        line += f" token {fire.token}"
    if ending is not None and ending.seconds is not None:
        line += f" after {duration(ending.seconds)}"
    if ending is not None and ending.failure is not None:
        return f"{line}{_attempts(ending)}: {ending.failure.line}"
    why = event.detail or fire.why
    return f"{line} ({why})" if why else line


def _attempts(ending: Ending) -> str:
    if ending.retry_in is not None:
        return (
            f" (failed, attempt {ending.attempt} of {ending.attempts}, again in {duration(ending.retry_in)})"
        )
    return f", attempt {ending.attempt} of {ending.attempts}" if ending.attempts > 1 else ""


def duration(seconds: float) -> str:
    """For people: `0.042 s`, `4.2 s`, `2 min 5 s`, `3 h 20 min`."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.3f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
