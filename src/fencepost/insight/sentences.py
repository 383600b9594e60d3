"""The ledger in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.insight.views.standing import no_live_replica
from fencepost.insight.views.words import distance, last_line, length, when
from fencepost.insight.visible import UNSEEN
from fencepost.model import FireRecord, Gap, JobEvent, JobRecord, Reason, State
from fencepost.model.fires import Remote
from fencepost.model.triggers.following import parents_of
from fencepost.store.base import Roster


@dataclass(frozen=True)
class Scene:
    """What the sentences are built from."""

    roster: Roster
    record: JobRecord | None
    history: Sequence[JobEvent] = ()

    @property
    def live(self) -> int:
        return len(self.roster.replicas) - len(self.roster.overdue)

    def pause_at(self, moment: datetime) -> Gap | None:
        """From the job's record; where that has forgotten it, from its history."""
        if self.record is not None and (gap := self.record.paused_at(moment)):
            return gap
        for event in reversed(self.history):
            if event.kind == "paused" and event.at <= moment:
                return Gap(event.at, event.until, event.note, event.by)
        return None


def of_fire(scene: Scene, fire: FireRecord, other: FireRecord | None, due: datetime | None) -> str:
    sentences: dict[State, Callable[[], str]] = {
        State.PENDING: lambda: _pending(scene, fire),
        State.QUEUED: lambda: f"It waits for its turn{_behind(scene)}.",
        State.RUNNING: lambda: _running(scene, fire),
        State.WAITING: lambda: _waiting(scene, fire),
        State.SUCCEEDED: lambda: f"It ran: {_run(fire)}, and succeeded.",
        State.FAILED: lambda: f"It ran and failed: {_run(fire)}; {_reason(fire)}.",
        State.SKIPPED: lambda: f"It was skipped{_among(fire)}: {_skipped(scene, fire, other, due)}.",
        State.MISSED: lambda: f"It was missed{_among(fire)}: {_missed(scene, fire, other)}.",
        State.LOST: lambda: _lost(fire),
        State.CANCELLED: lambda: f"It was cancelled{_among(fire)}: {_cancelled(fire)}.",
    }
    return sentences[fire.state]()


def not_due(scene: Scene, due: datetime) -> str:
    coming = f"It is not due yet: it comes {distance(due, scene.roster.now)}"
    skip = scene.record.skip_at(due) if scene.record else None
    if skip is not None:
        return f"{coming}, and will be skipped: {skip.text}{f', by {skip.by}' if skip.by else ''}."
    pause = scene.record.paused_at(due) if scene.record else None
    return f"{coming}, and will be skipped: {_paused(pause)}." if pause else f"{coming}."


def never(scene: Scene, first: datetime | None) -> str:
    """No fire of the job is on record; `first`: the next one of its calendar."""
    if first is not None:
        return f"None of its fires is on record: the next is due {distance(first, scene.roster.now)}."
    if scene.record is None:
        return "The job was removed, and none of its fires is on record any more."
    if parents := parents_of(scene.record.job.trigger):
        return f"None of its fires is on record: it follows {' and '.join(parents)}."
    pause = scene.record.paused_at(scene.roster.now)
    held = f" Now {_paused(pause).replace('was', 'is', 1)}." if pause else ""
    return f"None of its fires is on record, and its schedule has none to come: it runs when triggered.{held}"


def not_decided(scene: Scene) -> str:
    misfire = f" by the job's misfire policy, {scene.record.job.misfire!r}" if scene.record else ""
    if not scene.live:
        return f"It is due and not decided: no replica is running. The next one to start decides it{misfire}."
    return f"It is due and not planned yet; the leader will, and then it is decided{misfire}."


def _behind(scene: Scene) -> str:
    """Only a fire that follows another waits without a run of its own job in its way."""
    follows = scene.record is not None and parents_of(scene.record.job.trigger)
    return "" if follows else ": another run of the job is active"


def _pending(scene: Scene, fire: FireRecord) -> str:
    if fire.due_at > scene.roster.now:
        return not_due(scene, fire.due_at)
    if not scene.live:
        return not_decided(scene)
    job = scene.record.job if scene.record else None
    if job is not None and (start := fire.due_at + job.jitter_of(fire)) > scene.roster.now:
        return f"It is due, and chance has put its start off (jitter): it comes {distance(start, scene.roster.now)}."
    if job is None or not any(job.lane in replica.targets for replica in scene.roster.replicas):
        why = (
            no_live_replica(job.engine, job.pool, f"the task {job.target!r}")
            if job
            else "its job is not known"
        )
        return f"It is due and not decided: {why}."
    pause = scene.pause_at(scene.roster.now) if scene.record else None
    if pause and scene.record and scene.record.paused_at(scene.roster.now):
        return f"It is due and held back: {_paused(pause)}."
    if fire.backfill is not None:
        show = f"`fencepost backfill show {fire.job_id} {fire.backfill}`"
        return f"It waits for its turn in backfill {fire.backfill}: see {show}."
    return "It is due and waits for a replica with a free slot."


def _running(scene: Scene, fire: FireRecord) -> str:
    now = scene.roster.now
    if (remote := Remote.of(fire)) is not None:
        return _at_engine(fire, remote, now)
    known = {replica.id for replica in scene.roster.replicas} - scene.roster.overdue
    doubt = "" if fire.replica in known else "; that replica has not been heard of since its lease ran out"
    since = length(now - fire.started_at) if fire.started_at else "?"
    return (
        f"It is running: since {when(fire.started_at)} ({since}) on {fire.replica}{_attempts(fire)}{doubt}."
    )


