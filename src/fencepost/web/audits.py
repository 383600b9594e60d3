"""Audits that people start from a browser: one at a time, in the background, with its progress; each shared by all who
ask for the same."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

from fencepost.insight.audit import AuditResult, audit
from fencepost.insight.audit.pages import Rest
from fencepost.insight.audit.shapes import report_shape, verdict
from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.times import ago
from fencepost.store.base import Store
from fencepost.web.access import Caller
from fencepost.web.desk import Desk
from fencepost.web.problems import Problem

KEPT_FOR = 30.0
"""Seconds for which a report is shown before the same question starts another audit; at least ten times as long as the
audit took."""
PATIENCE = 2.0
"""Seconds an answer waits for the end; short audits are answered at once."""
RESTS = 4.0
"""After each step it rests so many times as long as the step took: other readers, and fires, go first."""
LONGEST_REST = 1.0


@dataclass
class Running:
    what: Hashable
    task: asyncio.Task[AuditResult]
    begun: float
    doing: str = "starting"
    done: int = 0
    total: int | None = None
    ended: float | None = None

    def advance(self, what: str, done: int, total: int | None) -> None:
        """Called on the reading thread: each value is replaced as a whole."""
        self.doing, self.done, self.total = what, done, total

    def end(self, task: asyncio.Task[AuditResult]) -> None:
        self.ended = task.get_loop().time()
        if not task.cancelled():
            task.exception()  # marks it as retrieved: each request raises it again


class Audits:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._last: Running | None = None

    async def answer(
        self,
        caller: Caller,
        since: str | None,
        until: str | None,
        job: str | None,
        patience: float = PATIENCE,
    ) -> Shape:
        """Starts it, or goes on with the one that runs; the report when there is one."""
        what = (caller.jobs, since, until, job)
        running = self._current(what) or self._start(what, caller, since, until, job)
        await asyncio.wait([running.task], timeout=patience)
        if not running.task.done():
            progress = {"doing": running.doing, "done": running.done, "total": running.total}
            return {"state": "running", "progress": progress, "verdict": None, "report": None}
        report = running.task.result()
        return {
            "state": "done",
            "progress": None,
            "verdict": verdict(report),
            "report": report_shape(report, caller.sight),
        }

    def _current(self, what: Hashable) -> Running | None:
        last, now = self._last, asyncio.get_running_loop().time()
        if last is None:
            return None
        if not last.task.done():
            if last.what == what:
                return last
            raise Problem(
                503, "another audit is running; try again when it has ended", headers={"Retry-After": "5"}
            )
        if last.what != what or last.task.cancelled() or last.task.exception() is not None:
            return None
        ended = last.ended or now
        return last if now - ended < max(KEPT_FOR, 10 * (ended - last.begun)) else None

    def _start(
        self, what: Hashable, caller: Caller, since: str | None, until: str | None, job: str | None
    ) -> Running:
        scheduler = self._desk.scheduler
        sees = caller.sees_only

        async def work(store: Store) -> AuditResult:
            now = (await store.roster()).now
            return await audit(
                store,
                since=ago(since, now, "since") if since else None,
                until=ago(until, now, "until") if until else None,
                job_id=job,
                retention=scheduler.settings.retention,
                progress=running.advance,
                sees=sees,
                rest=_resting(),
            )

        loop = asyncio.get_running_loop()
        task = loop.create_task(self._desk.in_background(work), name="fencepost-audit")
        running = self._last = Running(what, task, loop.time())
        task.add_done_callback(running.end)
        return running


def _resting() -> Rest:
    begun: float | None = None

    async def rest() -> None:
        nonlocal begun
        now = asyncio.get_running_loop().time()
        if begun is not None:
            await asyncio.sleep(min(LONGEST_REST, RESTS * (now - begun)))
        begun = asyncio.get_running_loop().time()

    return rest
