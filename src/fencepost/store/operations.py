"""The operations of a store: presence and leadership, fires and claims.

One method per store operation, each taking the store's `Moment`. No I/O, no clock, no chance: the same
operations at the same moments give the same rows and the same replies.

Safety lives in the fire's row and its token; leadership only saves work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    LEADERSHIP,
    Era,
    FireRecord,
    JobEvent,
    JobRecord,
    Lease,
    Reason,
    ReplicaRecord,
    State,
    changed,
    crashed,
)
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
    Seen,
    Settle,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.calendars import Calendars
from fencepost.store.decide import Closing, decide
from fencepost.store.ledger import finished, later
from fencepost.store.rows import Plain
from fencepost.store.rules import LOOK_AGAIN, MANUAL_QUEUE_LIMIT, has_lost_data, is_dead, may_take_over
from fencepost.store.unreadable import RowUnreadable

MOST_JOBS = 1000
"""Jobs one claim decides at the most."""


@dataclass
class Closed:
    """Rows that a claim has closed, and how many fires of each."""

    rows: list[FireRecord] = field(default_factory=list)
    now: dict[str, int] = field(default_factory=dict)

    def add(self, fire: FireRecord | None, number: int) -> None:
        if fire is not None:
            self.rows.append(fire)
            self.now[fire.key] = number


class Operations(Calendars):
    remembers_empty_claims = True
    """Whether a claim that found nothing is written down. A message that can be delayed, and so arrive twice,
    makes that necessary; where there is no network it would only cost a commit."""
    may_lose_writes = True

    # --- presence and leadership ------------------------------------------------------------------

    def heartbeat(self, at: Moment, beat: Beat) -> Pulse:
        known = self.replica(beat.replica)
        if has_lost_data(self.leader, known, beat.seen):
            self._begin_anew(at, beat.seen)
        elif self.leader.era.standing == "lost" and beat.seen.incarnation < self.leader.era.incarnation:
            self._doubt_through(beat.seen)
        if known is None and not beat.joining:
            known = self._presence_anew(at, beat)
            if known is None:
                return Pulse(at.wall, False, self.leader)
        if known is None:
            known = _newcomer(at, beat)
            self.put_replica(known)
            self.hinted = True  # the leader watches only those it has heard of
        if beat.number > known.beat_no:
            known = self._renew(at, known, beat)
        held = tuple(
            Held(fire.key, fire.token, fire.claim_no, fire.cancel_requested)
            for fire in self.running_of(beat.replica)
        )
        return Pulse(at.wall, True, self.leader, held, known.steps)

    def _presence_anew(self, at: Moment, beat: Beat) -> ReplicaRecord | None:
        """A presence that is there and cannot be read, from the beat that shows that its replica lives. If it is not
        known either which tasks that one knows, it must join again."""
        broken = next((each for each in self.broken_replicas() if each.id == beat.replica), None)
        targets = broken.targets if broken is not None and beat.targets is None else beat.targets
        if broken is None or not targets:
            return None
        fresh = _newcomer(at, beat)
        return changed(fresh, targets=targets, steps=beat.seen.steps, renewals=broken.renewals)

    def _renew(self, at: Moment, known: ReplicaRecord, beat: Beat) -> ReplicaRecord:
        targets = known.targets if beat.targets is None else tuple(sorted(set(beat.targets)))
        renewed = changed(
            known,
            expires=at.steady + beat.ttl,
            ttl=beat.ttl,
            heartbeat=beat.heartbeat,
            renewals=known.renewals + 1,
            beat_no=beat.number,
            steps=max(known.steps, beat.seen.steps) + 1,
            targets=targets,
            draining=beat.draining,
            lingering=known.lingering if beat.lingering is None else beat.lingering,
        )
        self.put_replica(renewed)
        if targets != known.targets:
            self._adopt(at, targets)
        if beat.draining:
            self._resign(at, known.id)
        elif beat.campaign is not None:
            self._campaign(at, known.id, beat.heartbeat, beat.campaign)
        return renewed

    def _campaign(self, at: Moment, replica: str, heartbeat: float, campaign: Campaign) -> None:
        lease = self.leader
        if lease.holder == replica:
            term, renewals = lease.term, lease.renewals + 1
        elif lease.holder is None or may_take_over(at, lease, campaign.watched):
            term, renewals = lease.term + 1, 0
            self.note(JobEvent(LEADERSHIP, at.wall, "led", term, at.wall, by=replica))
        else:
            return
        expires = at.steady + campaign.ttl
        self.leader = Lease(replica, term, renewals, campaign.ttl, heartbeat, expires, lease.era)

    def _resign(self, at: Moment, replica: str) -> None:
        if self.leader.holder == replica:
            self.note(JobEvent(LEADERSHIP, at.wall, "resigned", self.leader.term, at.wall, by=replica))
            self.leader = changed(self.leader, holder=None)
            self.hinted = True

    def leave(self, at: Moment, replica: str) -> None:
        for fire in self._sound_runs(replica):
            if self.leader.era.standing == "restarted":
                self._crash(at, fire, Reason.DATA_LOSS)  # that it was settled may have been lost
            else:
                self._update(at, GiveBack(fire.key, fire.token))
        self._resign(at, replica)
        if not self._holds_stuck(replica):
            self.drop_replica(replica)

    def _sound_runs(self, replica: str) -> list[FireRecord]:
        """Not those whose job cannot be read: it is not known what becomes of a run that was cut off."""
        return [fire for fire in self.running_of(replica) if self.job(fire.job_id) is not None]

    def _holds_stuck(self, replica: str) -> bool:
        """Its presence is kept, also when it is dead: what it ran is settled when it can be read, or is removed."""
        runs = self.running_of(replica)
        return any(self.job(fire.job_id) is None for fire in runs) or self.holds_broken(replica)

    def _presences(self) -> list[ReplicaRecord]:
        broken = self.broken_replicas()
        found = self.every_replica()
        return sorted([*found, *broken], key=lambda replica: replica.id) if broken else found

    def roster(self, at: Moment) -> Roster:
        replicas = tuple(self._presences())
        overdue = frozenset(replica.id for replica in replicas if replica.expires <= at.steady)
        return Roster(at.wall, self.leader, replicas, overdue, at.steady)

    def sweep(self, at: Moment, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        if not self._leads(by, term):
            return None
        expired, settled = [], []
        present = {replica.id: replica for replica in self._presences()}
        for suspect in suspects:
            replica = present.get(suspect.replica)
            if replica is None or not is_dead(at, replica, suspect):
                continue
            settled += self._crash_all(at, replica.id)
            if not self._holds_stuck(replica.id):
                self.drop_replica(replica.id)
                expired.append(replica.id)
        self._notice_unknown_targets(at)
        if settled:
            self.hinted = True
        return Swept(self.roster(at), tuple(expired), tuple(settled))

    def _crash_all(self, at: Moment, replica: str) -> list[FireRecord]:
        return [self._crash(at, fire) for fire in self._sound_runs(replica)]

    def _crash(
        self,
        at: Moment,
        fire: FireRecord,
        died: Reason = Reason.REPLICA_DIED,
        error: str | None = None,
    ) -> FireRecord:
        """Its replica is dead. Whether the body ran is unknowable: record it, or run it again if so asked."""
        job = self._job(fire.job_id).job
        fire = changed(fire.ended(at.wall, "lost", error), crashes=fire.crashes + 1)
        if job.after_crash == "rerun" and fire.crashes < job.crash_attempts and not fire.cancel_requested:
            return self._wait_again(at, fire, at.wall)
        worn_out = job.after_crash == "rerun" and fire.crashes >= job.crash_attempts
        return self._finish(at, fire, State.LOST, crashed(fire.crashes) if worn_out else died)

    def _leads(self, replica: str, term: int | None) -> bool:
        return term is not None and self.leader.holder == replica and self.leader.term == term

    def reboot(self, at: Moment) -> tuple[FireRecord, ...]:
        """The machine all replicas ran on has started anew: that every one of them is dead is proven."""
        settled: list[FireRecord] = []
        for replica in self._presences():
            settled += self._crash_all(at, replica.id)
            if not self._holds_stuck(replica.id):
                self.drop_replica(replica.id)
        self.leader = changed(self.leader, holder=None)
        return tuple(settled)

    # --- when acknowledged writes may be gone ---------------------------------------------------------

    def restarted(self, at: Moment, server: str) -> None:
        """The server has started anew and may have lost what it acknowledged: nothing is claimed until the
        replicas could say what they have seen."""
        era = self.leader.era
        era = changed(era, incarnation=era.incarnation + 1, standing="restarted", server=server)
        self.leader = changed(self.leader, era=era)

    def _begin_anew(self, at: Moment, seen: Seen) -> None:
        """Something was lost. Which fires have run meanwhile nobody can say, so what is undecided up to now is
        taken for run, unless it may run twice. Old tokens and terms are outranked."""
        lease = self.leader
        incarnation = max(lease.era.incarnation, seen.incarnation) + 1
        # Later than the one before, however the clock has stepped: replicas tell losses apart by it.
        before = lease.era.lost_through
        lost_through = at.wall if before is None else max(at.wall, before + timedelta(microseconds=1))
        era = Era(incarnation, "lost", lost_through, lease.era.server)
        self.leader = changed(lease, holder=None, term=max(lease.term, seen.term), era=era)
        self._doubt_through(seen)
        for record in list(self.every_job()):
            for fire in self.active_fires(record.id):
                if fire.state is State.RUNNING:
                    self._crash(at, fire, Reason.DATA_LOSS)
                elif record.job.after_crash == "record":
                    self._finish(at, fire, State.LOST, Reason.DATA_LOSS)
        for id in self.unread_jobs():  # whether it may run twice cannot be read
            for fire in self.active_fires(id):
                if fire.state is State.RUNNING:
                    fire = changed(fire.ended(at.wall, "lost"), crashes=fire.crashes + 1)
                self._finish(at, fire, State.LOST, Reason.DATA_LOSS)
        self.hinted = True

    def _doubt_through(self, seen: Seen) -> None:
        """The clock may have stepped back together with the loss, as it does where another machine takes over: what
        was due by the clock that others have seen may have run as well."""
        era = self.leader.era
        if seen.latest is not None and era.lost_through is not None and seen.latest > era.lost_through:
            self.leader = changed(self.leader, era=changed(era, lost_through=seen.latest))

    # --- fires and claims -----------------------------------------------------------------------------

    def add_fire(self, at: Moment, new: NewFire) -> Added:
        existing = self.fire(new.key)
        if existing is not None:
            return Added("exists", existing)
        if self.broken_fire(new.key):
            raise RowUnreadable(f"fire {new.key} is stored, and cannot be read: it is not added again")
        self.preload(at.wall, jobs=[new.job_id])
        record = self.job(new.job_id)
        self._refuse_aside(new.job_id)
        if record is None or record.removed_at:
            return Added("no such job")
        active = self.active_fires(record.id)
        waiting = [fire for fire in self.due_fires(record.id, at.wall) if not fire.scheduled]
        if new.if_active == "refuse" and (active or waiting):
            return Added("active", (active or waiting)[0])
        if len(waiting) >= MANUAL_QUEUE_LIMIT:
            return Added("full", waiting[0])
        fire = FireRecord(new.key, new.job_id, at.wall, scheduled=False, args=new.args, by=new.by)
        fire = changed(fire, repeats=new.repeats)
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
        replica, era = self.replica(request.replica), self.leader.era
        if replica is None or request.number < replica.claim_no:
            return Claimed()
        if (request.incarnation, request.server) != (era.incarnation, era.server):
            return Claimed()
        if request.number == replica.claim_no:
            mine = [f for f in self.running_of(replica.id) if f.claim_no == request.number]
            jobs = [(fire, self.job(fire.job_id)) for fire in mine]
            again = tuple(Claim(fire, job.job) for fire, job in jobs if job and not self.aside(job.id))
            return Claimed(again, wake_in=0.0, steps=replica.steps)
        if era.standing != "settled":
            self.leader = changed(self.leader, era=changed(era, standing="settled"))
        leads = self._leads(request.replica, request.term)
        due = self._due_for(at, replica, leads, jobs_to_look_at(request.room))
        if not due and not self.remembers_empty_claims:
            return Claimed(wake_in=self._wake_in(at, replica, leads), steps=replica.steps)
        # A claim is a sign of life: what it hands out is held for a whole TTL from now.
        replica = changed(
            replica,
            claim_no=request.number,
            renewals=replica.renewals + 1,
            steps=replica.steps + 1,
            expires=at.steady + replica.ttl,
        )
        self.put_replica(replica)
        return self._claim_due(at, replica, leads, request.room, due)

    def _claim_due(
        self, at: Moment, replica: ReplicaRecord, leads: bool, room: int, due: Sequence[str]
    ) -> Claimed:
        claims: list[Claim] = []
        closed = Closed()
        plain = self.plain_due(at.wall, due) if room and self.leader.era.lost_through is None else {}
        self.preload(at.wall, jobs=[id for id in due if id not in plain])
        plainly: list[Plain] = []
        for job_id in due:
            if len(claims) >= room > 0:
                break
            if self.aside(job_id):
                continue
            if job_id in plain:
                record, fire = self._claimed(at, plain[job_id].record, plain[job_id].fire, replica)
                plainly.append(Plain(record, fire, plain[job_id].next_at))
                claims.append(Claim(fire, record.job))
            else:
                self._decide_job(at, replica, self._job(job_id), room - len(claims), claims, closed)
        if plainly:
            self.put_plain_claims(plainly)
        wake_in = self._wake_in(at, replica, leads)
        return Claimed(tuple(claims), tuple(closed.rows), wake_in, replica.steps, closed.now)

    def _decide_job(
        self,
        at: Moment,
        replica: ReplicaRecord,
        record: JobRecord,
        room: int,
        claims: list[Claim],
        closed: Closed,
    ) -> None:
        record = self._without_lost(at, record)
        decision = decide(self._view(at, record), at.wall, room)
        rows: Counter[str] = Counter()
        for closing in decision.closings:
            record = self._close(at, record, closing)
            rows[record.tail or ""] += closing.fire.count
        for fire in decision.queued:
            # To admit it is a decision: where the store's clock steps back, no calendar may plan it again.
            record = changed(record, decided_through=later(record, fire.due_at))
            self.put_fire(changed(fire, state=State.QUEUED))
        for fire in decision.claims:
            record, claimed = self._claimed(at, record, fire, replica)
            self.put_fire(claimed)
            claims.append(Claim(claimed, record.job, _free_at(record, fire)))
        for key, number in rows.items():
            closed.add(self.fire(key), number)
        self._keep(at, record, LOOK_AGAIN if decision.contended else None)

    def _without_lost(self, at: Moment, record: JobRecord) -> JobRecord:
        """End what waited to be run again when data was lost, and could not be read just then: it may have run."""
        lost_through = self.leader.era.lost_through
        if lost_through is None or record.job.after_crash != "record":
            return record
        for fire in self.active_fires(record.id):
            if fire.state is State.WAITING and (fire.started_at or fire.due_at) <= lost_through:
                self._finish(at, fire, State.LOST, Reason.DATA_LOSS)
        return self._job(record.id)

    def _claimed(
        self, at: Moment, record: JobRecord, fire: FireRecord, replica: ReplicaRecord
    ) -> tuple[JobRecord, FireRecord]:
        token = max(record.token, self.leader.era.first_token) + 1
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
        decided = later(record, fire.due_at) if fire.scheduled else record.decided_through
        return changed(record, token=token, decided_through=decided), fire

    def update_claims(self, at: Moment, replica: str, updates: Sequence[Update]) -> Updated:
        self._refuse_to_forget(at, updates)
        plainly = self._settle_plainly(at, updates)
        self.preload(at.wall, fires=[update.key for update in updates if update.key not in plainly])
        accepted = tuple(update.key in plainly or self._update(at, update) for update in updates)
        presence, leads = self.replica(replica), self.leader.holder == replica
        if presence is None:
            return Updated(accepted)
        # As long as there is doubt only beats count, which say what was seen: otherwise a count that was lost would be
        # made up by what is done now.
        if self.may_lose_writes and any(accepted) and self.leader.era.standing == "settled":
            presence = changed(presence, steps=presence.steps + 1)
            self.put_replica(presence)
        due = bool(self._due_for(at, presence, leads, limit=1))
        return Updated(accepted, due, presence.steps)

    def _refuse_to_forget(self, at: Moment, updates: Sequence[Update]) -> None:
        """What a run keeps for later ones is written with its outcome, or neither is; before anything is changed."""
        keeping = [each for each in updates if isinstance(each, Settle) and each.keep is not None]
        if keeping:
            self.preload(at.wall, fires=[settle.key for settle in keeping])
        for settle in keeping:
            fire = self.fire(settle.key)
            if fire is None or fire.state is not State.RUNNING or fire.token != settle.token:
                continue
            if self.job(fire.job_id) is None:
                self._refuse_aside(fire.job_id, f"what {fire.key} keeps for later runs cannot be stored: ")

    def _settle_plainly(self, at: Moment, updates: Sequence[Update]) -> set[str]:
        """Settle in bulk what can be; the keys of those settled."""
        times = Counter(update.key for update in updates)
        settles = [
            each
            for each in updates
            if isinstance(each, Settle) and times[each.key] == 1 and each.keep is None
        ]
        running = self.plain_running(at.wall, [each.key for each in settles])
        ends = [
            _settled(at, running[settle.key], settle)
            for settle in settles
            if settle.key in running and running[settle.key].token == settle.token
        ]
        if ends:
            self.put_plain_ends(ends)
        return {fire.key for fire in ends}

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
                    output=fire.output if update.output is None else update.output,
                )
            )
            return True
        if isinstance(update, Settle):
            settled = _settled(at, fire, update)
            self.put_fire(settled)
            record = self.job(fire.job_id)
            if record is None:
                self.look_soon(fire.job_id, at.wall)
            else:
                record = record.after_run(settled)
                self._keep(at, record if update.keep is None else changed(record, kept=update.keep))
        elif isinstance(update, RetryLater):
            ended = fire.ended(at.wall, _outcome(update), update.error)
            self._wait_again(at, ended, at.wall + timedelta(seconds=update.delay), settled=update.token)
        elif isinstance(update, GiveBack):
            # Nobody failed: what was given back does not count as an attempt.
            ended = changed(fire.ended(at.wall, _outcome(update)), attempt=fire.attempt - 1)
            self._wait_again(at, ended, at.wall, settled=update.token)
            self.hinted = True
        return True

    def cancel_fire(
        self, at: Moment, key: str, by: str = "", dead_token: int | None = None
    ) -> FireRecord | None:
        fire = self.fire(key)
        if self.broken_fire(key):
            raise RowUnreadable(
                f"fire {key} cannot be read: remove its job, or restore the row from a backup"
            )
        if fire is None or fire.state.final:
            return fire
        if dead_token is not None:
            return self._declare_dead(at, fire, by, dead_token)
        fire = changed(fire, cancelled_by=fire.cancelled_by or by)
        if fire.state is State.RUNNING:
            self.put_fire(changed(fire, cancel_requested=True))
            self.hinted = True
        elif fire.state is State.WAITING:
            self._finish(at, fire, State.CANCELLED, Reason.REQUESTED)
        elif fire.due_at <= at.wall or not fire.scheduled:
            closing = Closing(fire, State.CANCELLED, Reason.REQUESTED)
            self._keep(at, self._close(at, self._job(fire.job_id), closing))
        return self.fire(key)

    def _declare_dead(self, at: Moment, fire: FireRecord, by: str, token: int) -> FireRecord:
        """A person takes the place of both witnesses, for the one run they have seen. If its replica lives after all,
        the next heartbeat tells it that the token is gone."""
        if fire.state is not State.RUNNING or fire.token != token:
            return fire
        self.hinted = True
        who = f" by {by}" if by else ""
        return self._crash(at, fire, Reason.DECLARED_DEAD, f"{fire.replica} was declared dead{who}")

    def _due_for(self, at: Moment, replica: ReplicaRecord, leads: bool, limit: int = MOST_JOBS) -> list[str]:
        return [] if replica.draining else self.due_looks(at.wall, replica, leads, limit)

    def _wake_in(self, at: Moment, replica: ReplicaRecord, leads: bool) -> float | None:
        soonest = self.soonest_look(replica, leads)
        return None if soonest is None else max(0.0, (soonest - at.wall).total_seconds())


def _newcomer(at: Moment, beat: Beat) -> ReplicaRecord:
    return ReplicaRecord(
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


def jobs_to_look_at(room: int) -> int:
    """Costs follow what can be claimed: hardly more jobs are looked at than there is room for."""
    return max(20, room) if room else MOST_JOBS


def _free_at(record: JobRecord, fire: FireRecord) -> datetime | None:
    """Until when a fire waited for its turn: when the run before it ended. Others are late, they do not wait."""
    waits = fire.state is State.QUEUED or not fire.scheduled
    before = record.last_run.finished_at if waits and record.last_run else None
    return before if before is not None and before > fire.due_at else None


def _settled(at: Moment, fire: FireRecord, settle: Settle) -> FireRecord:
    ended = finished(at, fire.ended(at.wall, _outcome(settle), settle.error), settle.state, settle.reason)
    output = fire.output if settle.output is None else settle.output
    return changed(ended, settled=settle.token, output=output, result=settle.result)


def _outcome(update: Settle | RetryLater | GiveBack) -> str:
    """How an attempt is put on record."""
    if isinstance(update, Settle):
        return update.state.value
    return "retry" if isinstance(update, RetryLater) else "given back"
