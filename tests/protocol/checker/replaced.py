"""P-replace: a newer fire asks older runs to end, takes the place of those that wait, and starts when it is alone."""

from __future__ import annotations

from fencepost.model import FireRecord, Reason, State
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Replaced(Judge):
    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._waits: list[FireRecord] = []

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if before is None or after is None:
            return
        if (
            after.reason == Reason.REPLACED
            and not before.state.final
            and (after.refers_to or "") <= after.key
        ):
            self._wrong(after, f"is replaced by {after.refers_to}, which is not newer")
        if before.state is State.RUNNING and before.refers_to and after.state is State.WAITING:
            self._wrong(after, f"is to be run again, although {before.refers_to} has replaced it")
        if not self._replaces(after):
            return
        if after.state is State.QUEUED and before.state is State.PENDING:
            self._waits.append(after)
        if after.state is State.SKIPPED and after.reason in (Reason.OVERLAP, Reason.QUEUE_FULL):
            self._wrong(after, f"is skipped: {after.reason}")
        if after.state is State.RUNNING and before.state in (State.PENDING, State.QUEUED):
            newer = self._newer(after)
            if newer:
                self._wrong(after, f"is claimed, and {newer[-1].key} is newer")

    def step(self, step: Step) -> None:
        """What waits has asked every run in its way to end, in the same step."""
        rows = self.books.state.fires.rows
        for fire in [each for each in self._waits if rows[each.key].state is State.QUEUED]:
            for other in self.books.state.fires.active(fire.job_id):
                if other.scheduled and not other.cancel_requested:
                    self._wrong(fire, f"waits for {other.key}, which was not asked to end")
            older = [each for each in self._open(fire) if each.due_at < fire.due_at]
            if older and not self._newer(fire):
                self._wrong(fire, f"waits beside the older {older[0].key}")
        self._waits.clear()

    def _replaces(self, fire: FireRecord) -> bool:
        """Unless chance puts starts off, and so out of their order."""
        job = self.books.job(fire.job_id).job
        return job.overlap.kind == "replace" and job.jitter is None

    def _open(self, fire: FireRecord) -> list[FireRecord]:
        """Jitter may put the start of a newer one off."""
        now, job = self.books.moment().wall, self.books.job(fire.job_id).job
        due = self.books.state.fires.due(fire.job_id, now)
        due = [each for each in due if each.due_at + job.jitter_of(each) <= now]
        return [each for each in due if each.scheduled and each.key != fire.key and each.count == 1]

    def _newer(self, fire: FireRecord) -> list[FireRecord]:
        """Those that are late may wait for the planner."""
        in_time = self.books.moment().wall - self.books.job(fire.job_id).job.misfire_after
        newer = [each for each in self._open(fire) if each.due_at > max(fire.due_at, in_time)]
        return newer if fire.scheduled else []

    def _wrong(self, fire: FireRecord, text: str) -> None:
        self.books.violation("P-replace", f"{fire.key} {text}")
