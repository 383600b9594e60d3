"""What is left to the general path of a step that the fast path has begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fencepost.clock import Moment
from fencepost.store.base import Claimed, ClaimRequest, Update, Updated
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.schema import meta, set_meta
from fencepost.store.rows import Rows
from fencepost.store.rules.claims import claim_due, due_for, jobs_to_decide, next_moments
from fencepost.store.rules.data_loss import restarted
from fencepost.store.rules.leadership import is_leader
from fencepost.store.rules.updates import is_counted, update_claims


def claim_more(rows: Rows, at: Moment, request: ClaimRequest, claimed: int) -> Claimed:
    """Go on with a claim of which the fast part is done, and counted."""
    replica = rows.replicas.get(request.replica)
    if replica is None or replica.claim_no != request.number:
        return Claimed()
    leads, room = is_leader(rows, request.replica, request.term), request.room - claimed
    due = due_for(rows, at, replica, leads, jobs_to_decide(request.room))
    return claim_due(rows, at, replica, leads, room, due, request.ahead)


def without_aside(rows: Rows, at: Moment, request: ClaimRequest, claimed: Claimed) -> Claimed:
    """With what is ahead but for the jobs that are set aside: they stay due on the server."""
    replica = rows.replicas.get(request.replica)
    if replica is None:
        return replace(claimed, wake_in=None, ahead=())
    leads = is_leader(rows, request.replica, request.term)
    wake_in, ahead = next_moments(rows, at, replica, leads, request.ahead)
    return replace(claimed, wake_in=wake_in, ahead=ahead)


def update_more(
    rows: Rows, at: Moment, db: Connection, replica: str, updates: Sequence[Update], counted: bool
) -> Updated:
    """The same for updates; `counted`: as a step for this replica."""
    rows.may_lose_writes = False
    updated = update_claims(rows, at, replica, updates)
    if counted or not updated.steps or not is_counted(rows, updated.accepted):
        return updated
    # The replica's row is not held: a copy of it must not be written over what it has become.
    (steps,) = db.one("update {schema}.replicas set steps = steps + 1 where id = %s returning steps", replica)
    return replace(updated, steps=steps)


def follow(rows: Rows, at: Moment, db: Connection, history: str, name: str) -> None:
    """The server writes another history than the one known here: it took over from another, or was restored, and
    may lack what was acknowledged. `name`: of this beginning, should the next one not know of it."""
    if meta(db, "history") != history:
        restarted(rows, at, f"{history}/{name}")
        set_meta(db, "history", history)
