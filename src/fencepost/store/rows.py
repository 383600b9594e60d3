"""The rows of the model and their indexes: fires by state, and when each job must be looked at again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import FireRecord, Gap, JobEvent, JobRecord, Lease, Reason, ReplicaRecord, State
from fencepost.store.agenda import Agenda
from fencepost.store.base import FireQuery
from fencepost.store.decide import Closing, JobView


class Rows:
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

    def _overdue(self, at: Moment, replica: str | None) -> bool:
        presence = self.replicas.get(replica or "")
        return presence is None or presence.expires <= at.steady

    def _running_of(self, replica: str) -> list[FireRecord]:
        return [self.fires[key] for key in self._held.get(replica, ())]

    def _view(self, at: Moment, record: JobRecord) -> JobView:
        due = sorted(
            (fire for fire in self._open.get(record.id, {}).values() if fire.due_at <= at.wall),
            key=lambda fire: (fire.due_at, fire.key),
        )
        active = list(self._active.get(record.id, {}).values())
        overdue = any(f.state is State.RUNNING and self._overdue(at, f.replica) for f in active)
        return JobView(record, due, active, overdue, self._unknown.get(record.job.target, ()))

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
            record = replace(record, decided_through=later(record, fire.last_due))
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


_OPEN = (State.PENDING, State.QUEUED)
_ACTIVE = (State.RUNNING, State.WAITING)


def later(record: JobRecord, due_at: datetime) -> datetime:
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
