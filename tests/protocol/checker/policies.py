"""P: what pauses, misfires, overlap, retries, crashes, cancels and manual fires may lead to."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, ClassVar

from fencepost.clock import seconds
from fencepost.model import CATCH_UP_LIMIT, FireRecord, Job, JobRecord, Reason, State
from fencepost.model.triggers.following import After
from fencepost.store.base import Report
from tests.protocol.checker.books import Books, at_once
from tests.protocol.checker.judge import Judge, Step, declared_dead

ASKED = Reason.REQUESTED.value
"""How the reason of a fire begins that a person has left out."""
NOTHING = timedelta(0)
Pauses = tuple[tuple[datetime, datetime | None], ...]


class Policies(Judge):
    lost_with_the_store: ClassVar = ("_pauses", "_retries", "_crashes", "_saved", "_cancelled", "_added")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._pauses: dict[str, Pauses] = {}
        self._retries: Counter[str] = Counter()
        self._crashes: Counter[str] = Counter()
        self._saved: dict[str, Any] = {}
        """By fire: its last checkpoint."""
        self._cancelled: set[str] = set()
        self._added: set[str] = set()
        """Manual fires."""
        self._most_attempts: Counter[str] = Counter()
        """By job: the most that any of its definitions has allowed."""
        self._claimed_now: set[str] = set()
        self._skipped_now: list[FireRecord] = []
        self._queued_now: list[FireRecord] = []

    def _wrong(self, subject: str, fire: FireRecord, text: str) -> None:
        self.books.violation(f"P-{subject}", f"{fire.key} {text}")

    # --- rows ---------------------------------------------------------------------------------------------

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if before is None or after is None:
            return
        record = self.books.job(after.job_id)
        if after.state is State.RUNNING and before.state is not State.RUNNING:
            self._claim(before, after, record)
        elif before.state is State.RUNNING and after.state is not State.RUNNING:
            self._attempt_ended(before, after, record.job)
        elif before.state is State.PENDING:
            self._closed_or_queued(after, record)

    def _claim(self, before: FireRecord, fire: FireRecord, record: JobRecord) -> None:
        now = self.books.moment().wall
        self._claimed_now.add(fire.key)
        expected = 1 + self._retries[fire.key] + self._crashes[fire.key]
        if fire.attempt != expected:
            self._wrong("retry", fire, f"is at attempt {fire.attempt}, and should be at {expected}")
        if fire.checkpoint != self._saved.get(fire.key):
            self._wrong(
                "checkpoint", fire, f"has {fire.checkpoint}, last saved was {self._saved.get(fire.key)}"
            )
        if fire.key in self._cancelled:
            self._wrong("cancel", fire, "is claimed although it was cancelled")
        if before.not_before is not None and before.not_before > now:
            self._wrong("retry", fire, f"is claimed before {before.not_before}")
        if record.removed_at is not None:
            self._wrong("remove", fire, "is claimed although its job was removed")
        claimer = fire.remote["by"] if fire.remote is not None else fire.replica
        if record.job.lane not in self.books.targets[claimer or ""]:
            self._wrong("target", fire, f"is claimed by {claimer}, which does not know {record.job.lane}")
        if fire.scheduled and self._paused(fire.job_id, now):
            self._wrong("pause", fire, "is claimed while its job is paused")
        if fire.scheduled and before.state is State.PENDING:
            self._first_claim(fire, record, now)

    def _first_claim(self, fire: FireRecord, record: JobRecord, now: datetime) -> None:
        if self._paused(fire.job_id, fire.due_at):
            self._wrong("pause", fire, "is claimed although it fell due in a pause")
        if now - fire.start_at <= record.job.misfire_after:
            return
        late = seconds(now - fire.start_at)
        if record.job.misfire != "latest":
            self._wrong("misfire", fire, f"is claimed {late:.1f} s late in spite of {record.job.misfire!r}")
        elif newer := self._due_after(fire, now - (record.job.jitter or NOTHING)):
            self._wrong("misfire", fire, f"is claimed {late:.1f} s late, but {newer[-1]} is the latest")

    def _attempt_ended(self, before: FireRecord, after: FireRecord, job: Job) -> None:
        outcome = after.attempts[-1].outcome if after.attempts else ""
        if outcome == "lost":
            self._crashes[after.key] += 1
            if after.state is State.WAITING and job.after_crash != "rerun":
                self._wrong("crash", after, "is to be run again although a crash is only to be recorded")
            if after.state is State.WAITING and self._crashes[after.key] >= job.crash_attempts:
                self._wrong("crash", after, f"is to be run again after {self._crashes[after.key]} crashes")
        elif outcome == "gone":  # by its engine, before it started; `Engines` judges that
            self._crashes[after.key] += 1
            if after.state is State.WAITING and self._crashes[after.key] >= job.crash_attempts:
                self._wrong("crash", after, f"is sent again after {self._crashes[after.key]} losses")
        elif outcome == "retry":
            self._retries[after.key] += 1
            body = self.books.bodies.get((before.key, before.token))
            policy = body.job.retry if body is not None else None
            most = policy.attempts if policy is not None else 0
            if before.remote is not None:
                # The replica that ends it for its worker goes by the definition that it has read last; so does the
                # worker, which reads it at the gate.
                most = max(most, self._most_attempts[after.job_id])
            if self._retries[after.key] >= most:
                self._wrong("retry", after, f"is to be run again after {self._retries[after.key]} failures")

    def _closed_or_queued(self, fire: FireRecord, record: JobRecord) -> None:
        job, now = record.job, self.books.moment().wall
        if not fire.scheduled:
            if fire.state is State.SKIPPED or fire.reason in (Reason.MISFIRE, Reason.COALESCED):
                self._wrong("manual", fire, f"is {fire.state}: {fire.reason}")
            return
        if fire.reason == Reason.PAUSED and not self._paused(fire.job_id, fire.due_at):
            self._wrong("pause", fire, "is skipped although its job was not paused when it fell due")
        elif fire.reason == Reason.COALESCED and job.misfire != "latest":
            self._wrong("misfire", fire, f"is coalesced in spite of {job.misfire!r}")
        elif fire.reason == Reason.MISFIRE:
            # What was planned as a stretch, late or paused by then, stays one where the clock steps back and it lies
            # ahead again. It is never run.
            since = self.books.latest_now() if fire.count > 1 else now
            if job.misfire != "skip" or since - fire.due_at <= job.misfire_after:
                self._wrong("misfire", fire, "is missed without being late")
        elif fire.reason == Reason.CATCH_UP_LIMIT and job.overlap.kind != "replace":
            if any(each.count > 1 for each in self.books.state.fires.due(fire.job_id, now)) or fire.count > 1:
                return  # planned as a stretch when there was more, or because it was taken for lost or paused
            # A backlog stays in stretches, also where the clock steps back after it was planned.
            if (
                self._queue(fire.job_id) + len(self._due_after(fire, self.books.latest_now()))
                < CATCH_UP_LIMIT
            ):
                self._wrong("misfire", fire, "is beyond the catch-up limit, which is not reached")
        elif fire.reason in (Reason.OVERLAP, Reason.QUEUE_FULL):
            self._skipped_now.append(fire)
        elif fire.state is State.QUEUED:
            self._queued_now.append(fire)

    # --- steps --------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        super().step(step)
        for fire in self._skipped_now:
            self._judge_skip(fire)
        for fire in self._queued_now:
            self._judge_queue(fire)
        self._skipped_now.clear()
        self._queued_now.clear()
        self._claimed_now.clear()

    def _judge_queue(self, fire: FireRecord) -> None:
        """`queue(n)` holds n; what catch-up keeps is not counted by it, but bounded as well."""
        job = self.books.job(fire.job_id).job
        queued = self._queue(fire.job_id)
        limit = CATCH_UP_LIMIT + job.overlap.limit if job.misfire == "all" else job.overlap.limit
        limit += at_once(job) if job.limits else 0  # what a limit holds back stands where a run would
        if queued > limit:
            self._wrong("overlap", fire, f"is number {queued} in the queue of {job.overlap}, {job.misfire!r}")

    def _judge_skip(self, fire: FireRecord) -> None:
        """Only because of runs that are there, and none of them may be dead; or because as many wait as may."""
        if fire.reason == Reason.QUEUE_FULL and self._chain_is_full(fire.job_id):
            return
        state, steady = self.books.state, self.books.moment().steady
        active, job = state.fires.active(fire.job_id), self.books.job(fire.job_id).job
        due = state.fires.due(fire.job_id, self.books.moment().wall) if job.limits else []
        held_back = sum(1 for each in due if each.state is State.QUEUED or not each.scheduled)
        if len(active) + held_back < at_once(job):
            self._wrong("overlap", fire, "is skipped, but there is room for it")
        for other in active:
            presence = state.replicas.rows.get(other.replica or "")
            overdue = presence is None or presence.expires <= steady
            if (
                other.remote is None
                and other.state is State.RUNNING
                and overdue
                and other.key not in self._claimed_now
            ):
                self._wrong("overlap", fire, f"is skipped because of {other.key}, whose replica may be dead")

    def _update_claims(self, step: Step) -> None:
        for update, accepted in zip(step.args[1], step.reply.accepted, strict=True):
            if accepted and isinstance(update, Report) and update.saves:
                self._saved[update.key] = update.checkpoint

    def _put_jobs(self, step: Step) -> None:
        for put, reply in zip(step.args[0], step.reply, strict=True):
            if not reply.refused and put.job.retry is not None:
                known = self._most_attempts[put.job.id]
                self._most_attempts[put.job.id] = max(put.job.retry.attempts, known)

    def _cancel_fire(self, step: Step) -> None:
        fire: FireRecord | None = step.reply
        if declared_dead(step) or fire is None or fire.state.final:
            return
        if fire.scheduled and fire.due_at > self.books.moment().wall:
            return
        if fire.state is not State.RUNNING:
            self._wrong("cancel", fire, f"is {fire.state} although it was cancelled")
        self._cancelled.add(fire.key)

    def _add_fire(self, step: Step) -> None:
        if step.reply.outcome == "added":
            if step.args[0].key in self._added:
                self._wrong("manual", step.reply.fire, "was added twice")
            self._added.add(step.args[0].key)

    def _change_job(self, step: Step) -> None:
        change, now = step.args[0], self.books.moment().wall
        if step.reply is None or change.kind not in ("pause", "resume", "remove"):
            return
        gaps = self._pauses.get(change.job_id, ())
        ended = tuple((since, now if until is None or until > now else until) for since, until in gaps)
        if change.kind != "pause":
            self._pauses[change.job_id] = ended
            return
        # One that lasts keeps its end unless the change names another.
        lasting = [until for _, until in gaps if until is None or until > now]
        end = change.until or (lasting[-1] if lasting and not change.anew else None)
        self._pauses[change.job_id] = (*ended, (now, end))

    # --- what the books say ---------------------------------------------------------------------------------

    def _paused(self, job_id: str, moment: datetime) -> bool:
        gaps = self._pauses.get(job_id, ())
        return any(since <= moment and (until is None or moment < until) for since, until in gaps)

    def _due_after(self, fire: FireRecord, now: datetime) -> list[datetime]:
        """Fires that fell due after this one, outside of pauses, and were neither cancelled nor past when declared."""
        due = self.books.due(fire.job_id, fire.last_due, now)
        closed = self._closed_apart(fire.job_id) if due else []
        return [
            each
            for each in due
            if not self._paused(fire.job_id, each)
            and not any(row.due_at <= each <= row.last_due for row in closed)
        ]

    def _closed_apart(self, job_id: str) -> list[FireRecord]:
        """Rows, of one fire or several, that no misfire policy has closed. Among them what was skipped in a pause that
        was resumed at an earlier time than theirs, where the clock was set back: by the books no pause covers that any
        more, but it was decided, so it is not the latest of what is left."""
        rows = [row for row in self.books.state.fires.rows.values() if row.job_id == job_id]
        apart = (Reason.PAST, Reason.PAUSED) if self.books.stepped_back else (Reason.PAST,)
        return [
            row
            for row in rows
            if row.state is State.CANCELLED or row.reason in apart or (row.reason or "").startswith(ASKED)
        ]

    def _chain_is_full(self, job_id: str) -> bool:
        """What follows others waits for its turn as soon as its parents let it go, whether or not a run is there."""
        job = self.books.job(job_id).job
        return isinstance(job.trigger, After) and self._queue(job_id) >= max(
            CATCH_UP_LIMIT, job.overlap.limit
        )

    def _queue(self, job_id: str) -> int:
        due = self.books.state.fires.due(job_id, self.books.moment().wall)
        return sum(1 for each in due if each.state is State.QUEUED and each.scheduled)
