"""Outages of the store, as one replica sees them: when one begins, when it is over, and what of that is logged."""

from __future__ import annotations

import math
from collections.abc import Callable

from fencepost.errors import StoreUnavailable


class Outage:
    is_on = False
    """The store did not answer when it was last asked. Read from other threads, too."""

    def __init__(
        self,
        steady: Callable[[], float],
        heartbeat: float,
        begins: Callable[[str], None],
        ends: Callable[[], None],
    ) -> None:
        """`heartbeat`: seconds. `begins`, `ends`: called once for each outage."""
        self._steady = steady
        self._heartbeat = heartbeat
        self._begins, self._ends = begins, ends
        self._is_logged = False
        self._failing: set[str] = set()
        """Loops whose last step found the store unavailable."""
        self._failed_at = self._answered_at = self._logged_end_at = -math.inf
        self._quiet_needed = 0.0
        """Seconds without a failure after which it is over."""

    def failed(self, error: StoreUnavailable, asked_at: float | None, loop: str | None) -> None:
        """`asked_at`: when the request was sent, if it may have been before the store recovered. Then its failure
        belongs to the outage that is over. `loop`: whose step failed."""
        self._failed_at = self._steady()
        if loop is not None:
            self._failing.add(loop)
        is_old = asked_at is not None and asked_at <= self._answered_at
        if self.is_on or is_old:
            return
        self.is_on = True
        if not self._is_logged:
            self._is_logged = True
            is_relapse = self._failed_at - self._logged_end_at < self._heartbeat
            self._quiet_needed = self._heartbeat if is_relapse else 0.0
            self._begins(str(error))

    def served(self, loop: str) -> None:
        """A step of this loop succeeded."""
        if loop in self._failing:
            self._failing.discard(loop)
            self.log_end()

    def answered(self) -> bool:
        """A heartbeat succeeded; whether the store was lost until now."""
        was_on, self.is_on = self.is_on, False
        if was_on:
            self._answered_at = self._steady()
        return was_on

    def log_end(self) -> None:
        """A store whose disk is full still answers heartbeats, and claims while nothing is due. It has recovered when
        each loop that failed has had a step that succeeded; if that was said too early once, when nothing has failed
        for a heartbeat."""
        now = self._steady()
        is_quiet = not self.is_on and not self._failing and now - self._failed_at >= self._quiet_needed
        if self._is_logged and is_quiet:
            self._is_logged, self._logged_end_at = False, now
            self._ends()
