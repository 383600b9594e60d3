"""The settler: writes the outcomes of runs. A batch is whatever gathered while the last one was in flight.

One update that cannot be written stops one run. If the store refuses a batch for another reason than an outage, the
batch is split until the bad update is alone. A run whose outcome cannot be written is settled `failed: could not be
recorded`; a report is dropped. If even that cannot be written, the update is put aside and tried again later, while all
others go on; until it is written the settler counts as failing (see `service.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from fencepost.errors import NotStorable, StoreUnavailable
from fencepost.model import Reason, State
from fencepost.replica.service import Service
from fencepost.runs.failures import failure_of
from fencepost.store.base import Report, RetryLater, Settle, Update, Updated

BATCH = 500
MOST_FAILURES = 50
"""Writes that may fail in one step. More than that is no matter of single updates: the step fails."""

Answer = Callable[[Update, bool], None]
"""Called with what was written, which may be another update than the one that was put, and whether it was accepted."""
Refused = Callable[[Exception], None]


@dataclass(eq=False, slots=True)
class Entry:
    update: Update
    answer: Answer | None = None
    refused: Refused | None = None
    """Called instead where a report cannot be written."""
    tries: int = 0
    """While it is put aside: how often, and the steady time of the next try."""
    next_try: float = 0.0


class Settler(Service):
    shortest = 0.0

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._outbox: deque[Entry] = deque()
        self._reports: dict[str, Report] = {}
        self._aside: list[Entry] = []
        """Updates that cannot be written, in no form."""
        self._failures_left = MOST_FAILURES

    def put(self, update: Update, answer: Answer | None = None, refused: Refused | None = None) -> None:
        if answer is None and any(entry.update == update for entry in self._aside):
            return  # every heartbeat finds the same claim that no run knows
        self._outbox.append(Entry(update, answer, refused))
        self.wake()

    def put_report(self, report: Report) -> None:
        """Progress and output: only the latest of each travels."""
        self._reports[report.key] = merged(self._reports.get(report.key), report)
        self.wake()

    @property
    def is_empty(self) -> bool:
        return not self._outbox and not self._aside

    @property
    def is_stuck(self) -> bool:
        return bool(self._aside)

    async def step(self) -> float | None:
        self._failures_left = MOST_FAILURES
        await self._try_aside()
        # Progress goes first: a settle in the same batch ends the run it speaks of.
        entries = [Entry(report) for report in islice(self._reports.values(), BATCH)]
        entries += islice(self._outbox, BATCH)
        if entries:
            await self._write(entries)
        return 0.0 if self._outbox or self._reports else self._until_next_try()

    # --- writing --------------------------------------------------------------------------------------------

    async def _write(self, entries: Sequence[Entry]) -> None:
        """In order, each exactly once; those that cannot be written apart from the others."""
        error = await self._sent(entries)
        if error is None:
            return
        if len(entries) > 1:
            middle = len(entries) // 2
            await self._write(entries[:middle])
            await self._write(entries[middle:])
        elif not await self._written_somehow(entries[0]):
            self._put_aside(entries[0], error)

    async def _written_somehow(self, entry: Entry) -> bool:
        """Once more as it is, for not every error comes back; then as a failure that says why."""
        error = await self._sent([entry])
        if error is None:
            return True
        if isinstance(entry.update, Report):
            self._drop(entry, error)
            return True
        instead = unrecorded(entry.update, error)
        return instead is not None and await self._sent([entry], instead) is None

    async def _sent(self, entries: Sequence[Entry], instead: Update | None = None) -> Exception | None:
        """None: it is written, and the callbacks that wait for it have been called."""
        replica = self.replica
        updates = [entry.update for entry in entries] if instead is None else [instead]
        try:
            reply = await replica.store.update_claims(replica.id, updates)
        except StoreUnavailable:
            raise
        except Exception as error:
            self._failures_left -= 1
            if self._failures_left <= 0:
                raise
            return error
        self._conclude(entries, updates, reply)
        return None

    def _conclude(self, entries: Sequence[Entry], updates: Sequence[Update], reply: Updated) -> None:
        replica = self.replica
        replica.data_loss.note_steps(reply.steps)
        for entry, written, accepted in zip(entries, updates, reply.accepted, strict=True):
            self._take_out(entry)
            if entry.answer is not None:
                entry.answer(written, accepted)
        replica.progress.set()
        if reply.wake_in is not None:
            replica.worker.due_in(reply.wake_in, reply.next_at)

    def _take_out(self, entry: Entry) -> None:
        if self._outbox and self._outbox[0] is entry:
            self._outbox.popleft()
        elif entry in self._aside:
            self._aside.remove(entry)
        elif self._reports.get(entry.update.key) is entry.update:  # else a later report has replaced it
            del self._reports[entry.update.key]

    # --- what cannot be written -----------------------------------------------------------------------------

    def _drop(self, entry: Entry, error: Exception) -> None:
        what = f"{self.replica.id}: a report cannot be written and is dropped"
        self.replica.errors.log(what, error, entry.update.key, logging.WARNING)
        self._take_out(entry)
        if entry.refused is not None:
            message = f"{entry.update.key}: the store cannot keep this checkpoint ({failure_of(error).line})"
            entry.refused(NotStorable(message))

    def _put_aside(self, entry: Entry, error: Exception) -> None:
        if entry not in self._aside:
            self._take_out(entry)
            self._aside.append(entry)
        entry.tries += 1
        # Not longer than a TTL: what it holds up must be settled soon after it can be.
        delay = min(self.replica.settings.run_ttl.total_seconds(), 2.0 ** min(entry.tries - 1, 6))
        entry.next_try = self.replica.clock.steady() + delay
        self.failed(error, f"{entry.update.key} cannot be settled")

    async def _try_aside(self) -> None:
        now = self.replica.clock.steady()
        for entry in [entry for entry in self._aside if entry.next_try <= now]:
            await self._write([entry])

    def _until_next_try(self) -> float | None:
        if not self._aside:
            return None
        return max(0.0, min(entry.next_try for entry in self._aside) - self.replica.clock.steady())


def unrecorded(update: Update, error: Exception) -> Settle | None:
    """What to settle in place of an outcome that cannot be written. None: what never ran, or is to run again, is given
    back sooner or later."""
    if not isinstance(update, Settle | RetryLater):
        return None
    ended = "was to be retried" if isinstance(update, RetryLater) else update.state.value
    text = f"the run {ended}, but the store cannot keep its outcome: {failure_of(error).line}"
    return Settle(update.key, update.token, State.FAILED, Reason.NOT_RECORDED, text)


def merged(earlier: Report | None, report: Report) -> Report:
    """What the later one says, and what only the earlier one did, if it is of the same run."""
    if earlier is None or earlier.token != report.token:
        return report
    return Report(
        report.key,
        report.token,
        progress=earlier.progress if report.progress is None else report.progress,
        output=earlier.output if report.output is None else report.output,
        trace=report.trace or earlier.trace,
    )
