"""The operations of a store: presence and leadership, fires and claims.

One method per store operation, each taking the store's `Moment`. No I/O, no clock, no chance: the same
operations at the same moments give the same rows and the same replies.

Safety lives in the fire's row and its token; leadership only saves work.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobRecord, Lease, Reason, ReplicaRecord, State, changed
from fencepost.store.base import (
    Added,
    Beat,
    Campaign,
    Claim,
    Claimed,
    ClaimRequest,
    GiveBack,
    Held,
    NewFire,
    Pulse,
    Report,
    RetryLater,
    Roster,
    Settle,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.calendars import Calendars
from fencepost.store.decide import Closing, decide
from fencepost.store.ledger import later
from fencepost.store.rules import LOOK_AGAIN, MANUAL_QUEUE_LIMIT, is_dead, may_take_over

MOST_JOBS = 1000
"""Jobs one claim decides at the most."""


class Operations(Calendars):
    remembers_empty_claims = True
    """Whether a claim that found nothing is written down. A message that can be delayed, and so arrive twice,
    makes that necessary; where there is no network it would only cost a commit."""

    # --- presence and leadership ------------------------------------------------------------------

    def heartbeat(self, at: Moment, beat: Beat) -> Pulse:
        known = self.replica(beat.replica)
        if known is None and not beat.joining:
            return Pulse(at.wall, False, self.leader)
        if known is None:
            known = ReplicaRecord(
                id=beat.replica,
                host=beat.host,
                pid=beat.pid,
                version=beat.version,
                joined_at=at.wall,
                ttl=beat.ttl,
                heartbeat=beat.heartbeat,
                expires=at.steady + beat.ttl,
                claim_no=beat.claim_no,
            )
            self.put_replica(known)
            self.hinted = True  # the leader watches only those it has heard of
        if beat.number > known.beat_no:
            self._renew(at, known, beat)
        held = tuple(
            Held(fire.key, fire.token, fire.claim_no, fire.cancel_requested)
            for fire in self.running_of(beat.replica)
        )
        return Pulse(at.wall, True, self.leader, held)

    def _renew(self, at: Moment, known: ReplicaRecord, beat: Beat) -> None:
        targets = known.targets if beat.targets is None else tuple(sorted(set(beat.targets)))
        self.put_replica(
            changed(
                known,
                expires=at.steady + beat.ttl,
                ttl=beat.ttl,
                heartbeat=beat.heartbeat,
                renewals=known.renewals + 1,
                beat_no=beat.number,
                targets=targets,
                draining=beat.draining,
            )
        )
        if targets != known.targets:
            self._adopt(at, targets)
        if beat.draining:
            self._resign(known.id)
        elif beat.campaign is not None:
            self._campaign(at, known.id, beat.heartbeat, beat.campaign)

    def _campaign(self, at: Moment, replica: str, heartbeat: float, campaign: Campaign) -> None:
        lease = self.leader
        if lease.holder == replica:
            term, renewals = lease.term, lease.renewals + 1
        elif lease.holder is None or may_take_over(at, lease, campaign.watched):
            term, renewals = lease.term + 1, 0
        else:
            return
        self.leader = Lease(replica, term, renewals, campaign.ttl, heartbeat, at.steady + campaign.ttl)

    def _resign(self, replica: str) -> None:
        if self.leader.holder == replica:
            self.leader = changed(self.leader, holder=None)
            self.hinted = True

    def leave(self, at: Moment, replica: str) -> None:
        for fire in self.running_of(replica):
            self._update(at, GiveBack(fire.key, fire.token))
        self._resign(replica)
        self.drop_replica(replica)

    def roster(self, at: Moment) -> Roster:
        replicas = tuple(self.every_replica())
        overdue = frozenset(replica.id for replica in replicas if replica.expires <= at.steady)
        return Roster(at.wall, self.leader, replicas, overdue)

    def sweep(self, at: Moment, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        if not self._leads(by, term):
            return None
        expired, settled = [], []
        for suspect in suspects:
            replica = self.replica(suspect.replica)
            if replica is None or not is_dead(at, replica, suspect):
                continue
            settled += [self._crash(at, fire) for fire in self.running_of(replica.id)]
            self.drop_replica(replica.id)
            expired.append(replica.id)
        self._notice_unknown_targets(at)
        if settled:
            self.hinted = True
        return Swept(self.roster(at), tuple(expired), tuple(settled))

    def _crash(self, at: Moment, fire: FireRecord) -> FireRecord:
        """Its replica is dead. Whether the body ran is unknowable: record it, or run it again if so asked."""
        job = self._job(fire.job_id).job
        fire = changed(fire.ended(at.wall, "lost"), crashes=fire.crashes + 1)
        if job.after_crash == "rerun" and fire.crashes < job.crash_attempts and not fire.cancel_requested:
            return self._wait_again(at, fire, at.wall)
        worn_out = job.after_crash == "rerun" and fire.crashes >= job.crash_attempts
        reason = Reason.CRASHED if worn_out else Reason.REPLICA_DIED
        return self._finish(at, fire, State.LOST, reason)

    def _leads(self, replica: str, term: int | None) -> bool:
        return term is not None and self.leader.holder == replica and self.leader.term == term

    def reboot(self, at: Moment) -> tuple[FireRecord, ...]:
        """The machine all replicas ran on has started anew: that every one of them is dead is proven."""
        settled: list[FireRecord] = []
        for replica in self.every_replica():
            settled += [self._crash(at, fire) for fire in self.running_of(replica.id)]
            self.drop_replica(replica.id)
        self.leader = changed(self.leader, holder=None)
        return tuple(settled)

    # --- fires and claims -----------------------------------------------------------------------------

    def add_fire(self, at: Moment, new: NewFire) -> Added:
        existing = self.fire(new.key)
        if existing is not None:
            return Added("exists", existing)
        record = self.job(new.job_id)
        if record is None or record.removed_at:
            return Added("no such job")
        active = self.active_fires(record.id)
        waiting = [fire for fire in self.due_fires(record.id, at.wall) if not fire.scheduled]
        if new.if_active == "refuse" and (active or waiting):
            return Added("active", (active or waiting)[0])
        if len(waiting) >= MANUAL_QUEUE_LIMIT:
            return Added("full", waiting[0])
        fire = FireRecord(new.key, new.job_id, at.wall, scheduled=False, args=new.args, by=new.by)
        self.put_fire(fire)
        self._keep(at, record)
        self.hinted = True
        return Added("added", fire)

    def claim_fires(self, at: Moment, request: ClaimRequest) -> Claimed:
        """Decide what is due for this replica and claim up to `room` of it.

        A reply can be lost after the commit. The replica then asks again under the same number and gets the
        same claims; a lower number is a message from the past and gets nothing. Without this a lost reply
        would leave fires claimed by a live replica that never heard of them.
        """
        replica = self.replica(request.replica)
        if replica is None or request.number < replica.claim_no:
            return Claimed()
        if request.number == replica.claim_no:
            mine = [f for f in self.running_of(replica.id) if f.claim_no == request.number]
            return Claimed(tuple(Claim(fire, self._job(fire.job_id).job) for fire in mine), wake_in=0.0)
        leads = self._leads(request.replica, request.term)
        # Costs follow what can be claimed: not many more jobs are looked at than there is room for.
        due = self._due_for(at, replica, leads, max(50, 2 * request.room) if request.room else MOST_JOBS)
        if not due and not self.remembers_empty_claims:
            return Claimed(wake_in=self._wake_in(at, replica, leads))
        # A claim is a sign of life: what it hands out is held for a whole TTL from now.
        replica = changed(
            replica,
            claim_no=request.number,
            renewals=replica.renewals + 1,
            expires=at.steady + replica.ttl,
        )
        self.put_replica(replica)
        claims: list[Claim] = []
        closed: list[FireRecord] = []
        self.preload(at.wall, jobs=due)
        for job_id in due:
            if len(claims) >= request.room > 0:
                break
            self._decide_job(at, replica, self._job(job_id), request.room - len(claims), claims, closed)
        return Claimed(tuple(claims), tuple(closed), self._wake_in(at, replica, leads))

    def _decide_job(
        self,
        at: Moment,
        replica: ReplicaRecord,
        record: JobRecord,
        room: int,
        claims: list[Claim],
        closed: list[FireRecord],
    ) -> None:
        decision = decide(self._view(at, record), at.wall, room)
        rows: dict[str, None] = {}
        for closing in decision.closings:
            record = self._close(at, record, closing)
            rows[record.tail or ""] = None
        for fire in decision.queued:
            self.put_fire(changed(fire, state=State.QUEUED))
        for fire in decision.claims:
            record, claimed = self._claim(at, record, fire, replica)
            claims.append(Claim(claimed, record.job))
        closed += [fire for fire in (self.fire(key) for key in rows) if fire]
        self._keep(at, record, LOOK_AGAIN if decision.contended else None)

    def _claim(
        self, at: Moment, record: JobRecord, fire: FireRecord, replica: ReplicaRecord
    ) -> tuple[JobRecord, FireRecord]:
        token = record.token + 1
        fire = changed(
            fire,
            state=State.RUNNING,
            token=token,
            replica=replica.id,
            claim_no=replica.claim_no,
            attempt=fire.attempt + 1,
            not_before=None,
            started_at=at.wall,
        )
        self.put_fire(fire)
        decided = later(record, fire.due_at) if fire.scheduled else record.decided_through
        return changed(record, token=token, decided_through=decided), fire

    def update_claims(self, at: Moment, replica: str, updates: Sequence[Update]) -> Updated:
        self.preload(at.wall, fires=[update.key for update in updates])
        accepted = tuple(self._update(at, update) for update in updates)
        presence, leads = self.replica(replica), self.leader.holder == replica
        due = presence is not None and bool(self._due_for(at, presence, leads, limit=1))
        return Updated(accepted, due)

    def _update(self, at: Moment, update: Update) -> bool:
        """Compare and set on the token: only the current one may report, settle or give back. A settle
        repeated because its reply was lost finds its own token on the row and is answered alike."""
        fire = self.fire(update.key)
        if fire is None or fire.token != update.token:
            return False
        if fire.settled and fire.settled == update.token:
            return not isinstance(update, Report) and fire.attempts[-1].outcome == _outcome(update)
        if fire.state is not State.RUNNING:
            return False
        if isinstance(update, Report):
            self.put_fire(
                changed(
                    fire,
                    progress=fire.progress if update.progress is None else update.progress,
                    checkpoint=update.checkpoint if update.saves else fire.checkpoint,
                )
            )
            return True
        if isinstance(update, Settle):
            ended = changed(fire.ended(at.wall, _outcome(update), update.error), settled=update.token)
            self._finish(at, ended, update.state, update.reason)
        elif isinstance(update, RetryLater):
            ended = fire.ended(at.wall, _outcome(update), update.error)
            self._wait_again(at, ended, at.wall + timedelta(seconds=update.delay), settled=update.token)
        elif isinstance(update, GiveBack):
            # Nobody failed: what was given back does not count as an attempt.
            ended = changed(fire.ended(at.wall, _outcome(update)), attempt=fire.attempt - 1)
            self._wait_again(at, ended, at.wall, settled=update.token)
            self.hinted = True
        return True

    def cancel_fire(self, at: Moment, key: str, by: str = "") -> FireRecord | None:
        fire = self.fire(key)
        if fire is None:
            return None
        if fire.state is State.RUNNING:
            self.put_fire(changed(fire, cancel_requested=True))
            self.hinted = True
        elif fire.state is State.WAITING:
            self._finish(at, fire, State.CANCELLED, Reason.REQUESTED)
        elif not fire.state.final and (fire.due_at <= at.wall or not fire.scheduled):
            closing = Closing(fire, State.CANCELLED, Reason.REQUESTED)
            self._keep(at, self._close(at, self._job(fire.job_id), closing))
        return self.fire(key)

    def _due_for(self, at: Moment, replica: ReplicaRecord, leads: bool, limit: int = MOST_JOBS) -> list[str]:
        return [] if replica.draining else self.due_looks(at.wall, replica, leads, limit)

    def _wake_in(self, at: Moment, replica: ReplicaRecord, leads: bool) -> float | None:
        soonest = self.soonest_look(replica, leads)
        return None if soonest is None else max(0.0, (soonest - at.wall).total_seconds())


def _outcome(update: Settle | RetryLater | GiveBack) -> str:
    """How an attempt is put on record."""
    if isinstance(update, Settle):
        return update.state.value
    return "retry" if isinstance(update, RetryLater) else "given back"
