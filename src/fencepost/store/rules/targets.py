"""Tasks that jobs refer to: who knows them, and what becomes of the jobs of one that no replica knows."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.clock import Moment
from fencepost.model import (
    Gap,
    JobRecord,
    Reason,
    State,
    changed,
)
from fencepost.model.triggers import LATEST
from fencepost.store.rows import Rows, TargetRecord
from fencepost.store.rules.calendars import MAX_GAPS_KEPT, takes_effect
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, finish, keep

_LEFT_AS = {"retry": State.FAILED, "lost": State.LOST}
"""What becomes of a fire that waits to be run again when no replica knows how: it ends as its last attempt did."""


def adopt(rows: Rows, at: Moment, names: Sequence[str]) -> None:
    """Somebody knows these tasks (again). A long absence is kept as a gap in their jobs' calendars."""
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
    """Nobody has known this task for long: its jobs are kept and shown, but not planned any more. What is planned
    ahead would fall due with nobody to decide it, so it goes back to the calendar; all else of them ends."""
    rows.targets.put(target)
    for record in list(rows.jobs.every(target.name)):
        orphan_job(rows, at, record)


def orphan_job(rows: Rows, at: Moment, record: JobRecord) -> None:
    # Where the clock was set back, not from before the calendar begins, nor what only a row still knows of.
    since = takes_effect(rows, at, record)
    rows.fires.withdraw_planned(record.id, since)
    for fire in rows.fires.due(record.id, LATEST):
        closing = Closing(fire, State.MISSED, Reason.UNKNOWN_TASK)
        if fire.scheduled and record.paused_at(fire.due_at):
            closing = Closing(fire, State.SKIPPED, Reason.PAUSED)
        record = close(rows, at, record, closing)
    segments = (
        changed(each, cursor=since, next_at=since) if each.cursor > since else each
        for each in record.segments
    )
    keep(rows, at, changed(record, segments=tuple(segments)))
    for fire in rows.fires.active(record.id):
        if fire.state is State.WAITING:
            state = _LEFT_AS.get(fire.attempts[-1].outcome, State.MISSED)
            finish(rows, at, fire, state, Reason.UNKNOWN_TASK)
