"""What `--json` prints. The fields are a contract: they may be added to, never renamed or taken away."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fencepost.model import (
    Attempt,
    FireRecord,
    Gap,
    JobEvent,
    JobRecord,
    LastRun,
    Origin,
    error_line,
    job_to_json,
)
from fencepost.model.job_fields import shown_fields
from fencepost.model.triggers import Trigger, iso

Shape = dict[str, Any]


def time(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)


def fire_shape(fire: FireRecord) -> Shape:
    """For lists and events: of errors their last lines."""
    return {
        "key": fire.key,
        "job_id": fire.job_id,
        "due_at": iso(fire.nominal_due_at),
        "state": fire.state.value,
        "reason": fire.reason,
        "refers_to": fire.refers_to,
        "count": fire.count,
        "first_due_at": iso(fire.nominal_due_at),
        "last_due_at": iso(fire.last_due if fire.repeats is None else fire.nominal_due_at),
        "scheduled": fire.scheduled,
        "token": fire.token,
        "attempt": fire.attempt,
        "crashes": fire.crashes,
        "replica": fire.replica,
        "not_before": time(fire.not_before),
        "started_at": time(fire.started_at),
        "finished_at": time(fire.finished_at),
        "error": error_line(fire.error),
        "error_line": error_line(fire.error),
        "late_seconds": late_seconds(fire.start_at, _first_start(fire)),
        "jitter_seconds": fire.jitter_seconds,
        "by": fire.by or None,
        "asked_by": fire.by or None,
        "asked_at": None if fire.scheduled else iso(fire.due_at),
        "retry_of": None if fire.backfill else fire.retry_of,
        "backfill": fire.backfill,
        "effect_key": fire.effect_key,
        "args": None if fire.args is None else dict(fire.args),
        "cancel_requested": fire.cancel_requested,
        "cancelled_by": fire.cancelled_by or None,
        "attempts": [attempt_shape(attempt) for attempt in fire.attempts],
    }


def _first_start(fire: FireRecord) -> datetime | None:
    return fire.attempts[0].started_at if fire.attempts else fire.started_at


def whole_fire_shape(fire: FireRecord) -> Shape:
    """With what only `show` shows."""
    progress = None if fire.progress is None else dict(fire.progress)
    return {
        **fire_shape(fire),
        "error": fire.error,
        "attempts": [_attempt(attempt, fire) for attempt in fire.attempts],
        "checkpoint": fire.checkpoint,
        "progress": progress,
        "output": fire.output,
        "result": fire.result,
    }


def _attempt(attempt: Attempt, fire: FireRecord) -> Shape:
    """With all of its error, unless that is the fire's own."""
    shape = attempt_shape(attempt)
    return shape if attempt.error == fire.error else {**shape, "error": attempt.error}


def attempt_shape(attempt: Attempt) -> Shape:
    return {
        "token": attempt.token,
        "replica": attempt.replica,
        "started_at": iso(attempt.started_at),
        "finished_at": iso(attempt.finished_at),
        "outcome": attempt.outcome,
        "error": error_line(attempt.error),
    }


def outcome_shape(fire: FireRecord | LastRun) -> Shape:
    """What became of a fire, in short."""
    return {
        "key": fire.key,
        "state": fire.state.value,
        "reason": fire.reason,
        "due_at": iso(fire.due_at),
        "started_at": time(fire.started_at),
        "finished_at": time(fire.finished_at),
        "replica": fire.replica,
    }


def run_shape(run: LastRun | None) -> Shape | None:
    """Of a job's last run."""
    if run is None:
        return None
    return {
        **outcome_shape(run),
        "late_seconds": late_seconds(run.due_at, run.started_at),
        "error_line": run.error_line,
    }


def late_seconds(due_at: datetime, started_at: datetime | None) -> float | None:
    """From due to started; None: it has not started."""
    return None if started_at is None else max(0.0, (started_at - due_at).total_seconds())


def pause_shape(gap: Gap | None) -> Shape | None:
    if gap is None:
        return None
    return {"since": iso(gap.since), "until": time(gap.until), "reason": gap.note, "by": gap.by}


def origin_shape(origin: Origin | None) -> Shape | None:
    """Where a definition comes from, with a text for people (`told`); null: not known."""
    if origin is None:
        return None
    parts = {name: getattr(origin, name) or None for name in ("module", "distribution", "file", "command")}
    return {**parts, "told": str(origin)}


def definition_shape(record: JobRecord) -> Shape:
    return {
        **job_to_json(record.job),
        **shown_fields(record.job),
        "schedule": schedule(record),
        "created_at": iso(record.created_at),
        "changed_at": iso(record.changed_at),
        "revision": record.revision,
        "fingerprint": record.fingerprint,
        "source": record.source,
        "origin": origin_shape(record.origin),
        "last_token": record.token,
    }


def event_shape(event: JobEvent) -> Shape:
    return {
        "at": iso(event.at),
        "kind": event.kind,
        "since": iso(event.since),
        "until": time(event.until),
        "trigger": None if event.trigger is None else dict(event.trigger),
        "note": event.note,
        "by": event.by,
        "before": None if event.before is None else dict(event.before),
        "after": None if event.after is None else dict(event.after),
    }


def schedule(record: JobRecord) -> str | None:
    """In words; None: it runs when triggered."""
    return record.job.trigger.describe() if record.job.trigger else None


def calendar(record: JobRecord) -> Trigger | None:
    """The trigger in force, its anchor filled in by the store; None: no more fires, or no schedule."""
    return record.segments[-1].trigger if record.segments else None


def next_run(record: JobRecord, now: datetime) -> datetime | None:
    return record.next_run_after(now)
