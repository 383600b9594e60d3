"""S6 and L2: what runs beside what, how long, and how late."""

from __future__ import annotations

from datetime import datetime

from fencepost.model import FireRecord, State
from tests.protocol.checker.books import Body, Books, at_once
from tests.protocol.checker.judge import Judge
from tests.protocol.network import Request

STEADY_LATENESS = 0.15
"""L2: a due fire starts within 100 ms, the simulated network's own delays on top."""
BACKUP = 0.2
"""The same beyond that, where the replica that should ask for it first is cut off."""
AT_ONCE = 0.05
"""Seconds within which a body that is told to end does so."""


class Runs(Judge):
    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._expected: dict[str, tuple[float, float]] = {}
        """Fires with no reason to be late: when they fall due, and start at the latest."""
        self._running: list[Body] = []
        self._first_start: dict[str, float] = {}
        self._forgotten: set[Body] = set()
        """Runs that nobody could tell the store of after it lost data: their token was given to another run."""
        self._told_to_end: dict[Body, float] = {}

    def expect(self, key: str, due: float, one_is_absent: bool) -> None:
        self._expected[key] = due, due + STEADY_LATENESS + (BACKUP if one_is_absent else 0.0)

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is not None and after.state is State.RUNNING:
            job = self.books.job(after.job_id).job
            self.books.limits.setdefault((after.key, after.token), at_once(job))

    def started(self, body: Body) -> None:
        """At most so many unfenced runs of a job at once. A run whose token is not current is fenced.

        The limit is kept when a fire is claimed. A claim may be answered, and its body start, under a later
        definition; and one claimed after it, under a higher limit, may have started before it. So each run is held
        against those that were claimed before it, by the limit of its own claim."""
        self._first_start.setdefault(body.key, body.started)
        self._running = [other for other in self._running if other.ended is None]
        if self.books.may_be_given_again((body.key, body.token)):
            same = [each for each in self._running if (each.key, each.token) == (body.key, body.token)]
            self._forgotten.update(each for each in same if each.process != body.process)
        self._running.append(body)
        mine = [
            each for each in self._running if each.fire.job_id == body.fire.job_id and self._unfenced(each)
        ]
        mine.sort(key=lambda each: each.token)
        for number, each in enumerate(mine):
            if number >= self.books.limits[each.key, each.token]:
                self.books.violation("S6", f"{each.key} runs beside {[other.key for other in mine[:number]]}")

    def _unfenced(self, body: Body) -> bool:
        return self.books.current.get(body.key) == body.token and body not in self._forgotten

    def delivered(self, request: Request) -> None:
        """The answer to a beat tells of a cancel, and by silence that a token is gone. What it says of a body that
        started after it was sent counts for nothing."""
        if request.name != "heartbeat":
            return
        held = {(claim.key, claim.token): claim for claim in request.reply.held}
        for body in self._running:
            if body.process == request.process.name and body.ended is None and request.sent > body.started:
                claim = held.get((body.key, body.token))
                if claim is None or claim.cancel_requested:
                    self._told_to_end.setdefault(body, self.books.now())

    def ended(self, body: Body) -> None:
        told = self._told_to_end.get(body)
        if body.finished and told is not None and self.books.now() > told + AT_ONCE:
            self.books.violation(
                "P-cancel", f"{body.key} came to its end although told at {told:.3f} to stop"
            )
        limit = body.job.timeout
        took = self.books.now() - body.started
        if limit is None or self.books.was_paused(body.process, body.started):
            return
        if body.finished and took > limit.total_seconds() + AT_ONCE:
            self.books.violation("P-timeout", f"{body.key} took {took:.3f} s")

    def finish(self, until: datetime) -> None:
        for key, (due, latest) in self._expected.items():
            started = self._first_start.get(key)
            if started is None or started > latest:
                self.books.violation("L2", f"{key}: due at {due:.3f}, started at {started}")
