"""S3, S5, S8, L5: the ledger against a calendar worked out a second time, and the table of states."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta

from fencepost.model import FireRecord, JobRecord, Reason, State
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge

RECENTLY = timedelta(seconds=15)
EARLIEST = datetime.min.replace(tzinfo=UTC)

NEXT: dict[State, frozenset[State]] = {
    State.PENDING: frozenset(State) - {State.WAITING, State.SUCCEEDED, State.FAILED},
    State.QUEUED: frozenset(State) - {State.PENDING, State.WAITING, State.SUCCEEDED, State.FAILED},
    State.RUNNING: frozenset(State) - {State.PENDING, State.QUEUED, State.SKIPPED, State.MISSED},
    State.WAITING: frozenset(State) - {State.PENDING, State.QUEUED, State.SKIPPED, State.SUCCEEDED},
}


class Ledger(Judge):
    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._let_go: dict[str, datetime] = {}
        """By fire of a job that follows others: when its parents had ended theirs. It is due long before."""

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if before is None:
            if after is not None and self._follows(self.books.job(after.job_id)):
                self._let_go[after.key] = self.books.moment().wall
            return
        if after is None:
            if before.state not in (State.PENDING, State.QUEUED):
                self.books.violation("S5", f"{before.key} was {before.state}, and is gone")
        elif before.state.final:
            if (after.state, after.token, after.reason) != (before.state, before.token, before.reason):
                self.books.violation(
                    "S5", f"{before.key} was {before.state}, now {after.state}: {after.reason}"
                )
        elif after.state not in NEXT[before.state]:
            self.books.violation("S5", f"{before.key} was {before.state}, now {after.state}")
        elif after.state is State.CANCELLED and not after.scheduled:
            return  # also before it is due
        elif after.state.final and after.due_at > self.books.latest_now():
            self.books.violation("S8", f"{after.key} is {after.state} before it is due")

    def _goes_on(self, record: JobRecord, until: datetime) -> bool:
        last = record.last_run
        return bool(self.books.state.fires.active(record.id)) or (
            last is not None and last.finished_at > until
        )

    # --- at the end -------------------------------------------------------------------------------------------

    def finish(self, until: datetime) -> None:
        state = self.books.state
        known = {"any": {name for replica in state.replicas.rows.values() for name in replica.targets}}
        known["leader"] = set(state.replicas.rows[state.leader.holder or ""].targets)
        for record in [
            each for each in state.jobs.rows.values() if each.limit is None and not self._follows(each)
        ]:
            self._calendar_kept(record.id, until)
        for fire in state.fires.rows.values():
            record = self.books.job(fire.job_id)
            since = max(fire.due_at, self._let_go.get(fire.key, fire.due_at))
            to_come = since > until or (fire.not_before is not None and fire.not_before > until)
            # What nobody can run waits for somebody who can (see `tasks`).
            stuck = record.job.lane in known[record.job.execute_on]
            waits = fire.state is State.QUEUED or (fire.state is State.PENDING and not fire.scheduled)
            waits = waits or (
                fire.state is State.RUNNING and fire.started_at is not None and fire.started_at > until
            )
            if record.job.engine is not None and waits and self._goes_on(record, until):
                continue  # an engine takes longer to work off a backlog
            if not fire.state.final and not to_come and stuck and not self._held(record):
                self.books.violation("S8", f"{fire.key} is {fire.state} long after all is well ({fire})")
            if fire.count > 1 and fire.token:
                self.books.violation("S8", f"{fire.key} stands for {fire.count} fires, but was claimed")

    def _follows(self, record: JobRecord) -> bool:
        """Whether it follows others, or did; or was only named by one that does. See `chains`."""
        events = self.books.state.jobs.events_by_job.get(record.id, ())
        return not events or any(event.trigger and event.trigger["type"] == "after" for event in events)

    def _held(self, record: JobRecord) -> bool:
        """By a pause that is hardly over, or by a step back of the store's clock."""
        now = self.books.moment().wall
        paused = any(gap.until is None or gap.until > now - RECENTLY for gap in record.pauses)
        # A rate lets a backlog go as slowly as it says.
        slow = any(each.per_seconds is not None for each in record.job.limits)
        return paused or slow or self.books.waits_for_the_clock(record.id, now)

    def _calendar_kept(self, job_id: str, until: datetime) -> None:
        """Every fire of the calendars in force is in the ledger once (S8), and nothing else is (S3)."""
        rows = sorted(
            (
                fire
                for fire in self.books.state.fires.rows.values()
                if fire.job_id == job_id and fire.scheduled
            ),
            key=lambda fire: fire.due_at,
        )
        # Declared when later fires had been decided: on record, but in no calendar (see `listed`).
        in_calendar = frozenset(self.books.due(job_id, None, until))
        rows = [row for row in rows if row.reason != Reason.PAST or row.due_at in in_calendar]
        if self.books.state.targets.get(self.books.job(job_id).job.lane).orphaned:
            # What nobody knows how to run is not planned, until somebody does again.
            until = min(until, rows[-1].last_due) if rows else EARLIEST
        due = self.books.due(job_id, None, until)
        if due != sorted(set(due)):
            self.books.violation("S3", f"{job_id}: calendars overlap")
        position = 0
        for row in rows:
            if row.due_at > until:
                break
            covered = bisect_right(due, row.last_due) - bisect_left(due, row.due_at)
            if covered != row.count and row.last_due <= until:
                self.books.violation(
                    "S3", f"{row.key} stands for {row.count} fires, the calendar has {covered}"
                )
            while position < len(due) and due[position] < row.due_at:
                self.books.violation("S8", f"{job_id} at {due[position]} is in no row")
                position += 1
            if position >= len(due) or due[position] != row.due_at:
                self.books.violation("S8", f"{row.key} is in two rows, or in no calendar")
            position += covered
        for moment in due[position:]:
            self.books.violation("S8", f"{job_id} at {moment} is in no row")
        runs = sum(1 for row in rows if row.token and row.due_at <= until)
        if runs > len(due):
            self.books.violation("L5", f"{job_id}: {runs} runs for {len(due)} fires")
