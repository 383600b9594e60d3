"""Presence: heartbeats, who is alive, and what a dead replica ran."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.clock import Moment
from fencepost.model import (
    FireRecord,
    Reason,
    ReplicaRecord,
    changed,
)
from fencepost.model.replicas import STEPS_OF_A_PRESENCE
from fencepost.store.base import (
    GiveBack,
    HeartbeatReply,
    HeartbeatRequest,
    Held,
    Roster,
    Suspect,
    Swept,
)
from fencepost.store.rows import Rows
from fencepost.store.rules import chains
from fencepost.store.rules.data_loss import begin_anew, doubt_through, has_lost_data
from fencepost.store.rules.leadership import OBSERVED, campaign_for, is_leader, resign
from fencepost.store.rules.ledger import crash
from fencepost.store.rules.targets import adopt, notice_unknown_targets
from fencepost.store.rules.updates import update_claim

STEPS_A_SECOND = 1 << 20
"""More than any replica takes. A count made of the time has less than 53 bits."""


def heartbeat(rows: Rows, at: Moment, request: HeartbeatRequest) -> HeartbeatReply:
    known = rows.replicas.get(request.replica)
    if has_lost_data(rows.leader, known, request.seen):
        begin_anew(rows, at, request.seen)
    elif rows.leader.era.standing == "lost" and request.seen.incarnation < rows.leader.era.incarnation:
        doubt_through(rows, request.seen)
    if known is None and not request.joining:
        known = _presence_anew(rows, at, request)
        if known is None:
            return HeartbeatReply(at.wall, False, rows.leader)
    if known is None:
        known = _newcomer(at, request)
        rows.replicas.put(known)
        rows.notify = True  # the leader watches only those it has heard of
    if request.number > known.beat_no:
        known = _renew(rows, at, known, request)
    held = tuple(
        Held(fire.key, fire.token, fire.claim_no, fire.cancel_requested)
        for fire in rows.fires.running_of(request.replica)
    )
    return HeartbeatReply(at.wall, True, rows.leader, held, known.steps, _peers(rows, at, known))


def _peers(rows: Rows, at: Moment, replica: ReplicaRecord) -> tuple[str, ...]:
    return tuple(
        each.id
        for each in rows.replicas.every()
        if each.id != replica.id
        and each.targets == replica.targets
        and each.claim_no > 0
        and not each.draining
        and each.expires > at.steady
    )


def _newcomer(at: Moment, request: HeartbeatRequest) -> ReplicaRecord:
    return ReplicaRecord(
        id=request.replica,
        host=request.host,
        pid=request.pid,
        version=request.version,
        joined_at=at.wall,
        ttl=request.ttl,
        heartbeat=request.heartbeat,
        expires=at.steady + request.ttl,
        claim_no=request.claim_no,
    )


def _presence_anew(rows: Rows, at: Moment, request: HeartbeatRequest) -> ReplicaRecord | None:
    """A presence that is there and cannot be read, from the heartbeat that shows that its replica lives. If it is not
    known either which tasks that one knows, it must join again."""
    broken = next((each for each in rows.replicas.broken() if each.id == request.replica), None)
    targets = broken.targets if broken is not None and request.targets is None else request.targets
    if broken is None or not targets:
        return None
    # The heartbeat may have been held up, and its replica has learned more since: counting goes on above all that can
    # have been counted, so that the next heartbeat does not look like proof of a loss. It may even be older than the
    # one by which the presence was written anew before, so the time counts as well.
    least = int(at.wall.timestamp()) * STEPS_A_SECOND
    steps = max(broken.steps, request.seen.steps, least) + STEPS_OF_A_PRESENCE // 2
    claim_no = max(broken.claim_no, request.claim_no)
    numbers = {"renewals": broken.renewals, "beat_no": broken.beat_no, "claim_no": claim_no, "steps": steps}
    return changed(_newcomer(at, request), targets=targets, **numbers)


def _renew(rows: Rows, at: Moment, known: ReplicaRecord, request: HeartbeatRequest) -> ReplicaRecord:
    targets = known.targets if request.targets is None else tuple(sorted(set(request.targets)))
    renewed = changed(
        known,
        expires=at.steady + request.ttl,
        ttl=request.ttl,
        heartbeat=request.heartbeat,
        renewals=known.renewals + 1,
        beat_no=request.number,
        steps=max(known.steps, request.seen.steps) + 1,
        targets=targets,
        draining=request.draining,
        lingering=known.lingering if request.lingering is None else request.lingering,
    )
    rows.replicas.put(renewed)
    if targets != known.targets:
        adopt(rows, at, targets)
    if request.draining and not known.draining:
        rows.notify = True  # the others shall not wait for it to claim
    if request.draining:
        resign(rows, at, known.id)
    elif request.campaign is not None:
        campaign_for(rows, at, known.id, request.heartbeat, request.campaign)
    return renewed


def leave(rows: Rows, at: Moment, replica: str) -> None:
    for fire in _sound_runs(rows, replica):
        if fire.token <= rows.leader.era.first_token:
            # Claimed before the server restarted. The replica may have settled it, and the store have lost that.
            crash(rows, at, fire, Reason.DATA_LOSS)
        else:
            update_claim(rows, at, GiveBack(fire.key, fire.token))
    resign(rows, at, replica)
    if not _holds_stuck(rows, replica):
        rows.replicas.drop(replica)


def _sound_runs(rows: Rows, replica: str) -> list[FireRecord]:
    """Not those whose job cannot be read: it is not known what becomes of a run that was cut off."""
    return [fire for fire in rows.fires.running_of(replica) if rows.jobs.get(fire.job_id) is not None]


def _holds_stuck(rows: Rows, replica: str) -> bool:
    """Its presence is kept, also when it is dead: what it ran is settled when it can be read, or is removed."""
    runs = rows.fires.running_of(replica)
    return any(rows.jobs.get(fire.job_id) is None for fire in runs) or rows.fires.holds_broken(replica)


def roster(rows: Rows, at: Moment) -> Roster:
    replicas = tuple(_presences(rows))
    overdue = frozenset(replica.id for replica in replicas if replica.expires <= at.steady)
    return Roster(at.wall, rows.leader, replicas, overdue, at.steady)


def _presences(rows: Rows) -> list[ReplicaRecord]:
    broken = rows.replicas.broken()
    found = rows.replicas.every()
    return sorted([*found, *broken], key=lambda replica: replica.id) if broken else found


def sweep(rows: Rows, at: Moment, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
    if not is_leader(rows, by, term):
        return None
    expired, settled = [], []
    present = {replica.id: replica for replica in _presences(rows)}
    for suspect in suspects:
        replica = present.get(suspect.replica)
        if replica is None or not is_dead(at, replica, suspect):
            continue
        settled += _crash_all(rows, at, replica.id)
        if not _holds_stuck(rows, replica.id):
            rows.replicas.drop(replica.id)
            expired.append(replica.id)
    notice_unknown_targets(rows, at)
    chains.catch_up(rows, at)
    if settled:
        rows.notify = True
    return Swept(roster(rows, at), tuple(expired), tuple(settled))


def is_dead(at: Moment, replica: ReplicaRecord, suspect: Suspect) -> bool:
    """The same rule for a replica and all its runs; proof of death needs no further witness."""
    if suspect.dead:
        return True
    if suspect.renewals != replica.renewals:
        return False
    expired = replica.expires <= at.steady
    return suspect.seconds >= OBSERVED * (replica.heartbeat if expired else replica.ttl)


def _crash_all(rows: Rows, at: Moment, replica: str) -> list[FireRecord]:
    return [crash(rows, at, fire) for fire in _sound_runs(rows, replica)]


def reboot(rows: Rows, at: Moment) -> tuple[FireRecord, ...]:
    """The machine all replicas ran on has started anew: that every one of them is dead is proven."""
    settled: list[FireRecord] = []
    for replica in _presences(rows):
        settled += _crash_all(rows, at, replica.id)
        if not _holds_stuck(rows, replica.id):
            rows.replicas.drop(replica.id)
    rows.leader = changed(rows.leader, holder=None)
    return tuple(settled)
