"""Single fires, as people ask for them: started by hand, cancelled, declared dead."""

from __future__ import annotations

from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    FireRecord,
    Reason,
    State,
    changed,
)
from fencepost.store.base import (
    Added,
    NewFire,
)
from fencepost.store.rows import Rows
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, crash, finish, keep, refuse_aside, stored_job
from fencepost.store.rules.remote import not_started
from fencepost.store.unreadable import RowUnreadable

MANUAL_QUEUE_LIMIT = 100
"""Manual fires of one job that may wait for their turn."""


def add_fire(rows: Rows, at: Moment, new: NewFire) -> Added:
    existing = rows.fires.get(new.key)
    if existing is not None:
        return Added("exists", existing)
    if rows.fires.is_broken(new.key):
        raise RowUnreadable(f"fire {new.key} is stored, and cannot be read: it is not added again")
    rows.preload(at.wall, jobs=[new.job_id])
    record = rows.jobs.get(new.job_id)
    refuse_aside(rows, new.job_id)
    if record is None or record.removed_at:
        return Added("no such job")
    active = rows.fires.active(record.id)
    due = rows.fires.due(record.id, at.wall)
    waiting = [fire for fire in due if not fire.scheduled and fire.backfill is None]
    if new.if_active == "refuse" and (active or waiting):
        return Added("active", (active or waiting)[0])
    if len(waiting) >= MANUAL_QUEUE_LIMIT:
        return Added("full", waiting[0])
    fire = FireRecord(new.key, new.job_id, _due_at(at, new), scheduled=False, args=new.args, by=new.by)
    fire = changed(fire, repeats=new.repeats, trace=new.trace)
    rows.fires.put(fire)
    keep(rows, at, record)
    rows.notify = True
    return Added("added", fire)


def _due_at(at: Moment, new: NewFire) -> datetime:
    """Now, or later."""
    return max(at.wall, new.due_at or at.wall) + timedelta(seconds=max(0.0, new.delay))


def cancel_fire(
    rows: Rows, at: Moment, key: str, by: str = "", dead_token: int | None = None
) -> FireRecord | None:
    fire = rows.fires.get(key)
    if rows.fires.is_broken(key):
        raise RowUnreadable(f"fire {key} cannot be read: remove its job, or restore the row from a backup")
    if fire is None or fire.state.final:
        return fire
    if dead_token is not None:
        return _declare_dead(rows, at, fire, by, dead_token)
    fire = changed(fire, cancelled_by=fire.cancelled_by or by)
    if fire.state is State.RUNNING and not_started(rows, fire):
        finish(rows, at, fire.ended(at.wall, "cancelled"), State.CANCELLED, Reason.REQUESTED)
        rows.notify = True  # the replica that looks after the engine takes its order back
    elif fire.state is State.RUNNING:
        rows.fires.put(changed(fire, cancel_requested=True))
        rows.notify = True
    elif fire.state is State.WAITING:
        finish(rows, at, fire, State.CANCELLED, Reason.REQUESTED)
    elif fire.due_at <= at.wall or not fire.scheduled:
        closing = Closing(fire, State.CANCELLED, Reason.REQUESTED)
        keep(rows, at, close(rows, at, stored_job(rows, fire.job_id), closing))
    return rows.fires.get(key)


def _declare_dead(rows: Rows, at: Moment, fire: FireRecord, by: str, token: int) -> FireRecord:
    """A person takes the place of both witnesses, for the one run they have seen. If its replica lives after all,
    the next heartbeat tells it that the token is gone."""
    if fire.state is not State.RUNNING or fire.token != token:
        return fire
    rows.notify = True
    who = f" by {by}" if by else ""
    return crash(rows, at, fire, Reason.DECLARED_DEAD, f"{fire.replica} was declared dead{who}")