def _at_engine(fire: FireRecord, remote: Remote, now: datetime) -> str:
    """When its body started is not on record, only when it was claimed and sent."""
    since = length(now - fire.started_at) if fire.started_at else "?"
    sent = f"at {when(fire.started_at)} ({since} ago), by replica {remote.by}{_attempts(fire)}"
    if remote.worker is None:
        return f"It was handed to the engine {remote.engine} {sent}; no worker has started it yet."
    return (
        f"It is running on worker {remote.worker} of the engine {remote.engine}; it was handed over {sent}."
    )


def _waiting(scene: Scene, fire: FireRecord) -> str:
    last = fire.attempts[-1] if fire.attempts else None
    ended = f" The last attempt ended as {last.outcome!r}: {last_line(last.error)}" if last else ""
    return f"It waits to be run again, not before {when(fire.not_before)}.{ended.rstrip(': ')}"


def _run(fire: FireRecord) -> str:
    took = ""
    if fire.started_at and fire.finished_at:
        took = f", took {length(fire.finished_at - fire.started_at)}"
    chance = (
        f", put off by {length(timedelta(seconds=fire.jitter_seconds))} (jitter)"
        if fire.jitter_seconds
        else ""
    )
    return f"started {when(fire.started_at, exact=True)} on {fire.replica}{chance}{took}{_attempts(fire)}"


def _attempts(fire: FireRecord) -> str:
    return f", attempt {fire.attempt}" if fire.attempt > 1 else ""


def _reason(fire: FireRecord) -> str:
    return ": ".join(filter(None, [fire.reason, last_line(fire.error)])) or "no reason is on record"


def _among(fire: FireRecord) -> str:
    if fire.count == 1:
        return ""
    return f", one of {fire.count} from {when(fire.first_due_at)} to {when(fire.last_due)}"


def _skipped(scene: Scene, fire: FireRecord, other: FireRecord | None, due: datetime | None) -> str:
    if fire.reason == Reason.PAUSED:
        return _paused(scene.pause_at(due or fire.due_at))
    if fire.reason == Reason.OVERLAP:
        return f"{_named(fire, other)} was still active{_span(other)}"
    if fire.reason == Reason.QUEUE_FULL:
        return f"the queue was full behind {_named(fire, other)}{_span(other)}"
    if fire.reason == Reason.PARENT:
        its_fate = "did not let it go" if fire.refers_to == UNSEEN else fate(other)
        return f"it runs after {_named(fire, other)}, which {its_fate}"
    if fire.reason == Reason.LIMIT:
        return f"a limit of the job was full{', used by ' + _named(fire, other) if fire.refers_to else ''}"
    if fire.reason == Reason.REPLACED:
        return f"the newer {_named(fire, other)} took its place before it could start"
    return _reason(fire)


def _missed(scene: Scene, fire: FireRecord, other: FireRecord | None) -> str:
    job = scene.record.job if scene.record else None
    if fire.reason == Reason.COALESCED:
        fared = f", which {fate(other)}" if other else ""
        return f"nobody could start it in time, and it was coalesced into {_named(fire, other)}{fared}"
    if fire.reason == Reason.MISFIRE:
        limit = f" within {length(job.misfire_after)}" if job else " in time"
        return f"nobody could start it{limit}, and the misfire policy is 'skip'"
    if fire.reason == Reason.CATCH_UP_LIMIT:
        return "nobody could start it in time, and only the newest of such a backlog are run"
    if fire.reason == Reason.UNKNOWN_TASK:
        return f"no live replica had known the task {job.target if job else ''!r} for an hour"
    if job is not None and fire.reason == job.unclaimable:
        return f"for an hour there was {fire.reason}"
    return _reason(fire)


def _lost(fire: FireRecord) -> str:
    noticed = f"; noticed {when(fire.finished_at)}" if fire.finished_at else ""
    crashes = f" It crashed {fire.crashes} times." if fire.crashes > 1 else ""
    died = f"its replica {fire.replica} died in mid-run{noticed}"
    if fire.reason == Reason.DECLARED_DEAD:
        died = f"{fire.error} in mid-run, at {when(fire.finished_at)}"
    return (
        f"It is lost: started {when(fire.started_at, exact=True)}, and {died}. "
        f"How far it came is not known.{crashes}"
    )


def _cancelled(fire: FireRecord) -> str:
    ran = f", after it had started {when(fire.started_at, exact=True)}" if fire.started_at else ""
    by = f" of {fire.cancelled_by}" if fire.cancelled_by else f" ({fire.refers_to})" if fire.refers_to else ""
    return f"{fire.reason or 'no reason is on record'}{by} at {when(fire.finished_at)}{ran}"


def _paused(gap: Gap | None) -> str:
    if gap is None:
        return "the job was paused"
    until = f" until {when(gap.until)}" if gap.until else ""
    by = f" by {gap.by}" if gap.by else ""
    return f"the job was paused from {when(gap.since)}{until}{by}" + (f', "{gap.note}"' if gap.note else "")


def _named(fire: FireRecord, other: FireRecord | None) -> str:
    return other.key if other else fire.refers_to or "another run"


def _span(other: FireRecord | None) -> str:
    if other is None or other.started_at is None:
        return ""
    started = other.attempts[0].started_at if other.attempts else other.started_at
    return f", from {when(started)} " + (
        f"to {when(other.finished_at)}" if other.finished_at else "until now"
    )


def fate(other: FireRecord | None) -> str:
    """As in: which …"""
    if other is None:
        return "is forgotten"
    if other.state.final:
        return f"{_VERBS.get(other.state, other.state.value)} at {when(other.finished_at)}"
    return f"is {other.state}"


_VERBS = {State.LOST: "was lost", State.SKIPPED: "was skipped", State.MISSED: "was missed"}
_VERBS |= {State.CANCELLED: "was cancelled"}
