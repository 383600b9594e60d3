"""Leadership: who holds the lease, and who may take it over. It only saves work: safety is in each fire's token."""

from __future__ import annotations

from fencepost.clock import Moment
from fencepost.model import LEADERSHIP, JobEvent, Lease, changed
from fencepost.store.base import (
    Campaign,
    Watched,
)
from fencepost.store.rows import Rows

OBSERVED = 1.5


def is_leader(rows: Rows, replica: str, term: int | None) -> bool:
    return term is not None and rows.leader.holder == replica and rows.leader.term == term


def campaign_for(rows: Rows, at: Moment, replica: str, heartbeat: float, campaign: Campaign) -> None:
    lease = rows.leader
    if lease.holder == replica:
        term, renewals = lease.term, lease.renewals + 1
    elif lease.holder is None or may_take_over(at, lease, campaign.watched):
        term, renewals = lease.term + 1, 0
        rows.jobs.note(JobEvent(LEADERSHIP, at.wall, "led", term, at.wall, by=replica))
        rows.notify = True  # the others watch only a leader they know of, and this one may die at once
    else:
        return
    expires = at.steady + campaign.ttl
    rows.leader = Lease(replica, term, renewals, campaign.ttl, heartbeat, expires, lease.era)


def resign(rows: Rows, at: Moment, replica: str) -> None:
    if rows.leader.holder == replica:
        rows.jobs.note(JobEvent(LEADERSHIP, at.wall, "resigned", rows.leader.term, at.wall, by=replica))
        rows.leader = changed(rows.leader, holder=None)
        rows.notify = True


def may_take_over(at: Moment, lease: Lease, watched: Watched | None) -> bool:
    """Two witnesses: the store's clock says it expired, *and* a follower saw no renewal for one and a half
    heartbeats of its own steady time. Either alone is wrong sometimes: the store's clock may have stepped,
    the follower may have looked at a store that was down. If the store's clock has stepped back, so that the
    lease will not expire for long, one and a half TTLs of observation are enough by themselves."""
    if watched is None or (watched.term, watched.renewals) != (lease.term, lease.renewals):
        return False
    if watched.gone:
        return True
    expired = lease.expires <= at.steady
    return watched.seconds >= OBSERVED * (lease.heartbeat if expired else lease.ttl)
