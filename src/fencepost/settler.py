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
        self._reports: dict[str, Report] = {}

    def put(self, update: Update, answer: Answer) -> None:
        self._outbox.append((update, answer))
        self.wake()

    def put_report(self, report: Report) -> None:
        """Progress and output: only the latest of each travels."""
        self._reports[report.key] = merged(self._reports.get(report.key), report)
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
        # Progress goes first: a settle in the same batch ends the run it speaks of.
        reply = await replica.store.update_claims(replica.id, [*reports, *(update for update, _ in batch)])
        replica.testimony.told(reply.steps)
        for report in reports:
            if self._reports[report.key] is report:  # else there is news already
                del self._reports[report.key]
        for (_, answer), accepted in zip(batch, reply.accepted[len(reports) :], strict=True):
            self._outbox.popleft()
            answer(accepted)
        replica.progress.set()
        if reply.due:
            replica.worker.wake()
        return 0.0 if self._outbox or self._reports else None


def merged(earlier: Report | None, report: Report) -> Report:
    """What the later one says, and what only the earlier one did, if it is of the same run."""
    if earlier is None or earlier.token != report.token:
        return report
    return Report(
        report.key,
        report.token,
        progress=earlier.progress if report.progress is None else report.progress,
        output=earlier.output if report.output is None else report.output,
    )
