"""How fires end, wait and are counted, and when a job must be looked at again."""

from __future__ import annotations

from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import FireRecord, Gap, JobRecord, Reason, State, changed
from fencepost.store.base import FireQuery
from fencepost.store.decide import Closing, JobView
from fencepost.store.rows import Rows
from fencepost.store.unreadable import RowUnreadable


class Ledger(Rows):
    def find_fires(self, at: Moment, query: FireQuery) -> tuple[FireRecord, ...]:
        return tuple(self.select_fires(query))

    def prune(self, at: Moment, keep_seconds: float) -> int:
        return self.prune_before(at.wall - timedelta(seconds=keep_seconds))

    # --- how fires end --------------------------------------------------------------------------------

    def _finish(self, at: Moment, fire: FireRecord, state: State, reason: str | None) -> FireRecord:
        fire = finished(at, fire, state, reason)
        self.put_fire(fire)
        self._keep_job_of(at, fire)
        return fire

    def _wait_again(self, at: Moment, fire: FireRecord, not_before: datetime, settled: int = 0) -> FireRecord:
        fire = changed(fire, settled=settled)
        if fire.cancel_requested:
            return self._finish(at, fire, State.CANCELLED, Reason.REQUESTED)
        record = self.job(fire.job_id)
        if record is not None and record.removed_at:
            return self._finish(at, fire, State.CANCELLED, Reason.REMOVED)
        fire = changed(fire, state=State.WAITING, not_before=not_before, progress=None)
        self.put_fire(fire)
        self._keep_job_of(at, fire)
        return fire

    def _close(self, at: Moment, record: JobRecord, closing: Closing) -> JobRecord:
        """End a fire that never started. Neighbours that share one fate are one row."""
        fire, tail = closing.fire, self.fire(record.tail) if record.tail else None
        if tail is not None and _same_fate(tail, closing) and self._adjacent(record, tail, fire):
            self.drop_fire(fire)
            grown = changed(tail, count=tail.count + fire.count, last_due_at=fire.last_due)
            self.put_fire(changed(grown, refers_to=closing.refers_to, finished_at=at.wall))
        else:
            closed = changed(fire, state=closing.state, reason=closing.reason, refers_to=closing.refers_to)
            self.put_fire(changed(closed, finished_at=at.wall))
            record = changed(record, tail=fire.key if fire.scheduled else record.tail)
        if fire.scheduled:
            record = changed(record, decided_through=later(record, fire.last_due))
        return record

    def _adjacent(self, record: JobRecord, tail: FireRecord, fire: FireRecord) -> bool:
        """Nothing lies between: no fire after the tail has been decided, and none before this one waits."""
        undecided = self.due_fires(fire.job_id, fire.due_at)
        return (
            tail.last_due == record.decided_through
            and tail.last_due < fire.due_at
            and not any(tail.last_due < other.due_at < fire.due_at for other in undecided if other.scheduled)
        )

    # --- when to look at a job again --------------------------------------------------------------------

    def _keep(self, at: Moment, record: JobRecord, look_again: timedelta | None = None) -> None:
        head = record.segments[0] if record.segments else None
        orphaned = self.target(record.job.target).orphaned and not record.removed_at
        plan_at = None if head is None or orphaned else head.next_at
        look_at = at.wall + look_again if look_again else self._next_look(at, record)
        if (row := self.aside(record.id)) and not row.foreign and not record.removed_at:
            look_at = at.wall  # a fire that cannot be read may be due
        self.put_job_row(record, look_at, plan_at)

    def _keep_job_of(self, at: Moment, fire: FireRecord) -> None:
        """The end of a run counts also while its job cannot be read: its record lacks that run then, and whatever
        waited for it is decided when the job can be read again."""
        record = self.job(fire.job_id)
        if record is None:
            self.look_soon(fire.job_id, at.wall)
        else:
            self._keep(at, record.after_run(fire) if fire.state.final else record)

    def _next_look(self, at: Moment, record: JobRecord) -> datetime | None:
        """When this job's fires next need a decision. A fire that waits for its turn, or for the planner,
        needs none: the step that ends the wait calls this again."""
        looks: list[datetime] = []
        active, pause = self.active_fires(record.id), record.paused_at(at.wall)
        at_once = record.job.overlap.at_once
        if sum(1 for fire in active if fire.state is State.RUNNING) < at_once:
            for fire in active:
                if fire.state is State.WAITING and fire.not_before is not None:
                    looks += _unless_held(fire, fire.not_before, pause)
        full = len(active) >= at_once
        fresh: list[FireRecord] = []
        for fire in self.due_fires(record.id, at.wall):
            if fire.scheduled and fire.state is State.PENDING:
                fresh.append(fire)
            elif not full:
                looks += _unless_held(fire, fire.due_at, pause)
        if fresh and record.behind_at(at.wall) and at.wall - fresh[0].due_at > record.job.misfire_after:
            fresh = []  # a backlog is decided when the planner has caught up
        for fire in fresh:
            looks += (
                [fire.due_at] if record.paused_at(fire.due_at) else _unless_held(fire, fire.due_at, pause)
            )
        soonest = min(looks, default=None)
        if soonest is not None and soonest <= at.wall:
            return soonest
        planned = self.next_planned(record.id, at.wall)
        return min((look for look in (soonest, planned) if look), default=None)

    def _view(self, at: Moment, record: JobRecord) -> JobView:
        due = self.due_fires(record.id, at.wall)
        active = self.active_fires(record.id)
        overdue = any(fire.state is State.RUNNING and self._overdue(at, fire.replica) for fire in active)
        lost_through = self.leader.era.lost_through if record.job.after_crash == "record" else None
        return JobView(record, due, active, overdue, self.target(record.job.target).gaps, lost_through)

    def _overdue(self, at: Moment, replica: str | None) -> bool:
        presence = self.replica(replica) if replica else None
        return presence is None or presence.expires <= at.steady

    def _job(self, id: str) -> JobRecord:
        record = self.job(id)
        if record is None:
            self._refuse_aside(id)
        assert record is not None, "a fire's job is never forgotten"
        return record

    def _refuse_aside(self, job_id: str, what: str = "") -> None:
        """Nothing is done with a job that cannot be read: what it would break is not known. A job whose calendar is
        not known here can be paused, triggered and removed all the same."""
        row = self.aside(job_id)
        if row is not None and not row.foreign:
            raise RowUnreadable(f"{what}job {job_id} is set aside: {row.told}; {row.remedy}")


def finished(at: Moment, fire: FireRecord, state: State, reason: str | None) -> FireRecord:
    return changed(fire, state=state, reason=reason, finished_at=at.wall, not_before=None)


def _unless_held(fire: FireRecord, when: datetime, pause: Gap | None) -> list[datetime]:
    """When to look at it: a pause holds what is scheduled until it ends, if it ends by itself."""
    if pause is None or not fire.scheduled:
        return [when]
    return [max(when, pause.until)] if pause.until is not None else []


def later(record: JobRecord, due_at: datetime) -> datetime:
    return max(due_at, record.decided_through or due_at)


def _same_fate(tail: FireRecord, closing: Closing) -> bool:
    return (
        closing.fire.scheduled
        and tail.state is closing.state
        and tail.reason == closing.reason
        # A backlog that grows while nobody has room is coalesced into ever newer fires.
        and (tail.refers_to == closing.refers_to or closing.reason is Reason.COALESCED)
        # What somebody cancelled by its key must stay to be found by its key.
        and closing.reason is not Reason.REQUESTED
    )
