"""What becomes of a job's due fires. Pure: the same code decides for every store and every caller.

The order is fixed. A fire that fell due in a gap is closed; then the misfire policy looks at what is late;
then overlap; then leader-only; what is left is claimed. Nothing here depends on who asks,
except for the room the caller has and whether it leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fencepost.model import CATCH_UP_LIMIT, FireRecord, Gap, JobRecord, Reason, State
from fencepost.store.rules.backfills import is_held, running_of
from fencepost.store.rules.limits import Room


@dataclass(frozen=True, slots=True)
class DecidedJob:
    """One job at the moment of decision."""

    record: JobRecord
    due: Sequence[FireRecord]
    """Pending and queued fires that have fallen due, oldest first."""
    active: Sequence[FireRecord]
    """Running or waiting: from the first claim to the final state, retry backoff included."""
    overdue: bool
    """Whether a run's renewal is overdue: it may be dead, so nothing is skipped on its account."""
    unknown: Sequence[Gap] = ()
    """When no replica knew the job's task."""
    limits: Room | None = None
    """What its limits leave; None: it has none."""
    lost_through: datetime | None = None
    """Up to when fires may have run that the store has forgotten."""


@dataclass(frozen=True, slots=True)
class Closing:
    fire: FireRecord
    state: State
    reason: str
    refers_to: str | None = None


@dataclass(slots=True)
class Decision:
    closings: list[Closing] = field(default_factory=list)
    queued: list[FireRecord] = field(default_factory=list)
    claims: list[FireRecord] = field(default_factory=list)
    held: list[FireRecord] = field(default_factory=list)
    """Would be claimed, if a limit had room."""
    replaced: list[FireRecord] = field(default_factory=list)
    """Active ones that must end."""
    replaced_by: str | None = None
    """The newest due fire, which takes their place."""
    contended: bool = False
    """The run in the way may be dead: what is due was left undecided and must be looked at again soon."""

    def close(self, fire: FireRecord, state: State, reason: str, refers_to: str | None = None) -> None:
        self.closings.append(Closing(fire, state, reason, refers_to))


def decide(view: DecidedJob, now: datetime, room: int) -> Decision:
    """What to do with `view`'s fires for a caller with `room` free slots."""
    decision = Decision()
    candidates = [fire for fire in _outside_gaps(view, decision) if _is_to_start(view, fire, now)]
    if view.record.paused_at(now):
        # What fell due before the pause waits for its end: while it lasts nothing scheduled starts.
        candidates = [fire for fire in candidates if not fire.scheduled]
    candidates = _after_misfire(view, candidates, now, decision)
    if view.record.job.overlap.kind == "replace":
        view, candidates = _newest_only(view, candidates, decision)
    _claim_again(view, now, room, decision)
    _claim_or_overlap(view, candidates, room, decision)
    if view.limits is not None:
        _within_limits(view.limits, decision)
    # In the order of their due times, so that neighbours meet.
    decision.closings.sort(key=lambda closing: closing.fire.due_at)
    return decision


def _is_to_start(view: DecidedJob, fire: FireRecord, now: datetime) -> bool:
    """Jitter puts the start of a fire off, once it is due."""
    return fire.state is not State.PENDING or fire.due_at + view.record.job.jitter_of(fire) <= now


def _outside_gaps(view: DecidedJob, decision: Decision) -> list[FireRecord]:
    """Close what is to be skipped, what fell due while the job was paused, or its task unknown to every replica, what
    may have run in a history that the store has lost, and what was long past when the job was declared."""
    kept = []
    for fire in view.due:
        fresh = fire.scheduled and fire.state is State.PENDING
        skip = view.record.skip_at(fire.due_at) if fresh and fire.count == 1 else None
        if skip is not None:
            decision.close(fire, State.SKIPPED, skip.text)
        elif fresh and view.record.paused_at(fire.due_at):
            decision.close(fire, State.SKIPPED, Reason.PAUSED)
        elif fresh and any(gap.covers(fire.due_at) for gap in view.unknown):
            decision.close(fire, State.MISSED, view.record.job.unclaimable)
        elif view.lost_through is not None and fire.due_at <= view.lost_through:
            decision.close(fire, State.LOST, Reason.DATA_LOSS)
        elif fresh and any(gap.covers(fire.due_at) for gap in view.record.past):
            decision.close(fire, State.MISSED, Reason.PAST)
        else:
            kept.append(fire)
    return kept


def _after_misfire(
    view: DecidedJob, fires: list[FireRecord], now: datetime, decision: Decision
) -> list[FireRecord]:
    """Apply the misfire policy to a backlog: scheduled fires, not yet queued, the oldest of them late."""
    job = view.record.job
    fresh = [fire for fire in fires if fire.scheduled and fire.state is State.PENDING]
    stretches = any(fire.count > 1 for fire in fresh)
    if not fresh or (_late(view, fresh[0], now) <= job.misfire_after and not stretches):
        return fires
    others = [fire for fire in fires if not fire.scheduled or fire.state is State.QUEUED]
    if view.record.behind_at(now):
        # The newest due fire may not be planned yet. Deciding now would run one fire of the backlog here and
        # another when the planner has caught up: two runs where "latest" promises one. Where newer fires replace
        # older ones, what is queued would start only to be cancelled.
        return [fire for fire in others if not fire.scheduled] if job.overlap.kind == "replace" else others
    if job.misfire == "latest" and fresh[-1].count == 1:
        keep, reason, refers_to = fresh[-1:], Reason.COALESCED, fresh[-1].key
    elif job.misfire == "latest":
        # Taken for lost or paused when it was planned, and no longer: it is one row, and cannot be run.
        keep, reason, refers_to = [], Reason.CATCH_UP_LIMIT, None
    elif job.misfire == "skip":
        keep = [fire for fire in fresh if _late(view, fire, now) <= job.misfire_after and fire.count == 1]
        reason, refers_to = Reason.MISFIRE, None
    else:
        # What an earlier backlog left in the queue counts: one that cannot keep up must not queue up for ever.
        room = CATCH_UP_LIMIT - sum(1 for fire in others if fire.scheduled)
        keep = [fire for fire in fresh if fire.count == 1][-room:] if room > 0 else []
        reason, refers_to = Reason.CATCH_UP_LIMIT, None
        # Each shall run, one after the other: overlap must not skip what catch-up has kept.
        decision.queued.extend(keep)
    kept = {fire.key for fire in keep}
    for fire in fresh:
        if fire.key not in kept:
            decision.close(fire, State.MISSED, reason, refers_to)
    return sorted([*others, *keep], key=lambda fire: fire.due_at)


