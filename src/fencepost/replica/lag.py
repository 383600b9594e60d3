"""Warns when an event loop is blocked, and names the jobs that may block it."""

from __future__ import annotations

import logging

from fencepost.replica.service import Service

log = logging.getLogger("fencepost")


class LagWatch(Service):
    """Checks twice per heartbeat whether it was woken in time, and whether the host's event loop has answered."""

    _expected: float | None = None
    _warned = False

    async def step(self) -> float | None:
        replica, now = self.replica, self.replica.clock.steady()
        every = replica.settings.heartbeat.total_seconds() / 2
        silent = replica.host.silent_for(now)
        if silent is None:
            return None
        if self._expected is not None and now - self._expected > every:
            log.warning(
                "%s: heartbeats and claims were held up for %.1f s, perhaps by a job that does not give way to other "
                'threads (executor="process" would keep it apart). Running: %s',
                replica.id,
                now - self._expected,
                self._running(),
            )
        if silent <= every:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning(
                "%s: the event loop has not answered for %.1f s; no coroutine runs until it does. Running there: %s",
                replica.id,
                silent,
                self._running(on_loop=True),
            )
        self._expected = now + every
        return every

    def _running(self, on_loop: bool = False) -> str:
        runs = self.replica.runs.values()
        names = sorted({run.fire.job_id for run in runs if run.task.is_async or not on_loop})
        return ", ".join(names[:20]) or "nothing"
