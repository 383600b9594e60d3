"""How fires end, wait and are counted, and when the fires of a job must next be decided."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    FireRecord,
    Gap,
    JobRecord,
    Reason,
    State,
    changed,
    crashed,
)
from fencepost.model.backfills import counted
from fencepost.store.rows import Rows
from fencepost.store.rules import limits, outbox
from fencepost.store.rules.backfills import is_held, running_of, with_backfills
from fencepost.store.rules.debts import Debt, owe
from fencepost.store.rules.decide import Closing
from fencepost.store.unreadable import RowUnreadable

_LEFT_AS = {"retry": State.FAILED, "lost": State.LOST}
"""By the outcome of its last attempt: what becomes of a fire that no replica can run again."""


def finish(rows: Rows, at: Moment, fire: FireRecord, state: State, reason: str | None) -> FireRecord:
    fire = finished(at, fire, state, reason)
    rows.fires.put(fire)
    keep_job_of(rows, at, fire)
    free_places(rows, at, fire)
    let_children_go(rows, at, fire)
    return fire


def finished(at: Moment, fire: FireRecord, state: State, reason: str | None) -> FireRecord:
    if fire.refers_to is not None and reason == Reason.REQUESTED:
        reason = Reason.REPLACED
    refers_to = fire.refers_to if reason == Reason.REPLACED else None
    return changed(
        fire, state=state, reason=reason, refers_to=refers_to, finished_at=at.wall, not_before=None
    )


def wait_again(
    rows: Rows, at: Moment, fire: FireRecord, not_before: datetime, settled: int = 0
) -> FireRecord:
    fire = changed(fire, settled=settled)
    if fire.cancel_requested:
        return finish(rows, at, fire, State.CANCELLED, Reason.REQUESTED)
    record = rows.jobs.get(fire.job_id)
    if record is not None and record.removed_at:
        return finish(rows, at, fire, State.CANCELLED, Reason.REMOVED)
    if record is not None and rows.targets.get(record.job.lane).orphaned:
        return leave(rows, at, record, fire)
    fire = changed(fire, state=State.WAITING, not_before=not_before, progress=None)
    rows.fires.put(fire)
    keep_job_of(rows, at, fire)
    free_places(rows, at, fire)
    return fire


def leave(rows: Rows, at: Moment, record: JobRecord, fire: FireRecord) -> FireRecord:
    """No replica knows how to run it again: it ends as its last attempt did."""
    return finish(
        rows, at, fire, _LEFT_AS.get(fire.attempts[-1].outcome, State.MISSED), record.job.unclaimable
    )


def free_places(rows: Rows, at: Moment, fire: FireRecord) -> None:
    """A run is over: jobs that wait for a limit it was under are decided. If its job cannot be read, the rows of the
    limits say which those are."""
    record = rows.jobs.get(fire.job_id)
    if record is None:
        let_go(rows, at, limits.release_all(rows, at, fire))
    elif record.job.limits:
        let_go(rows, at, limits.release(rows, at, record, fire))


def let_children_go(rows: Rows, at: Moment, fire: FireRecord, row: str | None = None) -> None:
    """A fire is final: those of jobs that follow this one are added, or closed. `row`: the row that it has joined."""
    record = rows.jobs.get(fire.job_id)
    if record is None and rows.jobs.aside(fire.job_id):
        owe(rows, at, Debt(fire.job_id, fire=fire.key))
    elif record is not None and record.children:
        from fencepost.store.rules import chains  # which closes fires in turn

        chains.follow(rows, at, fire, row or fire.key)


def let_go(rows: Rows, at: Moment, job_ids: Sequence[str]) -> None:
    """Decide these jobs, which a limit has held."""
    if not job_ids:
        return
    rows.preload(at.wall, jobs=job_ids)
    for id in dict.fromkeys(job_ids):
        record = rows.jobs.get(id)
        if record is not None and record.held_back is not None:
            keep(rows, at, changed(record, held_back=None))
            rows.notify = True


def crash(
    rows: Rows,
    at: Moment,
    fire: FireRecord,
    died: Reason = Reason.REPLICA_DIED,
    error: str | None = None,
) -> FireRecord:
    """Its replica is dead. Whether the body ran is unknowable: record it, or run it again if so asked."""
    job = stored_job(rows, fire.job_id).job
    fire = changed(fire.ended(at.wall, "lost", error), crashes=fire.crashes + 1)
    if job.after_crash == "rerun" and fire.crashes < job.crash_attempts and not fire.cancel_requested:
        return wait_again(rows, at, fire, at.wall)
    worn_out = job.after_crash == "rerun" and fire.crashes >= job.crash_attempts
    return finish(rows, at, fire, State.LOST, crashed(fire.crashes) if worn_out else died)


def close(rows: Rows, at: Moment, record: JobRecord, closing: Closing) -> JobRecord:
    """End a fire that never started. Neighbours that share one fate are one row."""
    fire, row, tail = closing.fire, closing.fire.key, rows.fires.get(record.tail) if record.tail else None
    if tail is not None and _same_fate(tail, closing) and _adjacent(rows, record, tail, fire):
        rows.fires.drop(fire)
        row = tail.key
        grown = changed(tail, count=tail.count + fire.count, last_due_at=fire.last_due)
        rows.fires.put(changed(grown, refers_to=closing.refers_to, finished_at=at.wall))
    else:
        closed = changed(fire, state=closing.state, reason=closing.reason, refers_to=closing.refers_to)
        rows.fires.put(changed(closed, finished_at=at.wall))
        record = changed(record, tail=fire.key if fire.scheduled else record.tail)
    if fire.scheduled:
        record = changed(record, decided_through=later(record, fire.last_due))
    elif fire.backfill is not None:
        record = changed(record, backfills=counted(record.backfills, changed(fire, state=closing.state)))
    ended = changed(fire, state=closing.state, reason=closing.reason)
    if record.children:
        let_children_go(rows, at, ended, row)
    return outbox.ended(rows, at, record, ended)


def _adjacent(rows: Rows, record: JobRecord, tail: FireRecord, fire: FireRecord) -> bool:
    """Nothing lies between: no fire after the tail has been decided, and none before this one waits."""
    undecided = rows.fires.due(fire.job_id, fire.due_at)
    return (
        tail.last_due == record.decided_through
        and tail.last_due < fire.due_at
        and not any(tail.last_due < other.due_at < fire.due_at for other in undecided if other.scheduled)
    )


def _same_fate(tail: FireRecord, closing: Closing) -> bool:
    return (
        closing.fire.scheduled
        and tail.state is closing.state
        and tail.reason == closing.reason
        # A backlog that grows while no replica has room is coalesced into ever newer fires.
        and (tail.refers_to == closing.refers_to or closing.reason is Reason.COALESCED)
        # What a person cancelled or skipped by its key must stay to be found by its key.
        and not closing.reason.startswith(Reason.REQUESTED)
    )


def later(record: JobRecord, due_at: datetime) -> datetime:
    return max(due_at, record.decided_through or due_at)


def keep(rows: Rows, at: Moment, record: JobRecord, again_in: timedelta | None = None) -> None:
    head = record.segments[0] if record.segments else None
    orphaned = rows.targets.get(record.job.lane).orphaned and not record.removed_at
    plan_at = None if head is None or orphaned else head.next_at
    if record.backfills:
        record = with_backfills(rows, at, record)
        if not orphaned and any(each.wants_rows for each in record.backfills):
            plan_at, rows.notify = min(plan_at or at.wall, at.wall), True
    decide_at = at.wall + again_in if again_in else next_decision(rows, at, record)
    if (row := rows.jobs.aside(record.id)) and not row.foreign:
        decide_at = at.wall  # a fire that cannot be read may be due
    rows.jobs.put(record, decide_at, plan_at)


def keep_job_of(rows: Rows, at: Moment, fire: FireRecord) -> None:
    """The end of a run counts also while its job cannot be read: its record lacks that run then, and whatever
    waited for it is decided when the job can be read again."""
    record = rows.jobs.get(fire.job_id)
    if record is None:
        rows.jobs.decide_soon(fire.job_id, at.wall)
    else:
        keep(rows, at, after_end(rows, at, record, fire) if fire.state.final else record)


def after_end(rows: Rows, at: Moment, record: JobRecord, fire: FireRecord) -> JobRecord:
    """With the end of this fire's run on record, and what that means to those who watch it."""
    return outbox.ended(rows, at, record.after_run(fire), fire)


