"""Records as the values of columns, as SQLite and MySQL keep them."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from fencepost.model import Attempt, FireRecord, JobRecord, LastRun, State, changed
from fencepost.store.backend import JobChange
from fencepost.store.codec import from_json, micros, moment, ticks, when
from fencepost.store.columns import fate_of, fate_row, settled_attempt
from fencepost.store.texts import job_record, text
from fencepost.store.unreadable import checked_fire

EXTRA = (
    "args",
    "by",
    "cancelled_by",
    "error",
    "checkpoint",
    "progress",
    "attempts",
    "output",
    "repeats",
    "result",
    "jitter_seconds",
    "trace",
    "remote",
)
"""Fields of a fire that most fires do not have."""

FIRE_FIELDS = [field.name for field in fields(FireRecord) if field.name not in EXTRA]
OUTCOME = (
    "key",
    "state",
    "due_at",
    "started_at",
    "finished_at",
    "replica",
    "reason",
    "error_line",
    "last_success_at",
    "failures_in_a_row",
)
FIRES = f"select {', '.join(f'fire.`{name}`' for name in (*FIRE_FIELDS, 'extra'))} from {{fires}} as fire"
JOBS = (
    "select jobs.id, look_at, plan_at, definition, rest, jobs.token, decided_through, tail, "
    + ", ".join(f"outcome.`{name}`" for name in OUTCOME)
    + " from {jobs} as jobs left join {outcomes} as outcome on outcome.job_id = jobs.id where jobs.id"
)
_NOTHING: dict[str, tuple[Any, ...]] = {name: (None,) for name in EXTRA} | {
    "by": ("",),
    "cancelled_by": ("",),
    "attempts": ((),),
    "jitter_seconds": (0.0,),
}


_AS_PLANNED = (True, "pending", None, None)
_BLANK = (0, None, 0, 0, 0, 0, None, None, None, False, None)
"""The columns of a planned fire before and after those that it has."""


def number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.100} is no number")
    return value


def job_of(row: Any) -> JobRecord:
    definition, rest, token, decided_through, tail, *outcome = row
    record = job_record(definition, rest)
    record = changed(record, token=token, decided_through=when(decided_through), tail=tail)
    return changed(record, **_outcome_of(outcome)) if outcome and outcome[0] is not None else record


def _outcome_of(row: Any) -> dict[str, Any]:
    key, state, due_at, started_at, finished_at, replica, reason, line, success, failures = row
    times = (moment(due_at), moment(started_at), moment(finished_at))
    return {
        "last_run": LastRun(key, State(state), *times, replica, reason, line),
        "last_success_at": when(success),
        "failures_in_a_row": failures,
    }


def outcome_row(record: JobRecord) -> tuple[Any, ...]:
    assert record.last_run is not None
    ended = run_row(record.last_run)
    return (record.id, *ended, ticks(record.last_success_at), record.failures_in_a_row)


def run_row(run: LastRun) -> tuple[Any, ...]:
    times = (micros(run.due_at), micros(run.started_at), micros(run.finished_at))
    return (run.key, run.state.value, *times, run.replica, run.reason, run.error_line)


def hot_row(change: JobChange) -> tuple[Any, ...]:
    record = change.record
    return (
        record.token,
        ticks(record.decided_through),
        record.tail,
        ticks(change.decide_at),
        ticks(change.plan_at),
    )


def extra_of(fire: FireRecord) -> str | None:
    """What most fires do not have. That its only attempt ended as the fire did goes without saying."""
    attempts = fire.attempts
    if (
        fire.progress is fire.args is fire.checkpoint is fire.error is fire.output is fire.result is None
        and fire.repeats is fire.remote is fire.trace is None
        and not fire.by
        and not fire.cancelled_by
        and not fire.jitter_seconds
        and attempts == _only_attempt(fire)
    ):
        return None
    extra = {name: value for name in EXTRA if (value := getattr(fire, name)) not in _NOTHING[name]}
    if attempts == _only_attempt(fire):
        extra.pop("attempts", None)
    elif not attempts:
        extra["attempts"] = ()
    return text(extra)


def _only_attempt(fire: FireRecord) -> tuple[Attempt, ...]:
    """The attempts of a fire that was settled at once."""
    return settled_attempt(fire) if fire.attempt == 1 else ()


def fire_row(fire: FireRecord) -> tuple[Any, ...]:
    if fire.scheduled and fire.state is State.PENDING:
        return (
            fire.key,
            fire.job_id,
            micros(fire.due_at),
            *_AS_PLANNED,
            fire.count,
            ticks(fire.last_due_at),
            *_BLANK,
        )
    return (
        fire.key,
        fire.job_id,
        micros(fire.due_at),
        fire.scheduled,
        *fate_row(fire),
        extra_of(fire),
    )


def fire_of(row: Any) -> FireRecord:
    extra = json.loads(row[19]) if row[19] else {}
    if "attempts" in extra:
        extra["attempts"] = from_json(tuple[Attempt, ...], extra["attempts"])
    fire = FireRecord(
        key=row[0],
        job_id=row[1],
        due_at=moment(row[2]),
        scheduled=bool(row[3]),
        **fate_of(row[4:19]),
        **extra,
    )
    checked_fire(fire)
    return fire if "attempts" in extra else changed(fire, attempts=_only_attempt(fire))
