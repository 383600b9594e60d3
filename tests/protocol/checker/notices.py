"""R5: each cause is told at least once, under one id, and nothing else is."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from fencepost.model import FireRecord, Reason, State
from fencepost.model.notices import Notice
from fencepost.store.rules.notify_rules import RULES
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge

Cause = tuple[str, str, str]
"""The job, what happened, and the fire it happened with."""
BEGINS = {State.FAILED: "failed", State.LOST: "lost", State.MISSED: "missed"}


class Notices(Judge):
    lost_with_the_store: ClassVar[tuple[str, ...]] = ("_open", "_expected")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._open: dict[str, frozenset[str]] = {}
        """By job: what goes on."""
        self._expected: dict[Cause, datetime] = {}
        self._ever: set[Cause] = set()
        """Also what the store has lost since."""
        self._ids: dict[Cause, str] = {}
        self._causes: dict[str, Cause] = {}
        self._unjudged: set[str] = set()
        """Jobs that could not be read for a while, or whose missed fires have joined an earlier row."""

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is None or not after.state.final or after.reason == Reason.PAST:
            return
        job_id, grown = after.job_id, before is not None and before.state.final
        record = self.books.state.jobs.rows.get(job_id)
        if record is None or job_id in self.books.state.jobs_aside():
            self._unjudged.add(job_id)
        if (
            record is None
            or RULES not in self.books.state.entries.rows
            or (grown and after.state is not State.MISSED)
        ):
            return
        if after.state is State.SUCCEEDED:
            if self._open.pop(job_id, None):
                self._expect(job_id, "recovered", after)
        elif (cause := BEGINS.get(after.state)) and cause not in self._open.get(job_id, frozenset()):
            if grown:
                self._unjudged.add(job_id)
            self._open[job_id] = self._open.get(job_id, frozenset()) | {cause}
            self._expect(job_id, cause, after)

    def _expect(self, job_id: str, cause: str, fire: FireRecord) -> None:
        self._expected[job_id, cause, fire.key] = fire.finished_at or fire.due_at
        self._ever.add((job_id, cause, fire.key))

    def received(self, notice: Notice) -> None:
        cause = notice.job_id, notice.cause, notice.fire or ""
        if notice.job_id in self._unjudged:
            return
        if self._ids.setdefault(cause, notice.id) != notice.id:
            self.books.violation("R5", f"{cause} is told under two ids")
        if self._causes.setdefault(notice.id, cause) != cause:
            self.books.violation("R5", f"two causes have one id: {cause} and {self._causes[notice.id]}")
        if cause not in self._ever:
            self.books.violation("R5", f"{cause} is told, and has not happened, or not begun then")

    def finish(self, until: datetime) -> None:
        for cause, at in self._expected.items():
            if at < until and cause not in self._ids and cause[0] not in self._unjudged:
                self.books.violation("R5", f"{cause} was never told")
