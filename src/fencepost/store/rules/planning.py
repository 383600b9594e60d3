"""Planning: which calendars are due to be expanded, and the fires that the leader has found in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby, takewhile

from fencepost.clock import Moment
from fencepost.model import (
    JobRecord,
    Reason,
    Segment,
    State,
    changed,
    fire_key,
    planned_fire,
)
from fencepost.model.triggers.following import parents_of
from fencepost.store.base import (
    DueJobs,
    FireQuery,
    Plan,
    Planned,
)
from fencepost.store.rows import Rows
from fencepost.store.rules.backfilling import feed
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, keep, stored_job
from fencepost.store.rules.targets import orphan_job

PAGE = 500
"""Rows of fires that are looked for at once."""


def due_jobs(rows: Rows, at: Moment, horizon: float, limit: int) -> DueJobs:
    until = at.wall + timedelta(seconds=horizon)
    due = rows.jobs.due_plans(until, limit)
    rows.preload(at.wall, jobs=due)
    found = [stored_job(rows, id) for id in due if not rows.jobs.aside(id)]
    gaps = {record.job.lane: rows.targets.get(record.job.lane).gaps for record in found}
    return DueJobs(at.wall, tuple(found), rows.jobs.soonest_plan(), gaps, rows.leader.era.lost_through)


def plan_fires(rows: Rows, at: Moment, plans: Sequence[Plan]) -> tuple[bool, ...]:
    rows.preload(at.wall, jobs=[plan.job_id for plan in plans])
    before = rows.jobs.soonest(None, leads=True)
    planned = tuple(_plan(rows, at, plan) for plan in plans)
    first = min((row.first for plan in plans if not plan.backfill for row in plan.rows), default=None)
    # What is due already may wait for a pool without a replica: it does not say when replicas will ask next.
    if first is not None and (before is None or before <= at.wall or first < before):
        rows.notify = True
    return planned


def _plan(rows: Rows, at: Moment, plan: Plan) -> bool:
    if plan.backfill:
        return feed(rows, at, plan)
    record = None if rows.jobs.aside(plan.job_id) else rows.jobs.get(plan.job_id)
    head = record.segments[0] if record and record.segments else None
    if record is None or head is None:
        return False
    if (head.version, head.cursor, head.until) != (plan.version, plan.cursor, plan.until):
        return False
    if rows.targets.get(record.job.lane).orphaned and not record.removed_at:
        orphan_job(rows, at, record)  # it could not be read when its task was given up
        return False
    cursor = head.cursor
    for row in plan.rows:
        assert row.first > cursor, "a calendar is strictly increasing"
        cursor = row.last
        for part in _undecided(rows, record, head, row):
            last = part.last if part.count > 1 else None
            fire = planned_fire(fire_key(record.id, part.first), record.id, part.first, part.count, last)
            rows.fires.put(fire)
            if head.removed:
                record = close(rows, at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
    moved = changed(head, cursor=cursor, next_at=plan.next_at)
    done = plan.next_at is None or (head.until is not None and plan.next_at > head.until)
    segments = record.segments[1:] if done else (moved, *record.segments[1:])
    keep(rows, at, changed(record, segments=segments))
    return True


def _undecided(rows: Rows, record: JobRecord, head: Segment, row: Planned) -> list[Planned]:
    """What is left of a row that a calendar has planned: without the fires that were decided before.

    A job that follows others has fires when those end, also later ones than a calendar from before that still owes.
    There only a row shows what was decided, and a row of many is parted around it."""
    if record.decided_through is None or row.first > record.decided_through:
        return [row]
    if head.until is None and not parents_of(record.job.trigger):
        return []
    if row.count == 1:
        due = [row.first]
        taken = {row.first} if _is_on_record(rows, fire_key(record.id, row.first)) else set()
    else:
        due = list(
            takewhile(lambda each: each <= row.last, head.trigger.after(row.first - datetime.resolution))
        )
        taken = _on_record(rows, record, due)
    tail = rows.fires.get(record.tail) if record.tail else None
    if tail is not None:
        taken.update(each for each in due if tail.due_at <= each <= tail.last_due)
    left = (list(run) for free, run in groupby(due, lambda each: each not in taken) if free)
    return [Planned(run[0], run[-1], len(run)) for run in left]


def _is_on_record(rows: Rows, key: str) -> bool:
    return rows.fires.get(key) is not None or rows.fires.is_broken(key)


def _on_record(rows: Rows, record: JobRecord, due: Sequence[datetime]) -> set[datetime]:
    """The same for many, a page at a time."""
    found: set[datetime] = set()
    for first in range(0, len(due), PAGE):
        keys = {fire_key(record.id, each): each for each in due[first : first + PAGE]}
        rows_found = rows.fires.find(FireQuery(keys=tuple(keys), limit=len(keys)))
        found.update(fire.due_at for fire in rows_found)
        found.update(each for key, each in keys.items() if rows.fires.is_broken(key))
    return found
