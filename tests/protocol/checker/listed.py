"""P-listed: every moment that an `at` names is in the ledger, also one that had passed when it was declared."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from fencepost.model import FireRecord, Reason, State
from fencepost.store.base import PutJob
from tests.protocol.calendar import due_between
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step

LONG_AGO = timedelta(days=10_000)


class Listed(Judge):
    lost_with_the_store: ClassVar = ("_triggers", "_late", "_first")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._triggers: dict[str, object] = {}
        """By job: the trigger in force."""
        self._late: dict[tuple[str, datetime], bool] = {}
        """By job and moment: whether it was later than `misfire_after` each time it was declared."""
        self._first: dict[str, bool] = {}
        """By job: whether it has had one trigger only."""
        self._decided_now: list[FireRecord] = []

    def _put_jobs(self, step: Step) -> None:
        for put, reply in zip(step.args[0], step.reply, strict=True):
            trigger = put.job.trigger.to_json() if put.job.trigger else None
            if reply.outcome in ("created", "changed") and self._triggers.get(put.job.id, ()) != trigger:
                self._first[put.job.id] = put.job.id not in self._triggers
                self._triggers[put.job.id] = trigger
                self._replaced(put.job.id)
                self._declared(put)

    def _declared(self, put: PutJob) -> None:
        if put.job.trigger is None or put.job.trigger.to_json()["type"] != "at":
            return
        now = self.books.moment().wall
        for moment in due_between(put.job.trigger.to_json(), now - LONG_AGO, now):
            late = now - moment > put.job.misfire_after
            self._late[put.job.id, moment] = late and self._late.get((put.job.id, moment), True)

    def _change_job(self, step: Step) -> None:
        if step.args[0].kind == "remove" and step.reply is not None:
            self._triggers[step.args[0].job_id] = ()
            self._replaced(step.args[0].job_id)

    def _replaced(self, job_id: str) -> None:
        """The calendar so far ends. A moment that had passed when it was declared, and lies ahead because the store's
        clock was set back, is withdrawn with it like all that is ahead."""
        now = self.books.moment().wall
        for id, moment in list(self._late):
            if id == job_id and moment > now:
                del self._late[id, moment]

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is None or not after.scheduled or (before is not None and before.state is not State.PENDING):
            return
        if after.reason == Reason.PAST or (after.state is State.RUNNING and before is not None):
            self._decided_now.append(after)

    def step(self, step: Step) -> None:
        super().step(step)
        for fire in self._decided_now:
            self._judge(fire)
        self._decided_now.clear()

    def _judge(self, fire: FireRecord) -> None:
        """A job that has had one trigger has no other fires in the way: only the time of its declaration counts."""
        late = self._late.get((fire.job_id, fire.due_at))
        if not self._first.get(fire.job_id, False):
            return
        if fire.reason == Reason.PAST and not late:
            self.books.violation("P-listed", f"{fire.key} is missed as past, and was not")
        if fire.state is State.RUNNING and late:
            self.books.violation("P-listed", f"{fire.key} is claimed, and was long past when it was declared")

    def finish(self, until: datetime) -> None:
        state = self.books.state
        rows = [fire for fire in state.fires.rows.values() if fire.scheduled]
        for job_id, moment in sorted(self._late):
            record = state.jobs.rows.get(job_id)
            if moment > until:
                continue  # the clock was set back before it was planned: it lies ahead
            if record is None or state.targets.get(record.job.lane).orphaned:
                continue
            if not any(fire.job_id == job_id and fire.due_at <= moment <= fire.last_due for fire in rows):
                self.books.violation("P-listed", f"{job_id} was declared for {moment}, which is in no row")
