"""R2: what a job's record says of its runs is what the ledger says of them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import ClassVar

from fencepost.model import FireRecord, JobRecord, State
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Outcomes(Judge):
    lost_with_the_store: ClassVar[tuple[str, ...]] = ("_last", "_success", "_failures")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._last: dict[str, str] = {}
        """By job: the key of the run that ended last."""
        self._success: dict[str, datetime | None] = {}
        self._failures: Counter[str] = Counter()
        self._touched: set[str] = set()

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if before is None or after is None or before.state.final or not after.state.final:
            return
        if not after.attempt or after.started_at is None:
            return
        id = after.job_id
        if id not in self.books.state.jobs.rows:
            return  # its row cannot be read: the ledger has the run, the job's record has not
        self._last[id] = after.key
        if after.state is State.SUCCEEDED:
            self._success[id], self._failures[id] = after.finished_at, 0
        elif after.state in (State.FAILED, State.LOST):
            self._failures[id] += 1
        self._touched.add(id)

    def step(self, step: Step) -> None:
        super().step(step)
        touched, self._touched = self._touched, set()
        for id in touched:
            record = self.books.state.jobs.rows[id]
            told = (record.last_run and record.last_run.key, record.last_success_at, record.failures_in_a_row)
            seen = (self._last[id], self._success.get(id), self._failures[id])
            if told != seen:
                self.books.violation("R2", f"{id} says {told} of its runs, and it was {seen}")

    def _change_job(self, step: Step) -> None:
        """What a row that could not be read said of its runs is lost when the job is removed."""
        record: JobRecord | None = step.reply
        if record is None or not record.removed_at or record.created_at != record.removed_at:
            return
        self._failures[record.id], self._success[record.id] = record.failures_in_a_row, record.last_success_at
        if record.last_run is not None:
            self._last[record.id] = record.last_run.key
