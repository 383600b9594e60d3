"""Planning: which calendars are due to be expanded, and the fires that the leader has found in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fencepost.clock import Moment
from fencepost.model import (
    Reason,
    State,
    changed,
    fire_key,
    planned_fire,
)
from fencepost.store.base import (
    DueJobs,
    Plan,
)
from fencepost.store.rows import Rows
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, keep, stored_job
from fencepost.store.rules.targets import orphan_job


def due_jobs(rows: Rows, at: Moment, horizon: float, limit: int) -> DueJobs:
    until = at.wall + timedelta(seconds=horizon)
    due = rows.jobs.due_plans(until, limit)
    rows.preload(at.wall, jobs=due)
    found = [stored_job(rows, id) for id in due if not rows.jobs.aside(id)]
    gaps = {record.job.target: rows.targets.get(record.job.target).gaps for record in found}
    return DueJobs(at.wall, tuple(found), rows.jobs.soonest_plan(), gaps, rows.leader.era.lost_through)


def plan_fires(rows: Rows, at: Moment, plans: Sequence[Plan]) -> tuple[bool, ...]:
    rows.preload(at.wall, jobs=[plan.job_id for plan in plans])
    before = rows.jobs.soonest(None, leads=True)
    planned = tuple(_plan(rows, at, plan) for plan in plans)
    first = min((row.first for plan in plans for row in plan.rows), default=None)
    if first is not None and (before is None or first < before):
        rows.notify = True
    return planned


def _plan(rows: Rows, at: Moment, plan: Plan) -> bool:
    record = None if rows.jobs.aside(plan.job_id) else rows.jobs.get(plan.job_id)
    head = record.segments[0] if record and record.segments else None
    if record is None or head is None:
        return False
    if (head.version, head.cursor, head.until) != (plan.version, plan.cursor, plan.until):
        return False
    if rows.targets.get(record.job.target).orphaned and not record.removed_at:
        orphan_job(rows, at, record)  # it could not be read when its task was given up
        return False
    cursor = head.cursor
    for row in plan.rows:
        assert row.first > cursor, "a calendar is strictly increasing"
        cursor = row.last
        if record.decided_through and row.first <= record.decided_through:
            continue
        key = fire_key(record.id, row.first)
        last = row.last if row.count > 1 else None
        fire = planned_fire(key, record.id, row.first, row.count, last)
        rows.fires.put(fire)
        if head.removed:
            record = close(rows, at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
    moved = changed(head, cursor=cursor, next_at=plan.next_at)
    done = plan.next_at is None or (head.until is not None and plan.next_at > head.until)
    segments = record.segments[1:] if done else (moved, *record.segments[1:])
    keep(rows, at, changed(record, segments=segments))
    return True