def next_decision(rows: Rows, at: Moment, record: JobRecord) -> datetime | None:
    """When this job's fires next need a decision. A fire that waits for its turn, or for the planner,
    needs none: the step that ends the wait calls this again."""
    decisions: list[datetime] = []
    active, pause = rows.fires.active(record.id), record.paused_at(at.wall)
    at_once = record.job.overlap.at_once
    if sum(1 for fire in active if fire.state is State.RUNNING) < at_once:
        for fire in active:
            if fire.state is State.WAITING and fire.not_before is not None:
                until = max(fire.not_before, record.held_back.until) if record.held_back else fire.not_before
                decisions += _unless_held(fire, until, pause)
    full, running = len(active) >= at_once, running_of(active)
    held = record.held_back.until if record.held_back is not None else None
    due = rows.fires.due(record.id, at.wall)
    fresh = [fire for fire in due if fire.scheduled and fire.state is State.PENDING]
    others = [fire for fire in due if not fire.scheduled or fire.state is not State.PENDING]
    if fresh and record.behind_at(at.wall) and at.wall - fresh[0].due_at > record.job.misfire_after:
        fresh = []  # a backlog is decided when the planner has caught up, and so is what its newest would replace
        if record.job.overlap.kind == "replace":
            others = [fire for fire in others if not fire.scheduled]
    for fire in others:
        if not full and not is_held(record, fire, running):
            decisions += _unless_held(fire, held or fire.due_at, pause)
    for fire in fresh:
        if record.paused_at(fire.due_at):
            decisions.append(fire.due_at)
        else:
            decisions += _unless_held(fire, fire.due_at + record.job.jitter_of(fire), pause)
    soonest = min(decisions, default=None)
    if soonest is not None and soonest <= at.wall:
        return soonest
    planned = rows.fires.next_planned(record.id, at.wall)
    return min((each for each in (soonest, planned) if each), default=None)


def _unless_held(fire: FireRecord, when: datetime, pause: Gap | None) -> list[datetime]:
    """When to decide it: a pause holds what is scheduled until it ends, if it ends by itself."""
    if pause is None or not fire.scheduled:
        return [when]
    return [max(when, pause.until)] if pause.until is not None else []


def stored_job(rows: Rows, id: str) -> JobRecord:
    record = rows.jobs.get(id)
    if record is None:
        refuse_aside(rows, id)
    assert record is not None, "a fire's job is never forgotten"
    return record


def refuse_aside(rows: Rows, job_id: str, what: str = "") -> None:
    """Nothing is done with a job that cannot be read: what it would break is not known. A job whose calendar is
    not known here can be paused, triggered and removed all the same."""
    row = rows.jobs.aside(job_id)
    if row is not None and not row.foreign:
        raise RowUnreadable(f"{what}job {job_id} is set aside: {row.summary}; {row.remedy}")
