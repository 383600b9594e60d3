"""The only place that reads a clock.

Two clocks matter. The *wall* clock says which fires are due. The *steady* clock measures how long
something lasted: it counts on through suspend (`CLOCK_BOOTTIME`) and no clock step moves it.
A replica never trusts its own wall clock for a decision; the store's clock judges what is due and
what has expired. Everything else gets a `Clock` handed in, so that tests and the simulator own time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol


class Moment(NamedTuple):
    """The store's time at which one operation takes effect.

    `wall` judges what is due. `steady` judges what has expired; where the store has no steady
    clock (PostgreSQL, Redis) it is the wall clock in seconds, and expiry therefore needs a second witness.
    """

    wall: datetime
    steady: float


class Clock(Protocol):
    def wall(self) -> datetime: ...

    def steady(self) -> float: ...


class SystemClock:
    """The host's clocks."""

    def wall(self) -> datetime:
        return datetime.now(UTC)

    def steady(self) -> float:
        return _steady()


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# macOS and Windows have no CLOCK_BOOTTIME; their monotonic clocks are the closest there is.
_steady = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


def thread_seconds() -> float:
    """CPU time of the calling thread: what work costs, however busy the machine is with other things."""
    return time.thread_time()


def moment_of(clock: Clock) -> Moment:
    return Moment(clock.wall(), clock.steady())


def seconds(duration: timedelta) -> float:
    return duration.total_seconds()
