"""The settler: writes what became of runs. A batch is whatever gathered while the last one was in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from fencepost.service import Service
from fencepost.store.base import Report, Update

BATCH = 500

Answer = Callable[[bool], None]


class Settler(Service):
    shortest = 0.0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._outbox: deque[tuple[Update, Answer]] = deque()
        self._reports: dict[str, Update] = {}

    def put(self, update: Update, answer: Answer) -> None:
        self._outbox.append((update, answer))
        self.wake()

    def put_report(self, report: Report) -> None:
        """Progress: only the latest of each run travels."""
        self._reports[report.key] = report
        self.wake()

    @property
    def is_empty(self) -> bool:
        return not self._outbox

    async def step(self) -> float | None:
        replica = self.replica
        batch = list(islice(self._outbox, BATCH))
        reports = list(self._reports.values())[:BATCH]
        if not batch and not reports:
            return None
        for report in reports:
            del self._reports[report.key]
        # Progress goes first: a settle in the same batch ends the run it speaks of.
        reply = await replica.store.update_claims(replica.id, [*reports, *(update for update, _ in batch)])
        replica.testimony.told(reply.steps)
        for (_, answer), accepted in zip(batch, reply.accepted[len(reports) :], strict=True):
            self._outbox.popleft()
            answer(accepted)
        replica.progress.set()
        if reply.due:
            replica.worker.wake()
        return 0.0 if self._outbox or self._reports else None
