"""What becomes of jobs whose task nobody knows: for a while (an hour) they wait, then their fires are missed."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from fencepost.model import FireRecord, Reason
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Tasks(Judge):
    lost_with_the_store: ClassVar = ("_unknown", "_orphaned")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._unknown: dict[str, datetime] = {}
        """Since when a leader has seen that nobody knows it."""
        self._orphaned: set[str] = set()
        """Those it has seen so for long enough, by the store's time."""
        self._were_orphaned: set[str] = set()
        self._missed_now: list[FireRecord] = []

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is not None and after.reason == Reason.UNKNOWN_TASK and before is not None:
            self._missed_now.append(after)

    def step(self, step: Step) -> None:
        super().step(step)
        for fire in self._missed_now:
            target = self.books.job(fire.job_id).job.lane
            if target not in self._were_orphaned:
                self.books.violation("P-task", f"{fire.key} is missed, but {target} was not unknown for long")
        self._missed_now.clear()

    def _heartbeat(self, step: Step) -> None:
        if step.reply.known:
            for target in self.books.state.replicas.rows[step.replica].targets:
                self._unknown.pop(target, None)
                self._orphaned.discard(target)

    def _sweep(self, step: Step) -> None:
        if step.reply is None:
            return
        state, now = self.books.state, self.books.moment().wall
        known = {name for replica in state.replicas.rows.values() for name in replica.targets}
        for target in state.targets.rows.keys() - known:  # also those that only a later definition refers to
            if now - self._unknown.setdefault(target, now) >= self.books.state.orphaned_after:
                self._orphaned.add(target)
                self._were_orphaned.add(target)

    def finish(self, until: datetime) -> None:
        for fire in self.books.state.fires.rows.values():
            target = self.books.job(fire.job_id).job.lane
            due = fire.scheduled and fire.due_at <= until and not fire.state.final
            if due and target in self._orphaned:
                self.books.violation("S8", f"{fire.key} is {fire.state}, and nobody will ever look at it")
