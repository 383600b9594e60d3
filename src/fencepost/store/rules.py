"""Small pure rules of the protocol, shared by every store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import Gap, JobEvent, JobRecord, Lease, ReplicaRecord
from fencepost.store.base import Seen, Suspect, Watched

ORPHANED_AFTER = timedelta(hours=1)
"""A job whose task no live replica has known for so long is kept and shown, but not planned."""

MANUAL_QUEUE_LIMIT = 100
"""Manual fires of one job that may wait for their turn."""

LOOK_AGAIN = timedelta(milliseconds=500)
"""When a due fire could not be decided (its predecessor may be dead) it is looked at again after this."""

OBSERVED = 1.5


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


def is_dead(at: Moment, replica: ReplicaRecord, suspect: Suspect) -> bool:
    """The same rule for a replica and all its runs; proof of death needs no further witness."""
    if suspect.dead:
        return True
    if suspect.renewals != replica.renewals:
        return False
    expired = replica.expires <= at.steady
    return suspect.seconds >= OBSERVED * (replica.heartbeat if expired else replica.ttl)


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


def is_plain(
    record: JobRecord, absences: Sequence[Gap], look_at: datetime | None, waiting: Iterable[datetime]
) -> bool:
    """Whether a fire of this job that falls due alone, and is found in time, is simply claimed, and its end changes
    nothing for the job: no pause or absence of its task reaches beyond what has been decided, and nothing is held back
    beyond the moment that `waiting` tells of it, so that the end of a run might let it go."""
    decided = record.decided_through
    gaps = (*record.pauses, *record.past, *absences)
    return (
        record.removed_at is None
        and all(gap.until is not None and decided is not None and gap.until <= decided for gap in gaps)
        and all(look_at is not None and moment >= look_at for moment in waiting)
    )


def needed_events(events: Sequence[JobEvent], before: datetime) -> list[JobEvent]:
    """What is still needed to say what was due after `before`: the definition and the pause then in force,
    and everything since."""
    definition = pause = None
    for event in events:
        if event.at >= before:
            break
        if event.kind in ("defined", "removed"):
            definition = event
        elif event.kind == "paused" and (event.until is None or event.until > before):
            pause = event
        else:
            pause = None
    return [event for event in events if event.at >= before or event is definition or event is pause]