def _late(view: DecidedJob, fire: FireRecord, now: datetime) -> timedelta:
    return now - fire.due_at - view.record.job.jitter_of(fire)


def _newest_only(
    view: DecidedJob, candidates: list[FireRecord], decision: Decision
) -> tuple[DecidedJob, list[FireRecord]]:
    """The newest scheduled fire replaces older ones. A run keeps its place until it has ended or its replica is dead:
    only then is the newest claimed, so that no two run at once. Manual fires wait for their turn, as always."""
    scheduled = [fire for fire in candidates if fire.scheduled]
    if not scheduled:
        return view, candidates
    overtaken = [fire for fire in view.active if fire.scheduled and fire.due_at > scheduled[-1].due_at]
    if view.record.job.jitter is not None and overtaken:
        # Chance has let a newer fire start first.
        for fire in scheduled:
            decision.close(fire, State.SKIPPED, Reason.REPLACED, overtaken[-1].key)
        decision.queued = []
        return view, [fire for fire in candidates if not fire.scheduled]
    *older, newest = scheduled
    for fire in older:
        decision.close(fire, State.SKIPPED, Reason.REPLACED, newest.key)
    decision.replaced = [fire for fire in view.active if fire.scheduled and fire.refers_to != newest.key]
    decision.replaced_by = newest.key
    active = [fire for fire in view.active if fire.state is State.RUNNING or not fire.scheduled]
    waits = newest in decision.queued or active or len(candidates) > len(scheduled)
    decision.queued = [newest] if waits and newest.state is State.PENDING else []
    return replace(view, active=active), [fire for fire in candidates if fire not in older]


def _claim_again(view: DecidedJob, now: datetime, room: int, decision: Decision) -> None:
    """Retries, reruns and fires given back: decided once, so no policy looks at them again. A pause holds
    them as well, and so does a limit that has become lower since they were first claimed."""
    paused = view.record.paused_at(now) is not None
    running = sum(1 for fire in view.active if fire.state is State.RUNNING)
    room = min(room, view.record.job.overlap.at_once - running)
    for fire in view.active:
        if fire.state is not State.WAITING or fire.not_before is None or fire.not_before > now:
            continue
        if paused and fire.scheduled:
            continue
        if len(decision.claims) < room:
            decision.claims.append(fire)


def _claim_or_overlap(view: DecidedJob, candidates: list[FireRecord], room: int, decision: Decision) -> None:
    """Backfills step aside: their fires come last, and what is scheduled is never skipped because of them, but waits
    for its turn."""
    overlap = view.record.job.overlap
    active = len(view.active)
    running = running_of(view.active)
    candidates = sorted(candidates, key=lambda fire: fire.backfill is not None)
    first_active = view.active[0].key if view.active else None
    admitted = {fire.key for fire in decision.queued}
    waiting_turn = sum(1 for fire in candidates if fire.state is State.QUEUED or fire.key in admitted)
    for fire in candidates:
        if is_held(view.record, fire, running):
            continue
        if active < overlap.at_once:
            if _finds_limit_full(view.limits, fire, decision):
                continue
            if len(decision.claims) >= room:
                return
            decision.claims.append(fire)
            active += 1
            running.update([fire.backfill] if fire.backfill else [])
            first_active = first_active or fire.key
            waiting_turn -= fire.state is State.QUEUED or fire.key in admitted
        elif not fire.scheduled or fire.state is State.QUEUED or fire.key in admitted:
            continue
        elif view.overdue:
            # The run in the way may be dead. Skipping this fire because of it would lose both.
            decision.contended = True
        elif overlap.kind != "queue" and active - running.total() >= overlap.at_once:
            decision.close(fire, State.SKIPPED, Reason.OVERLAP, first_active)
        elif waiting_turn < overlap.limit:
            decision.queued.append(fire)
            waiting_turn += 1
        else:
            decision.close(fire, State.SKIPPED, Reason.QUEUE_FULL, first_active)


def _finds_limit_full(room: Room | None, fire: FireRecord, decision: Decision) -> bool:
    """Skip this fire if a limit has no room for it and it shall not wait for one."""
    fresh = fire.scheduled and fire.state is State.PENDING and fire not in decision.queued
    if room is None or room.full != "skip" or not fresh or len(decision.claims) < room.places:
        return False
    if room.overdue:
        decision.contended = True  # the run that has the place may be dead
    else:
        decision.close(fire, State.SKIPPED, Reason.LIMIT, room.holder)
    return True


def _within_limits(room: Room, decision: Decision) -> None:
    """What would be claimed and finds a limit full waits for a place."""
    places, admitted = max(0, room.places), {fire.key for fire in decision.queued}
    decision.claims, decision.held = decision.claims[:places], decision.claims[places:]
    decision.queued += [
        fire
        for fire in decision.held
        if fire.scheduled and fire.state is State.PENDING and fire.key not in admitted
    ]
