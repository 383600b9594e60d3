"""Data-loss detector: when a store may lack what it acknowledged, and what follows."""

from __future__ import annotations

from datetime import timedelta

from fencepost.clock import Moment
from fencepost.model import (
    Era,
    Lease,
    Reason,
    ReplicaRecord,
    State,
    changed,
)
from fencepost.store.base import (
    Seen,
)
from fencepost.store.rows import Rows
from fencepost.store.rules.ledger import crash, finish


def has_lost_data(lease: Lease, replica: ReplicaRecord | None, seen: Seen) -> bool:
    """Whether a replica was told of more than the store knows. What was told in an older incarnation counts as
    long as there is doubt about the present one; then a replica never heard of is itself a sign."""
    era = lease.era
    present = (seen.incarnation, seen.server) == (era.incarnation, era.server)
    if not present and era.standing != "restarted":
        return seen.incarnation >= era.incarnation
    if replica is None:
        return not present and seen.steps > 0
    return seen.incarnation > era.incarnation or seen.term > lease.term or seen.steps > replica.steps


def restarted(rows: Rows, at: Moment, server: str) -> None:
    """The server has started anew and may have lost what it acknowledged: nothing is claimed until the
    replicas could say what they have seen."""
    era = rows.leader.era
    era = changed(era, incarnation=era.incarnation + 1, standing="restarted", server=server)
    rows.leader = changed(rows.leader, era=era)


def begin_anew(rows: Rows, at: Moment, seen: Seen) -> None:
    """Something was lost. Which fires have run meanwhile cannot be known, so what is undecided up to now is
    taken for run, unless it may run twice. Old tokens and terms are outranked."""
    lease = rows.leader
    incarnation = max(lease.era.incarnation, seen.incarnation) + 1
    # Later than the one before, however the clock has stepped: replicas tell losses apart by it.
    before = lease.era.lost_through
    lost_through = at.wall if before is None else max(at.wall, before + timedelta(microseconds=1))
    era = Era(incarnation, "lost", lost_through, lease.era.server)
    rows.leader = changed(lease, holder=None, term=max(lease.term, seen.term), era=era)
    doubt_through(rows, seen)
    for record in sorted(rows.jobs.busy(), key=lambda record: record.id):
        for fire in rows.fires.active(record.id):
            if fire.state is State.RUNNING:
                crash(rows, at, fire, Reason.DATA_LOSS)
            elif record.job.after_crash == "record":
                finish(rows, at, fire, State.LOST, Reason.DATA_LOSS)
    for id in rows.jobs.unread():  # whether it may run twice cannot be read
        for fire in rows.fires.active(id):
            if fire.state is State.RUNNING:
                fire = changed(fire.ended(at.wall, "lost"), crashes=fire.crashes + 1)
            finish(rows, at, fire, State.LOST, Reason.DATA_LOSS)
    rows.notify = True


def doubt_through(rows: Rows, seen: Seen) -> None:
    """The clock may have stepped back together with the loss, as it does where another machine takes over: what
    was due by the clock that others have seen may have run as well."""
    era = rows.leader.era
    if seen.latest is not None and era.lost_through is not None and seen.latest > era.lost_through:
        rows.leader = changed(rows.leader, era=changed(era, lost_through=seen.latest))
