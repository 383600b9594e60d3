"""Claims: a replica asks for work, the fires due for it are decided, and it gets as many as it has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    FireRecord,
    JobRecord,
    Reason,
    ReplicaRecord,
    State,
    changed,
)
from fencepost.store.base import (
    Claim,
    Claimed,
    ClaimRequest,
    Upcoming,
)
from fencepost.store.rows import Fast, Rows
from fencepost.store.rules import limits, outbox
from fencepost.store.rules.decide import Closing, DecidedJob, Decision, decide
from fencepost.store.rules.leadership import is_leader
from fencepost.store.rules.ledger import close, finish, keep, later, stored_job
from fencepost.store.rules.remote import MOST_AT_ONCE, handed_over, not_started

MOST_JOBS = 1000
"""Jobs one claim decides at the most."""

DECIDE_AGAIN = timedelta(milliseconds=500)
"""When a due fire could not be decided (its predecessor may be dead) it is decided again after this."""


def claim_fires(rows: Rows, at: Moment, request: ClaimRequest) -> Claimed:
    """Decide what is due for this replica and claim up to `room` of it.

    A reply can be lost after the commit. The replica then asks again under the same number and gets the
    same claims; a lower number is a message from the past and gets nothing. Without this a lost reply
    would leave fires claimed by a live replica that never heard of them.
    """
    replica, era = rows.replicas.get(request.replica), rows.leader.era
    if replica is None or request.number < replica.claim_no:
        return Claimed()
    if (request.incarnation, request.server) != (era.incarnation, era.server):
        return Claimed()
    if request.number == replica.claim_no:
        mine = [f for f in rows.fires.running_of(replica.id) if f.claim_no == request.number]
        rows.preload(at.wall, records=[fire.job_id for fire in mine])
        jobs = [(fire, rows.jobs.get(fire.job_id)) for fire in mine]
        again = tuple(Claim(fire, job.job) for fire, job in jobs if job and not rows.jobs.aside(job.id))
        return Claimed(again, wake_in=0.0, steps=replica.steps)
    if era.standing != "settled":
        rows.leader = changed(rows.leader, era=changed(era, standing="settled"))
    leads = is_leader(rows, request.replica, request.term)
    due = due_for(rows, at, replica, leads, jobs_to_decide(request.room))
    if not due and not rows.remembers_empty_claims:
        wake_in, ahead = next_moments(rows, at, replica, leads, request.ahead)
        return Claimed(wake_in=wake_in, steps=replica.steps, ahead=ahead)
    # A claim is a sign of life: what it hands out is held for a whole TTL from now.
    replica = changed(
        replica,
        claim_no=request.number,
        renewals=replica.renewals + 1,
        steps=replica.steps + 1,
        expires=at.steady + replica.ttl,
    )
    rows.replicas.put(replica)
    return claim_due(rows, at, replica, leads, request.room, due, request.ahead)


@dataclass
class Closed:
    """Rows that a claim has closed, and how many fires of each."""

    rows: list[FireRecord] = field(default_factory=list)
    now: dict[str, int] = field(default_factory=dict)

    def add(self, fire: FireRecord | None, number: int) -> None:
        if fire is not None:
            self.rows.append(fire)
            self.now[fire.key] = number


def claim_due(
    rows: Rows, at: Moment, replica: ReplicaRecord, leads: bool, room: int, due: Sequence[str], number: int
) -> Claimed:
    """`number`: of the moments ahead that the reply lists."""
    claims: list[Claim] = []
    closed = Closed()
    fast = rows.fast_due(at.wall, due) if room and rows.leader.era.lost_through is None else {}
    rows.preload(at.wall, jobs=[id for id in due if id not in fast])
    fast_claims: list[Fast] = []
    for job_id in due:
        if len(claims) >= room > 0:
            break
        if rows.jobs.aside(job_id):
            continue
        if job_id in fast:
            record, fire = _claimed(rows, at, fast[job_id].record, fast[job_id].fire, replica)
            fast_claims.append(Fast(record, fire, fast[job_id].next_at))
            claims.append(Claim(fire, record.job))
        else:
            decide_job(rows, at, replica, stored_job(rows, job_id), room - len(claims), claims, closed)
    if fast_claims:
        rows.put_fast_claims(fast_claims)
    wake_in, ahead = next_moments(rows, at, replica, leads, number)
    return Claimed(tuple(claims), tuple(closed.rows), wake_in, replica.steps, closed.now, ahead)


def decide_job(
    rows: Rows,
    at: Moment,
    replica: ReplicaRecord,
    record: JobRecord,
    room: int,
    claims: list[Claim],
    closed: Closed,
) -> None:
    record = _without_lost(rows, at, record)
    record = _without_removed(rows, at, record)
    engine = record.job.engine
    decision = decide(_view(rows, at, record), at.wall, room if engine is None else MOST_AT_ONCE)
    if decision.replaced:
        record = _make_room(rows, at, record, decision)
    numbers: Counter[str] = Counter()
    for closing in decision.closings:
        record = close(rows, at, record, closing)
        numbers[record.tail or ""] += closing.fire.count
    for fire in decision.queued:
        # To admit it is a decision: where the store's clock steps back, no calendar may plan it again.
        record = changed(record, decided_through=later(record, fire.due_at))
        rows.fires.put(changed(fire, state=State.QUEUED))
    for fire in decision.claims:
        record, claimed = _claimed(rows, at, record, fire, replica)
        if engine is not None:
            rows.fires.put(handed_over(rows, at, claimed, engine, replica))
            continue
        rows.fires.put(claimed)
        if record.watch:
            outbox.started(rows, at, record, claimed)
        claims.append(Claim(claimed, record.job, _free_at(at, record, fire)))
    if record.job.limits:
        record = limits.take(rows, at, record, decision.claims, decision.held)
    for key, number in numbers.items():
        closed.add(rows.fires.get(key), number)
    if record.skips and record.decided_through is not None:
        decided = record.decided_through
        record = changed(record, skips=tuple(each for each in record.skips if each.due_at > decided))
    keep(rows, at, record, DECIDE_AGAIN if decision.contended else None)


def _make_room(rows: Rows, at: Moment, record: JobRecord, decision: Decision) -> JobRecord:
    """Ask runs to end for a newer fire; what only waits to be run again ends at once."""
    for fire in decision.replaced:
        asked = changed(fire, cancel_requested=True, refers_to=decision.replaced_by)
        rows.notify = rows.notify or fire.state is State.RUNNING
        if fire.state is State.WAITING:
            finish(rows, at, asked, State.CANCELLED, Reason.REPLACED)
        elif not_started(rows, fire):
            finish(rows, at, asked.ended(at.wall, "cancelled"), State.CANCELLED, Reason.REPLACED)
        else:
            rows.fires.put(asked)
    return stored_job(rows, record.id)


def _view(rows: Rows, at: Moment, record: JobRecord) -> DecidedJob:
    due = rows.fires.due(record.id, at.wall)
    active = rows.fires.active(record.id)
    overdue = any(_overdue(rows, at, fire) for fire in active)
    lost_through = rows.leader.era.lost_through if record.job.after_crash == "record" else None
    gaps, room = rows.targets.get(record.job.lane).gaps, limits.room_for(rows, at, record)
    return DecidedJob(record, due, active, overdue, gaps, room, lost_through)


def _overdue(rows: Rows, at: Moment, fire: FireRecord) -> bool:
    if fire.state is not State.RUNNING or fire.remote is not None:  # no replica holds what an engine runs
        return False
    presence = rows.replicas.get(fire.replica) if fire.replica else None
    return presence is None or presence.expires <= at.steady


def _without_lost(rows: Rows, at: Moment, record: JobRecord) -> JobRecord:
    """End what waited to be run again when data was lost, and could not be read just then: it may have run."""
    lost_through = rows.leader.era.lost_through
    if lost_through is None or record.job.after_crash != "record":
        return record
    for fire in rows.fires.active(record.id):
        if fire.state is State.WAITING and (fire.started_at or fire.due_at) <= lost_through:
            finish(rows, at, fire, State.LOST, Reason.DATA_LOSS)
    return stored_job(rows, record.id)


def _without_removed(rows: Rows, at: Moment, record: JobRecord) -> JobRecord:
    """Cancel the fires of a removed job: those that could not be read when it was removed, and those that began to wait
    for another attempt while the job could not be read."""
    if record.removed_at is None:
        return record
    for fire in rows.fires.active(record.id):
        if fire.state is State.WAITING:
            finish(rows, at, fire, State.CANCELLED, Reason.REMOVED)
    record = stored_job(rows, record.id)
    for fire in rows.fires.due(record.id, at.wall):
        record = close(rows, at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
    return record


def _claimed(
    rows: Rows, at: Moment, record: JobRecord, fire: FireRecord, replica: ReplicaRecord
) -> tuple[JobRecord, FireRecord]:
    token = max(record.token, rows.leader.era.first_token) + 1
    if record.job.jitter is not None and not fire.attempt:
        fire = changed(fire, jitter_seconds=record.job.jitter_of(fire).total_seconds())
    fire = changed(
        fire,
        state=State.RUNNING,
        token=token,
        replica=replica.id,
        claim_no=replica.claim_no,
        attempt=fire.attempt + 1,
        not_before=None,
        started_at=at.wall,
        remote=None,
    )
    decided = later(record, fire.due_at) if fire.scheduled else record.decided_through
    return changed(record, token=token, decided_through=decided), fire


def _free_at(at: Moment, record: JobRecord, fire: FireRecord) -> datetime | None:
    """Until when a fire waited for its turn: when the run before it ended, or a limit had room. Others are late, they
    do not wait."""
    waits = fire.state is State.QUEUED or not fire.scheduled
    if waits and record.job.limits:
        return at.wall
    before = record.last_run.finished_at if waits and record.last_run else None
    return before if before is not None and before > fire.due_at else None


def due_for(rows: Rows, at: Moment, replica: ReplicaRecord, leads: bool, limit: int = MOST_JOBS) -> list[str]:
    return [] if replica.draining else rows.jobs.due(at.wall, replica, leads, limit)


def next_moments(
    rows: Rows, at: Moment, replica: ReplicaRecord, leads: bool, number: int
) -> tuple[float | None, tuple[Upcoming, ...]]:
    """Seconds until something is due, and so many of the moments ahead; none while something is due."""
    ahead = tuple(rows.jobs.upcoming(replica, leads, number)) if number else ()
    soonest = ahead[0].at if ahead else rows.jobs.soonest(replica, leads)
    wake_in = wakes_in(at, soonest)
    return wake_in, ahead if wake_in else ()


def wakes_in(at: Moment, soonest: datetime | None) -> float | None:
    return None if soonest is None else max(0.0, (soonest - at.wall).total_seconds())


def jobs_to_decide(room: int) -> int:
    """Costs follow what can be claimed: hardly more jobs are looked at than there is room for."""
    return max(20, room) if room else MOST_JOBS
