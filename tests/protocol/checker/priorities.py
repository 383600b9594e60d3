"""P-priority: of what is due, a free slot takes the fires of the jobs with the highest priority first."""

from __future__ import annotations

from datetime import datetime

from fencepost.model import FireRecord, JobRecord, State
from fencepost.model.limits import ROW
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Priorities(Judge):
    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._claimed: list[FireRecord] = []

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if before is None or after is None or after.remote is not None:  # an engine's run takes no slot
            return
        if after.state is State.RUNNING and before.state is not State.RUNNING:
            self._claimed.append(after)

    def step(self, step: Step) -> None:
        claimed, self._claimed = self._claimed, []
        if step.name != "claim_fires" or not claimed:
            return
        priorities = [self.books.job(fire.job_id).job.priority for fire in claimed]
        if priorities != sorted(priorities, reverse=True):
            self._wrong(claimed[0], f"and others are claimed in the order {priorities}")
        lowest = min(priorities)
        for fire in self._simply_due(step.replica):
            if self.books.job(fire.job_id).job.priority > lowest:
                self._wrong(fire, f"waits, although a fire of priority {lowest} was claimed in its place")

    def _simply_due(self, replica: str) -> list[FireRecord]:
        """First fires of jobs that this replica could have claimed, with nothing in the way of any of them."""
        state, now = self.books.state, self.books.moment().wall
        if self.books.stepped_back or state.broken.rows or state.leader.era.lost_through is not None:
            return []
        known = state.replicas.rows[replica].targets
        jobs = [self.books.job(id) for id in state.jobs.rows if not id.startswith(ROW)]
        free = [each for each in jobs if each.job.lane in known and _is_free(each, now)]
        due = [state.fires.due(each.id, now)[:1] for each in free if not state.fires.active(each.id)]
        return [fire for first in due for fire in first if fire.scheduled]

    def _wrong(self, fire: FireRecord, text: str) -> None:
        self.books.violation("P-priority", f"{fire.key} {text}")


def _is_free(record: JobRecord, now: datetime) -> bool:
    job = record.job
    return not (
        record.removed_at is not None
        or job.leader_only
        or job.engine is not None
        or job.limits
        or job.jitter is not None
        or record.backfills
        or record.skips
        or record.behind_at(now)
        or record.pause_lasting(now) is not None
    )
