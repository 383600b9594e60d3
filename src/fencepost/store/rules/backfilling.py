"""Backfills are started, fed with rows, paused, resumed and cancelled; coming fires are skipped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobRecord, Reason, Skip, State, changed, fire_key
from fencepost.model.backfills import MOST_AT_ONCE, MOST_KEPT, MOST_SKIPS, Backfill
from fencepost.store.base import ChangeJob, Plan
from fencepost.store.rows import Rows
from fencepost.store.rules.backfills import waiting_rows
from fencepost.store.rules.chains import repeats_harmlessly
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, finish, keep, stored_job

LOST = "the store lost data, and what has run is not known; resume it to go on"


# --- rows -----------------------------------------------------------------------------------------------------------


def feed(rows: Rows, at: Moment, plan: Plan) -> bool:
    """Add the next rows of a backfill. Written only if its cursor still stands: a second leader's rows are a no-op, and
    a leader that was killed in between has added all of them or none."""
    record = None if rows.jobs.aside(plan.job_id) else rows.jobs.get(plan.job_id)
    backfill = record.backfill(plan.backfill) if record is not None else None
    if record is None or record.removed_at or backfill is None:
        return False
    if backfill.cursor != plan.cursor or not backfill.wants_rows:
        return False
    if rows.leader.era.standing == "restarted":
        return False  # the store may have forgotten rows that have run: it waits until that is known
    if _may_have_run(rows, at, record, backfill):
        backfill = changed(backfill, paused=True, note=LOST)
    else:
        backfill = _with_rows(rows, at, record, backfill, plan)
    keep(rows, at, _replaced(record, backfill))
    rows.notify = True
    return True


def _may_have_run(rows: Rows, at: Moment, record: JobRecord, backfill: Backfill) -> bool:
    """Whether the store may have forgotten rows of it that have run, and their runs, or those of jobs that follow, are
    not to be repeated."""
    lost_through = rows.leader.era.lost_through
    if lost_through is None or (backfill.confirmed_at is not None and backfill.confirmed_at > lost_through):
        return False
    return not repeats_harmlessly(rows, at, record)


def _with_rows(rows: Rows, at: Moment, record: JobRecord, backfill: Backfill, plan: Plan) -> Backfill:
    added, first = 0, at.wall - len(plan.rows) * datetime.resolution
    for number, row in enumerate(plan.rows):
        key = backfill.key(record.id, row.first)
        if rows.fires.get(key) is not None or rows.fires.is_broken(key):
            continue
        if backfill.only_missing and _is_on_record(rows, record, row.first):
            continue
        # In the order of their due times, also where that is the reverse order.
        fire = FireRecord(
            key, record.id, first + number * datetime.resolution, scheduled=False, by=backfill.by
        )
        rows.fires.put(changed(fire, repeats=backfill.repeats(record.id, row.first)))
        added += 1
    return changed(
        backfill,
        cursor=plan.rows[-1].first if plan.rows else backfill.cursor,
        fed_at=max(at.wall, backfill.fed_at or at.wall),
        exhausted=plan.next_at is None,
        added=backfill.added + added,
        passed=backfill.passed + len(plan.rows) - added,
    )


def _is_on_record(rows: Rows, record: JobRecord, due_at: datetime) -> bool:
    """Whether the fire of that moment, or one of an earlier backfill in its place, has succeeded or may still."""
    keys = [backfill.key(record.id, due_at) for backfill in record.backfills]
    for key in (fire_key(record.id, due_at), *keys):
        fire = rows.fires.get(key)
        if rows.fires.is_broken(key) or (fire and (fire.state is State.SUCCEEDED or not fire.state.final)):
            return True
    return False


# --- what people ask for --------------------------------------------------------------------------------------------

Change = Callable[[Rows, Moment, JobRecord, ChangeJob], JobRecord | None]
"""None: it cannot be done."""


def start_backfill(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord | None:
    backfill = change.backfill
    if backfill is None or not 1 <= backfill.limit <= MOST_AT_ONCE:
        return None
    if record.backfill(backfill.name) is not None:
        return record  # the same request again
    kept = [each for each in record.backfills if each.is_open]
    if len(kept) >= MOST_KEPT:
        return None
    over = [each for each in record.backfills if not each.is_open][-(MOST_KEPT - len(kept) - 1) :]
    until = min(backfill.until, at.wall)
    backfill = Backfill(
        name=backfill.name,
        trigger=backfill.trigger,
        since=backfill.since,
        until=until,
        cursor=until if backfill.reverse else backfill.since - datetime.resolution,
        limit=backfill.limit,
        reverse=backfill.reverse,
        only_missing=backfill.only_missing,
        total=backfill.total,
        by=change.by,
        created_at=at.wall,
        confirmed_at=at.wall,
    )
    found = {each.name for each in (*kept, *over)}
    earlier = (each for each in record.backfills if each.name in found)
    return changed(record, backfills=(*earlier, backfill))


def pause_backfill(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord | None:
    """What runs goes on; nothing of it starts."""
    backfill = _open(record, change)
    return None if backfill is None else _replaced(record, changed(backfill, paused=True, note=change.note))


def resume_backfill(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord | None:
    backfill = _open(record, change)
    if backfill is None:
        return None
    return _replaced(record, changed(backfill, paused=False, note="", confirmed_at=at.wall))


def cancel_backfill(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord | None:
    """What waits is cancelled; what runs is asked to end."""
    backfill = _open(record, change)
    if backfill is None:
        return None
    record = _replaced(record, changed(backfill, cancelled=True, cancelled_by=change.by, paused=False))
    return end_fires(rows, at, record, backfill.name, Reason.REQUESTED, change.by)


def end_fires(
    rows: Rows, at: Moment, record: JobRecord, name: str, reason: Reason, by: str = ""
) -> JobRecord:
    for fire in waiting_rows(rows, at, record):
        if fire.backfill == name:
            fire = changed(fire, cancelled_by=by)
            record = close(rows, at, record, Closing(fire, State.CANCELLED, reason))
    keep(rows, at, record)
    for fire in rows.fires.active(record.id):
        if fire.backfill != name:
            continue
        fire = changed(fire, cancelled_by=fire.cancelled_by or by)
        if fire.state is State.RUNNING:
            rows.fires.put(changed(fire, cancel_requested=True))
        else:
            finish(rows, at, fire, State.CANCELLED, reason)
    return stored_job(rows, record.id)


def skip_fire(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord | None:
    """Only a fire that its calendar has, and that is not due yet."""
    due_at, trigger = change.due_at, record.segments[-1].trigger if record.segments else None
    if due_at is None or due_at <= at.wall or trigger is None or trigger.foreign is not None:
        return None
    if trigger.next_after(due_at - datetime.resolution) != due_at:
        return None
    others = tuple(each for each in record.skips if each.due_at != due_at)
    if len(others) >= MOST_SKIPS:
        return None
    skips = sorted((*others, Skip(due_at, change.note, change.by)), key=lambda each: each.due_at)
    return changed(record, skips=tuple(skips))


def unskip_fire(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord | None:
    """As long as it lies ahead: a fire that was skipped stays so."""
    if change.due_at is None or change.due_at <= at.wall or record.skip_at(change.due_at) is None:
        return None
    return changed(record, skips=tuple(each for each in record.skips if each.due_at != change.due_at))


CHANGES: dict[str, Change] = {
    "backfill": start_backfill,
    "pause backfill": pause_backfill,
    "resume backfill": resume_backfill,
    "cancel backfill": cancel_backfill,
    "skip": skip_fire,
    "unskip": unskip_fire,
}


def _open(record: JobRecord, change: ChangeJob) -> Backfill | None:
    backfill = record.backfill(change.name)
    return backfill if backfill is not None and backfill.is_open and not backfill.cancelled else None


def _replaced(record: JobRecord, backfill: Backfill) -> JobRecord:
    backfills = (backfill if each.name == backfill.name else each for each in record.backfills)
    return changed(record, backfills=tuple(backfills))
