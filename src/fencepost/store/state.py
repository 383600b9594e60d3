"""The reference model: what every store does, as plain data and deterministic steps.

One method per store operation, each taking the store's `Moment`. No I/O, no clock, no chance: the same
operations at the same moments give the same state and the same replies. It *is* the memory store, it is what
the simulator drives, what the file store logs and replays, and what SQL and Redis are compared with.

Safety lives in the fire's row and its token; leadership only saves work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    FireRecord,
    Gap,
    JobEvent,
    JobRecord,
    Lease,
    Reason,
    ReplicaRecord,
    Segment,
    State,
    fire_key,
)
from fencepost.store.agenda import Agenda
from fencepost.store.base import (
    Added,
    Beat,
    Campaign,
    ChangeJob,
    Claim,
    Claimed,
    ClaimRequest,
    DueJobs,
    FireQuery,
    GiveBack,
    Held,
    JobPut,
    NewFire,
    Plan,
    Pulse,
    PutJob,
    Report,
    RetryLater,
    Roster,
    Settle,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.decide import Closing, JobView, decide
from fencepost.store.rules import (
    LOOK_AGAIN,
    MANUAL_QUEUE_LIMIT,
    ORPHANED_AFTER,
    definition_outcome,
    is_dead,
    may_take_over,
)

MAX_PAUSES_KEPT = 100


class StoreState:
    def __init__(self) -> None:
        self.jobs_: dict[str, JobRecord] = {}
        self.fires: dict[str, FireRecord] = {}
        self.replicas: dict[str, ReplicaRecord] = {}
        self.leader = Lease()
        self.events: dict[str, list[JobEvent]] = {}
        self._open: dict[str, dict[str, FireRecord]] = {}
        """By job: pending and queued fires."""
        self._active: dict[str, dict[str, FireRecord]] = {}
        """By job: running and waiting fires."""
        self._held: dict[str, dict[str, None]] = {}
        """By replica: keys of its running fires."""
        self._final: dict[str, None] = {}
        """Keys of final fires, the last one closed or extended last."""
        self._unknown_since: dict[str, datetime] = {}
        """By target: since when no live replica knows it."""
        self._unknown: dict[str, tuple[Gap, ...]] = {}
        """By target: past stretches, an hour or longer, in which nobody knew it."""
        self._looks: dict[tuple[str, str], Agenda] = {}
        """By (target, execute_on): when a job's fires must next be decided."""
        self._plans = Agenda()
        """When a job's calendar must next be expanded (its first unplanned fire)."""
        self.hinted = False
        """Set by a step after which somebody may have something to do earlier than they know."""

    # --- presence and leadership ------------------------------------------------------------------

    def heartbeat(self, at: Moment, beat: Beat) -> Pulse:
        known = self.replicas.get(beat.replica)
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
            self.replicas[beat.replica] = known
        if beat.number > known.beat_no:
            self._renew(at, known, beat)
        held = tuple(
            Held(fire.key, fire.token, fire.claim_no, fire.cancel_requested)
            for fire in self._running_of(beat.replica)
        )
        return Pulse(at.wall, True, self.leader, held)

    def _renew(self, at: Moment, known: ReplicaRecord, beat: Beat) -> None:
        targets = known.targets if beat.targets is None else tuple(sorted(set(beat.targets)))
        self.replicas[known.id] = replace(
            known,
            expires=at.steady + beat.ttl,
            ttl=beat.ttl,
            heartbeat=beat.heartbeat,
            renewals=known.renewals + 1,
            beat_no=beat.number,
            targets=targets,
            draining=beat.draining,
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
            self.leader = replace(self.leader, holder=None)
            self.hinted = True

    def leave(self, at: Moment, replica: str) -> None:
        for fire in self._running_of(replica):
            self._wait_again(at, fire.ended(at.wall, "given back"), at.wall, settled=fire.token)
        self._resign(replica)
        self.replicas.pop(replica, None)
        self._held.pop(replica, None)

    def roster(self, at: Moment) -> Roster:
        overdue = frozenset(r.id for r in self.replicas.values() if r.expires <= at.steady)
        return Roster(at.wall, self.leader, tuple(self.replicas.values()), overdue)

    def sweep(self, at: Moment, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        if not self._leads(by, term):
            return None
        expired, settled = [], []
        for suspect in suspects:
            replica = self.replicas.get(suspect.replica)
            if replica is None or not is_dead(at, replica, suspect):
                continue
            settled += [self._crash(at, fire) for fire in self._running_of(replica.id)]
            del self.replicas[replica.id]
            self._held.pop(replica.id, None)
            expired.append(replica.id)
        self._notice_unknown_targets(at)
        if settled:
            self.hinted = True
        return Swept(self.roster(at), tuple(expired), tuple(settled))

    def _crash(self, at: Moment, fire: FireRecord) -> FireRecord:
        """Its replica is dead. Whether the body ran is unknowable: record it, or run it again if so asked."""
        job = self.jobs_[fire.job_id].job
        fire = replace(fire.ended(at.wall, "lost"), crashes=fire.crashes + 1)
        if job.after_crash == "rerun" and fire.crashes < job.crash_attempts and not fire.cancel_requested:
            return self._wait_again(at, fire, at.wall)
        reason = Reason.CRASHED if job.after_crash == "rerun" else Reason.REPLICA_DIED
        return self._finish(at, fire, State.LOST, reason)

    def _leads(self, replica: str, term: int | None) -> bool:
        return term is not None and self.leader.holder == replica and self.leader.term == term

    def _overdue(self, at: Moment, replica: str | None) -> bool:
        presence = self.replicas.get(replica or "")
        return presence is None or presence.expires <= at.steady

    def _running_of(self, replica: str) -> list[FireRecord]:
        return [self.fires[key] for key in self._held.get(replica, ())]

    # --- who knows which task -----------------------------------------------------------------------

    def _adopt(self, at: Moment, targets: Iterable[str]) -> None:
        """Somebody knows these tasks (again). A long absence is kept as a gap in their jobs' calendars."""
        for target in targets:
            since = self._unknown_since.pop(target, None)
            if since is not None and at.wall - since >= ORPHANED_AFTER:
                gap = Gap(since, at.wall)
                self._unknown[target] = (*self._unknown.get(target, ()), gap)[-MAX_PAUSES_KEPT:]
                for record in self.jobs_.values():
                    if record.job.target == target:
                        self._reschedule(at, record)

    def _notice_unknown_targets(self, at: Moment) -> None:
        known = {target for replica in self.replicas.values() for target in replica.targets}
        for target, _ in list(self._looks):
            if target in known:
                self._unknown_since.pop(target, None)
            else:
                self._unknown_since.setdefault(target, at.wall)

            if self.orphaned(at, target):
                self._close_orphans(at, target)

    def _close_orphans(self, at: Moment, target: str) -> None:
        for kind in ("any", "leader"):
            agenda = self._looks.get((target, kind))
            for _, job_id in agenda.due(at.wall, 1000) if agenda else ():
                record = self.jobs_[job_id]
                for fire in self._view(at, record).due:
                    record = self._close(at, record, Closing(fire, State.MISSED, Reason.UNKNOWN_TASK))
                self._keep(at, record)

    def orphaned(self, at: Moment, target: str) -> bool:
        since = self._unknown_since.get(target)
        return since is not None and at.wall - since >= ORPHANED_AFTER

    # --- jobs ---------------------------------------------------------------------------------------

    def put_jobs(self, at: Moment, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
        return tuple(self._put_job(at, put) for put in jobs)

    def _put_job(self, at: Moment, put: PutJob) -> JobPut:
        job, existing = put.job, self.jobs_.get(put.job.id)
        live = [replica for replica in self.replicas if not self._overdue(at, replica)]
        outcome = definition_outcome(existing, put, live)
        if outcome in ("exists", "older revision", "flip back"):
            return JobPut(job.id, outcome)
        if existing is None:
            existing = JobRecord(job, job.fingerprint, at.wall, at.wall)
            self.events[job.id] = []
        earlier = existing.earlier
        if outcome == "changed":
            earlier = (*(old for old in earlier if old != existing.fingerprint), existing.fingerprint)[-10:]
        declared = () if outcome == "changed" else existing.declared_by
        record = replace(
            existing,
            job=job,
            fingerprint=job.fingerprint,
            revision=existing.revision if put.revision is None else put.revision,
            declared_by=tuple(dict.fromkeys(each for each in (*declared, put.by) if each in live)),
            earlier=earlier,
        )
        if outcome != "unchanged":
            record = replace(record, changed_at=at.wall)
            if outcome == "created" or existing.removed_at or job.trigger != existing.job.trigger:
                record = self._start_calendar(at, record)
        if existing.job.target != job.target or existing.job.execute_on != job.execute_on:
            self._looks_of(existing).set(job.id, None)
        self._keep(at, record)
        self.hinted = self.hinted or outcome != "unchanged"
        return JobPut(job.id, outcome)

    def _start_calendar(self, at: Moment, record: JobRecord) -> JobRecord:
        """A new trigger. Planned rows that are not due were a cache of the old one: withdraw them. Rows that
        are due are facts and stay, and so does what the old calendar still owes before this moment: it is
        planned to its end first. The new one starts after the last fire decided, so that a moment on which
        both calendars agree is one fire, also where the store's clock has stepped back."""
        self._withdraw(at, record)
        since = max(at.wall, record.decided_through or at.wall)
        version = record.version + 1
        segments = self._ended(record.segments, at.wall)
        trigger = record.job.trigger.resolved(at.wall) if record.job.trigger else None
        if trigger is not None:
            segments = (*segments, Segment(version, trigger, cursor=since, next_at=since))
        self._note(
            JobEvent(record.id, at.wall, "defined", version, since, trigger.to_json() if trigger else None)
        )
        return replace(record, version=version, segments=segments, removed_at=None)

    def _withdraw(self, at: Moment, record: JobRecord) -> None:
        for fire in list(self._open.get(record.id, {}).values()):
            if fire.scheduled and fire.due_at > at.wall:
                self._forget(fire)

    def _ended(self, segments: tuple[Segment, ...], until: datetime) -> tuple[Segment, ...]:
        """The calendars as they stand when their job changes: open only as far as they are behind."""
        ended = []
        for segment in segments:
            end = min(until, segment.until or until)
            if segment.next_at is not None and segment.next_at <= end and segment.cursor < end:
                ended.append(replace(segment, until=end))
        return tuple(ended)

    def change_job(self, at: Moment, change: ChangeJob) -> JobRecord | None:
        record = self.jobs_.get(change.job_id)
        if record is None or record.removed_at:
            return None
        steps = {"pause": self._pause, "resume": self._resume, "remove": self._remove}
        record = steps[change.kind](at, record, change)
        self._keep(at, record)
        self.hinted = True
        return record

    def _pause(self, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
        record = self._resume(at, record, change)
        gap = Gap(at.wall, change.until, change.note, change.by)
        self._note(
            JobEvent(
                record.id,
                at.wall,
                "paused",
                record.version,
                at.wall,
                until=change.until,
                note=change.note,
                by=change.by,
            )
        )
        return replace(record, pauses=(*record.pauses, gap)[-MAX_PAUSES_KEPT:])

    def _resume(self, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
        if not record.paused_at(at.wall):
            return record
        pauses = tuple(replace(gap, until=at.wall) if gap.covers(at.wall) else gap for gap in record.pauses)
        self._note(JobEvent(record.id, at.wall, "resumed", record.version, at.wall, by=change.by))
        return replace(record, pauses=pauses)

    def _remove(self, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
        """Running fires end as they end; everything else of the job is closed. The row stays as a tombstone:
        its token and high-water mark must outlive it."""
        for fire in list(self._active.get(record.id, {}).values()):
            if fire.state is State.WAITING:
                self._finish(at, fire, State.CANCELLED, Reason.REMOVED)
        self._withdraw(at, record)
        for fire in list(self._open.get(record.id, {}).values()):
            record = self._close(at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
        self._note(JobEvent(record.id, at.wall, "removed", record.version, at.wall, by=change.by))
        return replace(
            record,
            removed_at=at.wall,
            changed_at=at.wall,
            declared_by=(),
            segments=self._ended(record.segments, at.wall),
        )

    def jobs(self, at: Moment, ids: Sequence[str] | None = None) -> tuple[JobRecord, ...]:
        wanted = self.jobs_.values() if ids is None else [self.jobs_[id] for id in ids if id in self.jobs_]
        return tuple(record for record in wanted if not record.removed_at)

    def history(self, at: Moment, job_id: str) -> tuple[JobEvent, ...]:
        return tuple(self.events.get(job_id, ()))

    def _note(self, event: JobEvent) -> None:
        self.events[event.job_id].append(event)

    # --- planning -----------------------------------------------------------------------------------

    def due_jobs(self, at: Moment, horizon: float, limit: int) -> DueJobs:
        until = at.wall + timedelta(seconds=horizon)
        found = []
        for _, job_id in self._plans.due(until, limit):
            record = self.jobs_[job_id]
            if not self.orphaned(at, record.job.target) or record.removed_at:
                found.append(record)
        targets = {record.job.target for record in found}
        gaps = {target: self._unknown[target] for target in sorted(targets) if target in self._unknown}
        return DueJobs(at.wall, tuple(found), self._plans.soonest(), gaps)

    def plan_fires(self, at: Moment, plans: Sequence[Plan]) -> tuple[bool, ...]:
        before = min((s for s in (agenda.soonest() for agenda in self._looks.values()) if s), default=None)
        planned = tuple(self._plan(at, plan) for plan in plans)
        first = min((row.first for plan in plans for row in plan.rows), default=None)
        if first is not None and (before is None or first < before):
            self.hinted = True
        return planned

    def _plan(self, at: Moment, plan: Plan) -> bool:
        record = self.jobs_.get(plan.job_id)
        head = record.segments[0] if record and record.segments else None
        if record is None or head is None:
            return False
        if (head.version, head.cursor, head.until) != (plan.version, plan.cursor, plan.until):
            return False
        cursor = head.cursor
        for row in plan.rows:
            assert row.first > cursor, "a calendar is strictly increasing"
            cursor = row.last
            if record.decided_through and row.first <= record.decided_through:
                continue
            key = fire_key(record.id, row.first)
            last = row.last if row.count > 1 else None
            fire = self._put(FireRecord(key, record.id, row.first, count=row.count, last_due_at=last))
            if record.removed_at:
                record = self._close(at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
        moved = replace(head, cursor=cursor, next_at=plan.next_at)
        done = plan.next_at is None or (head.until is not None and plan.next_at > head.until)
        segments = record.segments[1:] if done else (moved, *record.segments[1:])
        self._keep(at, replace(record, segments=segments))
        return True

    # --- fires and claims -----------------------------------------------------------------------------

    def add_fire(self, at: Moment, new: NewFire) -> Added:
        existing = self.fires.get(new.key)
        if existing is not None:
            return Added("exists", existing)
        record = self.jobs_.get(new.job_id)
        if record is None or record.removed_at:
            return Added("no such job")
        active = [*self._active.get(record.id, {}).values()]
        waiting = [fire for fire in self._open.get(record.id, {}).values() if not fire.scheduled]
        if new.if_active == "refuse" and (active or waiting):
            return Added("active", (active or waiting)[0])
        if len(waiting) >= MANUAL_QUEUE_LIMIT:
            return Added("full", waiting[0])
        fire = FireRecord(new.key, new.job_id, at.wall, scheduled=False, args=new.args, by=new.by)
        self._put(fire)
        self._keep(at, record)
        self.hinted = True
        return Added("added", fire)

    def claim_fires(self, at: Moment, request: ClaimRequest) -> Claimed:
        """Decide what is due for this replica and claim up to `room` of it.

        A reply can be lost after the commit. The replica then asks again under the same number and gets the
        same claims; a lower number is a message from the past and gets nothing. Without this a lost reply
        would leave fires claimed by a live replica that never heard of them.
        """
        replica = self.replicas.get(request.replica)
        if replica is None or request.number < replica.claim_no:
            return Claimed()
        if request.number == replica.claim_no:
            mine = [f for f in self._running_of(replica.id) if f.claim_no == request.number]
            return Claimed(tuple(self._claim_of(fire) for fire in mine), wake_in=0.0)
        # A claim is a sign of life: what it hands out is held for a whole TTL from now.
        replica = replace(
            replica,
            claim_no=request.number,
            renewals=replica.renewals + 1,
            expires=at.steady + replica.ttl,
        )
        self.replicas[replica.id] = replica
        leads = self._leads(request.replica, request.term)
        claims: list[Claim] = []
        closed: list[FireRecord] = []
        for job_id in self._due_for(at, replica, leads):
            if len(claims) >= request.room > 0:
                break
            self._decide_job(at, replica, self.jobs_[job_id], request.room - len(claims), claims, closed)
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
            self._put(replace(fire, state=State.QUEUED))
        for fire in decision.claims:
            record = self._claim(at, record, self.fires[fire.key], replica)
            claims.append(self._claim_of(self.fires[fire.key]))
        closed += [self.fires[key] for key in rows]
        self._keep(at, record, LOOK_AGAIN if decision.contended else None)

    def _view(self, at: Moment, record: JobRecord) -> JobView:
        due = sorted(
            (fire for fire in self._open.get(record.id, {}).values() if fire.due_at <= at.wall),
            key=lambda fire: (fire.due_at, fire.key),
        )
        active = list(self._active.get(record.id, {}).values())
        overdue = any(f.state is State.RUNNING and self._overdue(at, f.replica) for f in active)
        return JobView(record, due, active, overdue, self._unknown.get(record.job.target, ()))

    def _claim(self, at: Moment, record: JobRecord, fire: FireRecord, replica: ReplicaRecord) -> JobRecord:
        token = record.token + 1
        self._put(
            replace(
                fire,
                state=State.RUNNING,
                token=token,
                replica=replica.id,
                claim_no=replica.claim_no,
                attempt=fire.attempt + 1,
                not_before=None,
                started_at=at.wall,
            )
        )
        self._held.setdefault(replica.id, {})[fire.key] = None
        if not fire.scheduled:
            return replace(record, token=token)
        return replace(record, token=token, decided_through=_later(record, fire.due_at))

    def _claim_of(self, fire: FireRecord) -> Claim:
        return Claim(fire, self.jobs_[fire.job_id].job)

    def update_claims(self, at: Moment, replica: str, updates: Sequence[Update]) -> Updated:
        accepted = tuple(self._update(at, update) for update in updates)
        presence = self.replicas.get(replica)
        due = presence is not None and any(True for _ in self._due_for(at, presence, self._holds(replica)))
        return Updated(accepted, due)

    def _update(self, at: Moment, update: Update) -> bool:
        """Compare and set on the token: only the current one may report, settle or give back. A settle
        repeated because its reply was lost finds its own token on the row and is answered alike."""
        fire = self.fires.get(update.key)
        if fire is None or fire.token != update.token:
            return False
        if fire.settled == update.token:
            return not isinstance(update, Report)
        if fire.state is not State.RUNNING:
            return False
        if isinstance(update, Report):
            self._put(
                replace(
                    fire,
                    progress=fire.progress if update.progress is None else update.progress,
                    checkpoint=update.checkpoint if update.saves else fire.checkpoint,
                )
            )
            return True
        if isinstance(update, Settle):
            ended = replace(fire.ended(at.wall, update.state, update.error), settled=update.token)
            self._finish(at, ended, update.state, update.reason)
        elif isinstance(update, RetryLater):
            ended = fire.ended(at.wall, "retry", update.error)
            self._wait_again(at, ended, at.wall + timedelta(seconds=update.delay), settled=update.token)
        elif isinstance(update, GiveBack):
            ended = fire.ended(at.wall, "given back")
            if not update.started:
                ended = replace(ended, attempt=fire.attempt - 1)
            self._wait_again(at, ended, at.wall, settled=update.token)
            self.hinted = True
        return True

    def cancel_fire(self, at: Moment, key: str, by: str = "") -> FireRecord | None:
        fire = self.fires.get(key)
        if fire is None:
            return None
        if fire.state is State.RUNNING:
            self._put(replace(fire, cancel_requested=True))
            self.hinted = True
        elif fire.state is State.WAITING:
            self._finish(at, fire, State.CANCELLED, Reason.REQUESTED)
        elif not fire.state.final and (fire.due_at <= at.wall or not fire.scheduled):
            record = self._close(
                at, self.jobs_[fire.job_id], Closing(fire, State.CANCELLED, Reason.REQUESTED)
            )
            self._keep(at, record)
        return self.fires.get(key)

    # --- the ledger -----------------------------------------------------------------------------------

    def find_fires(self, at: Moment, query: FireQuery) -> tuple[FireRecord, ...]:
        if query.key is not None:
            found = self.fires.get(query.key)
            rows: Iterable[FireRecord] = [found] if found else []
        else:
            rows = self.fires.values()
        matching = [fire for fire in rows if _matches(fire, query)]
        matching.sort(key=lambda fire: (fire.due_at, fire.key), reverse=True)
        return tuple(matching[: query.limit])

    def prune(self, at: Moment, keep_seconds: float) -> int:
        before = at.wall - timedelta(seconds=keep_seconds)
        old = []
        for key in self._final:
            finished_at = self.fires[key].finished_at
            if finished_at is not None and finished_at >= before:
                break
            old.append(key)
        for key in old:
            del self.fires[key], self._final[key]
        for job_id, events in self.events.items():
            # The definition in force at `before` is still needed to say what was due after it.
            kept = max((n for n, e in enumerate(events) if e.kind == "defined" and e.at < before), default=0)
            self.events[job_id] = events[kept:]
        return len(old)

    # --- rows and their indexes -------------------------------------------------------------------------

    def _put(self, fire: FireRecord) -> FireRecord:
        self.fires[fire.key] = fire
        opened = self._open.setdefault(fire.job_id, {})
        active = self._active.setdefault(fire.job_id, {})
        for rows, states in ((opened, _OPEN), (active, _ACTIVE)):
            if fire.state in states:
                rows[fire.key] = fire
            else:
                rows.pop(fire.key, None)
        if fire.state.final:
            self._final.pop(fire.key, None)
            self._final[fire.key] = None
        if fire.state is not State.RUNNING and fire.replica:
            self._held.get(fire.replica, {}).pop(fire.key, None)
        return fire

    def _forget(self, fire: FireRecord) -> None:
        del self.fires[fire.key]
        del self._open[fire.job_id][fire.key]

    def _finish(self, at: Moment, fire: FireRecord, state: State, reason: str | None) -> FireRecord:
        fire = self._put(replace(fire, state=state, reason=reason, finished_at=at.wall, not_before=None))
        self._reschedule(at, self.jobs_[fire.job_id])
        return fire

    def _wait_again(self, at: Moment, fire: FireRecord, not_before: datetime, settled: int = 0) -> FireRecord:
        if fire.cancel_requested or self.jobs_[fire.job_id].removed_at:
            reason = Reason.REQUESTED if fire.cancel_requested else Reason.REMOVED
            return self._finish(at, replace(fire, settled=settled), State.CANCELLED, reason)
        fire = self._put(
            replace(fire, state=State.WAITING, not_before=not_before, settled=settled, progress=None)
        )
        self._reschedule(at, self.jobs_[fire.job_id])
        return fire

    def _close(self, at: Moment, record: JobRecord, closing: Closing) -> JobRecord:
        """End a fire that never started. Neighbours that share one fate are one row."""
        fire, tail = closing.fire, self.fires.get(record.tail or "")
        if tail is not None and _same_fate(tail, closing) and self._adjacent(record, tail, fire):
            self._put(
                replace(
                    tail,
                    count=tail.count + fire.count,
                    last_due_at=fire.last_due,
                    refers_to=closing.refers_to,
                    finished_at=at.wall,
                )
            )
            self._forget(fire)
        else:
            self._put(
                replace(
                    fire,
                    state=closing.state,
                    reason=closing.reason,
                    refers_to=closing.refers_to,
                    finished_at=at.wall,
                )
            )
            record = replace(record, tail=fire.key if fire.scheduled else record.tail)
        if fire.scheduled:
            record = replace(record, decided_through=_later(record, fire.last_due))
        return record

    def _adjacent(self, record: JobRecord, tail: FireRecord, fire: FireRecord) -> bool:
        """Nothing lies between: no fire after the tail has been decided, and none before this one waits."""
        undecided = self._open.get(fire.job_id, {}).values()
        return (
            tail.last_due == record.decided_through
            and tail.last_due < fire.due_at
            and not any(tail.last_due < f.due_at < fire.due_at for f in undecided if f.scheduled)
        )

    # --- when to look at a job again ----------------------------------------------------------------------

    def _keep(self, at: Moment, record: JobRecord, look_again: timedelta | None = None) -> None:
        self.jobs_[record.id] = record
        self._reschedule(at, record, look_again)

    def _reschedule(self, at: Moment, record: JobRecord, look_again: timedelta | None = None) -> None:
        head = record.segments[0] if record.segments else None
        self._plans.set(record.id, head.next_at if head else None)
        look = at.wall + look_again if look_again else self._next_look(at, record)
        self._looks_of(record).set(record.id, look)

    def _looks_of(self, record: JobRecord) -> Agenda:
        return self._looks.setdefault((record.job.target, record.job.execute_on), Agenda())

    def _next_look(self, at: Moment, record: JobRecord) -> datetime | None:
        """When this job's fires next need a decision. A fire that waits for its turn, or for the planner,
        needs none: the step that ends the wait calls this again."""
        looks: list[datetime] = []
        active = self._active.get(record.id, {}).values()
        pause = record.paused_at(at.wall)
        for fire in active:
            if fire.state is State.WAITING and fire.not_before is not None:
                if pause is None or not fire.scheduled:
                    looks.append(fire.not_before)
                elif pause.until is not None:
                    looks.append(max(fire.not_before, pause.until))
        full = len(active) >= record.job.overlap.at_once
        fresh: list[datetime] = []
        for fire in self._open.get(record.id, {}).values():
            if fire.scheduled and fire.state is State.PENDING:
                fresh.append(fire.due_at)
            elif not full:
                looks.append(fire.due_at)
        if fresh:
            soonest = min(fresh)
            if record.behind_at(at.wall) and at.wall - soonest > record.job.misfire_after:
                # A backlog is decided when the planner has caught up.
                fresh = [due_at for due_at in fresh if due_at > at.wall]
                soonest = min(fresh, default=soonest)
            if fresh:
                looks.append(soonest)
        return min(looks, default=None)

    def _due_for(self, at: Moment, replica: ReplicaRecord, leads: bool) -> list[str]:
        if replica.draining:
            return []
        found: list[tuple[datetime, str]] = []
        for agenda in self._agendas_of(replica, leads):
            found += agenda.due(at.wall, 1000)
        return [job_id for _, job_id in sorted(found)]

    def _wake_in(self, at: Moment, replica: ReplicaRecord, leads: bool) -> float | None:
        looks = [s for s in (agenda.soonest() for agenda in self._agendas_of(replica, leads)) if s]
        return max(0.0, (min(looks) - at.wall).total_seconds()) if looks else None

    def _agendas_of(self, replica: ReplicaRecord, leads: bool) -> list[Agenda]:
        kinds = ("any", "leader") if leads else ("any",)
        keys = ((target, kind) for target in replica.targets for kind in kinds)
        return [self._looks[key] for key in keys if key in self._looks]

    def _holds(self, replica: str) -> bool:
        return self.leader.holder == replica


_OPEN = (State.PENDING, State.QUEUED)
_ACTIVE = (State.RUNNING, State.WAITING)


def _later(record: JobRecord, due_at: datetime) -> datetime:
    return max(due_at, record.decided_through or due_at)


def _same_fate(tail: FireRecord, closing: Closing) -> bool:
    return (
        closing.fire.scheduled
        and tail.state is closing.state
        and tail.reason == closing.reason
        # A backlog that grows while nobody has room is coalesced into ever newer fires.
        and (tail.refers_to == closing.refers_to or closing.reason is Reason.COALESCED)
        # What somebody cancelled by its key must stay to be found by its key.
        and closing.reason is not Reason.REQUESTED
    )


def _matches(fire: FireRecord, query: FireQuery) -> bool:
    return (
        (query.job_id is None or fire.job_id == query.job_id)
        and (not query.states or fire.state in query.states)
        and (query.since is None or fire.last_due >= query.since)
        and (query.until is None or fire.due_at < query.until)
    )
