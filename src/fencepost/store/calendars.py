"""Definitions and calendars: what is declared, who knows its task, and which fires it has planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import (
    LEADERSHIP,
    Gap,
    Job,
    JobEvent,
    JobRecord,
    Reason,
    ReplicaRecord,
    Segment,
    State,
    changed,
    fire_key,
    planned_fire,
)
from fencepost.model.periods import Calendar
from fencepost.model.triggers import EARLIEST, LATEST
from fencepost.store.base import REFUSED, ChangeJob, DueJobs, JobPage, JobPut, Plan, PutJob
from fencepost.store.decide import Closing
from fencepost.store.definitions import declarers, definition_outcome, provenance, stands, with_refusal
from fencepost.store.ledger import Ledger, later
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.rules import ORPHANED_AFTER
from fencepost.store.unreadable import salvaged_fire, salvaged_token

MAX_GAPS_KEPT = 100
SHORTEST_PAGE = 50
"""Jobs read at once, however few are asked for."""

_LEFT_AS = {"retry": State.FAILED, "lost": State.LOST}
"""What becomes of a fire that waits to be run again when nobody knows how: it ends as its last attempt did."""


class Calendars(Ledger):
    orphaned_after = ORPHANED_AFTER

    # --- who knows which task -------------------------------------------------------------------------

    def _adopt(self, at: Moment, names: Sequence[str]) -> None:
        """Somebody knows these tasks (again). A long absence is kept as a gap in their jobs' calendars."""
        self.preload(at.wall, targets=names)
        for name in names:
            target = self.target(name)
            if target.unknown_since is None:
                continue
            gaps = target.gaps
            if target.orphaned:
                gaps = (*gaps, Gap(target.unknown_since, at.wall))[-MAX_GAPS_KEPT:]
            self.put_target(TargetRecord(name, gaps=gaps))
            if target.orphaned:
                for record in list(self.every_job(name)):
                    self._keep(at, record)
                for id in self.unread_jobs():
                    self.look_soon(id, at.wall)

    def _notice_unknown_targets(self, at: Moment) -> None:
        for target in self.unknown_targets():
            if target.unknown_since is None:
                self.put_target(changed(target, unknown_since=at.wall))
            elif not target.orphaned and at.wall - target.unknown_since >= self.orphaned_after:
                self._orphan(at, changed(target, orphaned=True))

    def _orphan(self, at: Moment, target: TargetRecord) -> None:
        """Nobody has known this task for long: its jobs are kept and shown, but not planned any more. What is planned
        ahead would fall due with nobody to decide it, so it goes back to the calendar; all else of them ends."""
        self.put_target(target)
        for record in list(self.every_job(target.name)):
            self._orphan_job(at, record)

    def _orphan_job(self, at: Moment, record: JobRecord) -> None:
        # Where the clock was set back, not from before the calendar begins, nor what only a row still knows of.
        since = self._takes_effect(at, record)
        self.withdraw_planned(record.id, since)
        for fire in self.due_fires(record.id, LATEST):
            closing = Closing(fire, State.MISSED, Reason.UNKNOWN_TASK)
            if fire.scheduled and record.paused_at(fire.due_at):
                closing = Closing(fire, State.SKIPPED, Reason.PAUSED)
            record = self._close(at, record, closing)
        segments = (
            changed(each, cursor=since, next_at=since) if each.cursor > since else each
            for each in record.segments
        )
        self._keep(at, changed(record, segments=tuple(segments)))
        for fire in self.active_fires(record.id):
            if fire.state is State.WAITING:
                state = _LEFT_AS.get(fire.attempts[-1].outcome, State.MISSED)
                self._finish(at, fire, state, Reason.UNKNOWN_TASK)

    # --- jobs ---------------------------------------------------------------------------------------

    def put_jobs(self, at: Moment, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
        self.preload(at.wall, records=[put.job.id for put in jobs])
        new = [put.job for put in jobs if not stands(self.job(put.job.id), put)]
        self.preload(at.wall, jobs=[job.id for job in new], targets=[job.target for job in new])
        replicas = {replica.id: replica for replica in self.every_replica()}
        return tuple(self._put_job(at, put, replicas) for put in jobs)

    def _put_job(self, at: Moment, put: PutJob, replicas: Mapping[str, ReplicaRecord]) -> JobPut:
        """`replicas`: all. One whose renewal is overdue at this very moment declares all the same."""
        job, existing = put.job, self.job(put.job.id)
        if stands(existing, put):
            return JobPut(job.id, "unchanged")
        if self.aside(job.id):
            return JobPut(job.id, "unreadable")
        live = [replica for replica in replicas.values() if replica.expires > at.steady]
        outcome = definition_outcome(existing, put, live, self.knowing)
        if existing is not None and outcome in REFUSED:
            noted = with_refusal(existing, put, outcome, replicas)
            if noted != existing:
                self._keep(at, noted)
                self.hinted = True
            return JobPut(job.id, outcome, existing.origin)
        if existing is None:
            existing = JobRecord(job, job.fingerprint, at.wall, at.wall)
        earlier = existing.earlier
        if outcome == "changed":
            earlier = (*(old for old in earlier if old != existing.fingerprint), existing.fingerprint)[-10:]
        record = changed(
            existing,
            job=job,
            fingerprint=job.fingerprint,
            revision=max((r for r in (existing.revision, put.revision) if r is not None), default=None),
            declared_by=declarers(existing, put, outcome, replicas, self.knowing),
            earlier=earlier,
            **provenance(existing, put, outcome, replicas),
        )
        if outcome != "unchanged":
            record = changed(record, changed_at=at.wall)
            if outcome == "created" or existing.removed_at or job.trigger != existing.job.trigger:
                record = self._start_calendar(at, record)
        self._keep(at, record)
        self.hinted = self.hinted or outcome != "unchanged"
        return JobPut(job.id, outcome)

    def _start_calendar(self, at: Moment, record: JobRecord) -> JobRecord:
        """A new trigger. Planned rows that are not due were a cache of the old one: withdraw them. Rows that
        are due are facts and stay, and so does what the old calendar still owes before this moment: it is
        planned to its end first. The new one starts after the last fire decided, so that a moment on which
        both calendars agree is one fire, also where the store's clock has stepped back."""
        since = self._takes_effect(at, record)
        self.withdraw_planned(record.id, since)
        version = record.version + 1
        trigger = record.job.trigger.resolved(at.wall) if record.job.trigger else None
        listed = trigger.listed_until(since) if trigger is not None else ()
        since = self._reaches_back(record, listed, since)
        record = self._with_past(at, record, listed, since)
        segments = self._ended(record.segments, since)
        if trigger is not None:
            segments = (*segments, Segment(version, trigger, cursor=since, next_at=since))
        event = JobEvent(record.id, at.wall, "defined", version, since, token=record.token)
        self.note(changed(event, trigger=trigger.to_json() if trigger else None))
        return changed(record, version=version, segments=segments, removed_at=None)

    def _takes_effect(self, at: Moment, record: JobRecord) -> datetime:
        """From when on a change of the calendar holds. Usually from now on; where the store's clock has stepped back,
        not before anything that was decided, nor before the calendar that it replaces."""
        since = later(record, at.wall)
        if not record.version:
            return since
        changes = [event.since for event in self.events_of(record.id) if event.kind in ("defined", "removed")]
        stretches = [fire.last_due for fire in self.due_fires(record.id, since)]
        return max([since, *changes, *stretches])

    def _reaches_back(self, record: JobRecord, listed: Sequence[datetime], since: datetime) -> datetime:
        """From when on a calendar holds that lists fires before `since`: before as many of them as come after
        everything that the job's earlier calendars have decided, have due, or still owe, and are not on record."""
        if not listed:
            return since
        due = [fire.last_due for fire in self.due_fires(record.id, since)]
        decided = max([*due, record.decided_through or EARLIEST])
        owing = self._ended(record.segments, since)
        start = since
        for moment in reversed(listed):
            if moment <= decided or any(_has_fire(segment, moment, since) for segment in owing):
                break
            if self._is_on_record(fire_key(record.id, moment)):
                break
            start = moment - datetime.resolution
        return start

    def _with_past(
        self, at: Moment, record: JobRecord, listed: Sequence[datetime], since: datetime
    ) -> JobRecord:
        """Account for the fires of a new calendar that it lists although they have passed. After `since` they are
        fires like others, and those later than `misfire_after` will be missed. Up to `since` they are missed here and
        now: later fires of the job have been decided."""
        if record.version and listed and listed[0] <= since:
            known = Calendar(self.events_of(record.id))
            for moment in listed:
                if known.known_after < moment <= since and not known.has(moment):
                    self._miss(at, record, moment)
        begin, decided = since + datetime.resolution, record.decided_through or EARLIEST
        past = [changed(each, until=min(begin, each.until or begin)) for each in record.past]
        past = [each for each in past if each.until is not None and max(decided, each.since) < each.until]
        gap = Gap(begin, at.wall - record.job.misfire_after)
        if any(gap.covers(moment) for moment in listed):
            past.append(gap)
        return changed(record, past=tuple(past[-MAX_GAPS_KEPT:]))

    def _miss(self, at: Moment, record: JobRecord, moment: datetime) -> None:
        key = fire_key(record.id, moment)
        if not self._is_on_record(key):
            fire = planned_fire(key, record.id, moment, 1, None)
            self.put_fire(changed(fire, state=State.MISSED, reason=Reason.PAST, finished_at=at.wall))

    def _is_on_record(self, key: str) -> bool:
        return self.fire(key) is not None or self.broken_fire(key)

    def _ended(self, segments: tuple[Segment, ...], until: datetime) -> tuple[Segment, ...]:
        """The calendars as they stand when their job changes: open only as far as they are behind."""
        ended = []
        for segment in segments:
            end = min(until, segment.until or until)
            if segment.next_at is not None and segment.next_at <= end and segment.cursor < end:
                ended.append(changed(segment, until=end))
        return tuple(ended)

    def change_job(self, at: Moment, change: ChangeJob) -> JobRecord | None:
        self.preload(at.wall, jobs=[change.job_id])
        record, row = self.job(change.job_id), self.aside(change.job_id)
        if row is not None and not row.foreign:
            if change.kind != "remove":
                self._refuse_aside(change.job_id)
            if change.if_undeclared or change.version is not None:
                return None  # whether that holds may be what cannot be read: left to a person
            record = self._written_anew(at, change.job_id)
        if record is None or record.removed_at or change.version not in (None, record.version):
            return None
        if change.if_undeclared and (record.source != "code" or self._is_declared(at, record)):
            return None
        steps = {"pause": self._pause, "resume": self._resume, "remove": self._remove}
        record = steps[change.kind](at, record, change)
        self._keep(at, record)
        self.hinted = True
        return record

    def _is_declared(self, at: Moment, record: JobRecord) -> bool:
        known = self.knowing(record.job.target)
        return any(
            replica.id in known and replica.expires > at.steady and not replica.draining
            for replica in self.every_replica()
        )

    def _pause(self, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
        """A job that is paused stays so: its pause gets another reason or end only if the change names one."""
        gap, lasting = Gap(at.wall, change.until, change.note, change.by), record.pause_lasting(at.wall)
        if lasting is not None:
            until, note = change.until, change.note
            if not change.anew:
                until, note = until or lasting.until, note or lasting.note
            if lasting.covers(at.wall) and (until, note) == (lasting.until, lasting.note):
                return record
            gap = Gap(min(at.wall, lasting.since), until, note, change.by or lasting.by)
        since = later(record, at.wall)
        event = JobEvent(record.id, at.wall, "paused", record.version, since, token=record.token)
        self.note(changed(event, until=gap.until, note=gap.note, by=gap.by))
        others = (each for each in _ended_by(at.wall, record.pauses) if each.since != gap.since)
        return changed(record, pauses=(*others, gap)[-MAX_GAPS_KEPT:])

    def _resume(self, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
        """End every pause that is not over. One may even seem to lie ahead, if the store's clock has stepped back."""
        if record.pause_lasting(at.wall) is None:
            return record
        pauses = _ended_by(at.wall, record.pauses)
        event = JobEvent(record.id, at.wall, "resumed", record.version, at.wall, token=record.token)
        self.note(changed(event, by=change.by))
        return changed(record, pauses=pauses)

    def _remove(self, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
        """Running fires end as they end; everything else of the job is closed. The row stays as a tombstone:
        its token and high-water mark must outlive it."""
        record = self._resume(at, record, change)
        for fire in self.active_fires(record.id):
            if fire.state is State.WAITING:
                record = record.after_run(self._finish(at, fire, State.CANCELLED, Reason.REMOVED))
        since = self._takes_effect(at, record)
        self.withdraw_planned(record.id, since)
        # All that is left, and not only what is due: a manual fire may seem to lie ahead.
        for fire in self.due_fires(record.id, LATEST):
            record = self._close(at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
        event = JobEvent(record.id, at.wall, "removed", record.version, since, token=record.token)
        self.note(changed(event, by=change.by, note=change.note))
        return changed(
            record,
            removed_at=at.wall,
            changed_at=at.wall,
            declared_by=(),
            rivals=(),
            segments=tuple(changed(each, removed=True) for each in self._ended(record.segments, since)),
        )

    def _written_anew(self, at: Moment, id: str) -> JobRecord:
        """A job that cannot be read, as it is removed: what protects its fires and tokens outlives it. Where that
        cannot be read either, every fire up to now counts as decided, and tokens go on above all there can have
        been."""
        record = self.job(id)
        if record is None:
            known = self.salvage_job(id)
            job = Job(id, known.get("target") or id)
            version = max((event.version for event in self.events_of(id)), default=0)
            token = known.get("token", salvaged_token(at, self.leader.era))
            record = JobRecord(job, job.fingerprint, at.wall, at.wall, version=version, token=token)
            record = changed(record, decided_through=known.get("decided_through", at.wall))
        for fire in self.broken_live(id, at.wall):
            self.put_fire(salvaged_fire(at, fire, Reason.UNREADABLE))
            record = changed(record, decided_through=later(record, fire.last_due))
        return record

    def _page_of_jobs(self, at: Moment, page: JobPage) -> list[JobRecord]:
        """Jobs that were removed are passed over, some at a time."""
        found: list[JobRecord] = []
        more = replace(page, limit=max(page.limit, SHORTEST_PAGE))
        while len(found) < page.limit and (ids := self.job_ids(more)):
            self.preload(at.wall, records=ids)
            some = [record for record in map(self.job, ids) if record is not None]
            found += [record for record in some if not record.removed_at]
            more = replace(more, after=ids[-1])
        return found[: page.limit]

    def jobs(
        self, at: Moment, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        if page is not None:
            found = self._page_of_jobs(at, page)
        else:
            self.preload(at.wall, records=ids or ())
            some = self.every_job() if ids is None else map(self.job, ids)
            found = [record for record in some if record is not None and not record.removed_at]
        names = dict.fromkeys(record.job.target for record in found)
        self.preload(at.wall, targets=list(names))
        targets = self.unknown_targets() if ids is None and page is None else map(self.target, names)
        unknown = {target.name: target.unknown_since for target in targets if target.unknown_since}
        return tuple(
            changed(record, unknown_since=unknown[record.job.target])
            if record.job.target in unknown
            else record
            for record in found
        )

    def history(self, at: Moment, job_id: str) -> tuple[JobEvent, ...]:
        return tuple(self.events_of(job_id))

    def history_since(self, at: Moment, since: datetime) -> tuple[JobEvent, ...]:
        found = [
            event for event in self.events_since(since) if event.at >= since and event.job_id != LEADERSHIP
        ]
        found.sort(key=lambda event: (event.at, event.job_id))
        return tuple(found[-MOST_EVENTS:])

    # --- planning -----------------------------------------------------------------------------------

    def due_jobs(self, at: Moment, horizon: float, limit: int) -> DueJobs:
        until = at.wall + timedelta(seconds=horizon)
        due = self.due_plans(until, limit)
        self.preload(at.wall, jobs=due)
        found = [self._job(id) for id in due if not self.aside(id)]
        gaps = {record.job.target: self.target(record.job.target).gaps for record in found}
        return DueJobs(at.wall, tuple(found), self.soonest_plan(), gaps, self.leader.era.lost_through)

    def plan_fires(self, at: Moment, plans: Sequence[Plan]) -> tuple[bool, ...]:
        self.preload(at.wall, jobs=[plan.job_id for plan in plans])
        before = self.soonest_look(None, leads=True)
        planned = tuple(self._plan(at, plan) for plan in plans)
        first = min((row.first for plan in plans for row in plan.rows), default=None)
        if first is not None and (before is None or first < before):
            self.hinted = True
        return planned

    def _plan(self, at: Moment, plan: Plan) -> bool:
        record = None if self.aside(plan.job_id) else self.job(plan.job_id)
        head = record.segments[0] if record and record.segments else None
        if record is None or head is None:
            return False
        if (head.version, head.cursor, head.until) != (plan.version, plan.cursor, plan.until):
            return False
        if self.target(record.job.target).orphaned and not record.removed_at:
            self._orphan_job(at, record)  # it could not be read when its task was given up
            return False
        cursor = head.cursor
        for row in plan.rows:
            assert row.first > cursor, "a calendar is strictly increasing"
            cursor = row.last
            if record.decided_through and row.first <= record.decided_through:
                continue
            key = fire_key(record.id, row.first)
            last = row.last if row.count > 1 else None
            fire = planned_fire(key, record.id, row.first, row.count, last)
            self.put_fire(fire)
            if head.removed:
                record = self._close(at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
        moved = changed(head, cursor=cursor, next_at=plan.next_at)
        done = plan.next_at is None or (head.until is not None and plan.next_at > head.until)
        segments = record.segments[1:] if done else (moved, *record.segments[1:])
        self._keep(at, changed(record, segments=segments))
        return True


def _ended_by(moment: datetime, pauses: Sequence[Gap]) -> tuple[Gap, ...]:
    return tuple(changed(gap, until=min(moment, gap.until or moment)) for gap in pauses)


def _has_fire(segment: Segment, first: datetime, last: datetime) -> bool:
    """Whether an unfinished calendar has a fire from `first` to `last`."""
    found = segment.trigger.next_after(max(segment.cursor, first - datetime.resolution))
    return found is not None and found <= min(last, segment.until or last)
