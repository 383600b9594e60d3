"""Tasks that jobs refer to: who knows them, and what becomes of the jobs of one that no replica knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fencepost.clock import Moment
from fencepost.model import (
    Gap,
    JobRecord,
    Reason,
    Segment,
    State,
    changed,
)
from fencepost.model.triggers import trigger_from_json
from fencepost.store.rows import Rows, TargetRecord
from fencepost.store.rules.calendars import MAX_GAPS_KEPT, takes_effect
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, keep, leave, stored_job


def adopt(rows: Rows, at: Moment, names: Sequence[str]) -> None:
    """A replica knows these tasks (again). A long absence is kept as a gap in their jobs' calendars."""
    rows.preload(at.wall, targets=names)
    for name in names:
        target = rows.targets.get(name)
        if target.unknown_since is None:
            continue
        gaps = target.gaps
        if target.orphaned:
            gaps = (*gaps, Gap(target.unknown_since, at.wall))[-MAX_GAPS_KEPT:]
        rows.targets.put(TargetRecord(name, gaps=gaps))
        if target.orphaned:
            for record in list(rows.jobs.every(name)):
                keep(rows, at, record)
            for id in rows.jobs.unread():
                rows.jobs.decide_soon(id, at.wall)


def notice_unknown_targets(rows: Rows, at: Moment) -> None:
    for target in rows.targets.unknown():
        if target.unknown_since is None:
            rows.targets.put(changed(target, unknown_since=at.wall))
        elif not target.orphaned and at.wall - target.unknown_since >= rows.orphaned_after:
            _orphan(rows, at, changed(target, orphaned=True))


def _orphan(rows: Rows, at: Moment, target: TargetRecord) -> None:
    """No replica has known this task for long: its jobs are kept and shown, but not planned any more. What is planned
    ahead would fall due with no replica to decide it, so it goes back to the calendar; all else of them ends."""
    rows.targets.put(target)
    for id in sorted(record.id for record in rows.jobs.every(target.name)):
        # Read again: the end of one job's fires may have changed a job that follows it.
        orphan_job(rows, at, stored_job(rows, id))


def orphan_job(rows: Rows, at: Moment, record: JobRecord) -> None:
    # Where the clock was set back, not from before the calendar begins, nor what only a row still knows of.
    since = takes_effect(rows, at, record)
    record = changed(record, segments=_reopened(rows, record, since))
    # What is due by then ends. What was asked for later waits for a replica that knows the task.
    rows.fires.withdraw_planned(record.id, since)
    for fire in rows.fires.due(record.id, since):
        closing = Closing(fire, State.MISSED, record.job.unclaimable)
        if fire.scheduled and record.paused_at(fire.due_at):
            closing = Closing(fire, State.SKIPPED, Reason.PAUSED)
        record = close(rows, at, record, closing)
    keep(rows, at, record)
    for fire in rows.fires.active(record.id):
        if fire.state is State.WAITING:
            leave(rows, at, record, fire)


def _reopened(rows: Rows, record: JobRecord, since: datetime) -> tuple[Segment, ...]:
    """The calendars, so that what was planned after `since` will be found in them again; also that of a definition
    whose last fire was planned, which is no longer among them."""
    segments = tuple(
        changed(each, cursor=since, next_at=since) if each.cursor > since else each
        for each in record.segments
    )
    in_force = record.removed_at is None and record.job.trigger is not None
    if not in_force or any(each.version == record.version for each in segments):
        return segments
    if rows.fires.next_planned(record.id, since) is None:
        return segments
    for event in reversed(rows.jobs.events(record.id)):
        if event.kind == "defined" and event.version == record.version and event.trigger is not None:
            trigger = trigger_from_json(event.trigger)
            return (*segments, Segment(record.version, trigger, cursor=since, next_at=since))
    return segments
