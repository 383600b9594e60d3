"""Fires, jobs, replicas and the lease as rows, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, get_type_hints

from fencepost.model import (
    MAX_ATTEMPTS_KEPT,
    Attempt,
    Era,
    FireRecord,
    Gap,
    JobRecord,
    LastRun,
    Lease,
    ReplicaRecord,
    Segment,
    State,
    changed,
    fire_key,
)
from fencepost.store.codec import from_json, micros, moment, ticks, when
from fencepost.store.columns import FATE, fate_of, fate_row, settled_attempt
from fencepost.store.rows import TargetRecord
from fencepost.store.texts import job_record, text
from fencepost.store.unreadable import checked_fire

# --- fires --------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a fire is found: its key taken apart."""

    job_id: str
    due_at: int | None
    """None: a manual fire, which is found by its name."""
    name: str


_DATE = len("2026-11-15T12:00:00.000000Z")


def place_of(key: str) -> Place | None:
    """None: no fire has such a key."""
    job_id, mark, rest = key.partition("@")
    if mark:
        # The format is frozen: other ways to write the same moment are other keys.
        if len(rest) != _DATE or rest[10] != "T" or rest[-1] != "Z":
            return None
        try:
            return Place(job_id, micros(datetime.fromisoformat(rest)), "")
        except ValueError:
            return None
    job_id, mark, name = key.partition("!")
    return Place(job_id, None, name) if name else None


FIRE_COLUMNS = f"job_id, due_at, name, {', '.join(FATE)}, error, progress, checkpoint, output, extra"
FIRE_KINDS = "tbttttbbbtbbbbbbbBttttt"
PLANNED_COLUMNS = (
    "job_id, due_at, '', 'pending', null, null, count, last_due_at, 0::bigint, null, 0::bigint, 0, 0,"
    " 0::bigint, null::bigint, null::bigint, null::bigint, false, null, null, null, null, null"
)
"""Of a planned fire, in the order of the others."""


def key_of(row: Any) -> str:
    return f"{row[0]}!{row[2]}" if row[2] else fire_key(row[0], moment(row[1]))


def fire_of(row: Any) -> FireRecord:
    job_id, due, name = row[0], moment(row[1]), row[2]
    extra = json.loads(row[22]) if row[22] else {}
    fire = FireRecord(
        key=key_of(row),
        job_id=job_id,
        due_at=due,
        scheduled=not name,
        **fate_of(row[3:18]),
        error=row[18],
        progress=json.loads(row[19]) if row[19] else None,
        checkpoint=json.loads(row[20]) if row[20] else None,
        output=row[21],
        args=extra.get("args"),
        by=extra.get("by", ""),
        cancelled_by=extra.get("cancelled_by", ""),
        repeats=extra.get("repeats"),
        result=extra.get("result"),
        jitter_seconds=extra.get("jitter_seconds", 0.0),
        trace=extra.get("trace"),
        remote=extra.get("remote"),
    )
    checked_fire(fire)
    if "attempts" in extra:
        return changed(fire, attempts=from_json(tuple[Attempt, ...], extra["attempts"]))
    earlier = from_json(tuple[Attempt, ...], extra.get("earlier", ()))
    return changed(fire, attempts=(*earlier, *settled_attempt(fire))[-MAX_ATTEMPTS_KEPT:])


def fire_row(fire: FireRecord) -> tuple[Any, ...]:
    return (
        fire.job_id,
        micros(fire.due_at),
        "" if fire.scheduled else fire.key.partition("!")[2],
        *fate_row(fire),
        fire.error,
        None if fire.progress is None else text(fire.progress),
        None if fire.checkpoint is None else text(fire.checkpoint),
        fire.output,
        _extra(fire),
    )


def _extra(fire: FireRecord) -> str | None:
    """What most fires do not have. How the last attempt ended need not be said where the fire ended with it."""
    extra: dict[str, Any] = {}
    if fire.args is not None:
        extra["args"] = fire.args
    if fire.by:
        extra["by"] = fire.by
    if fire.cancelled_by:
        extra["cancelled_by"] = fire.cancelled_by
    if fire.repeats is not None:
        extra["repeats"] = fire.repeats
    if fire.result is not None:
        extra["result"] = fire.result
    if fire.jitter_seconds:
        extra["jitter_seconds"] = fire.jitter_seconds
    if fire.trace is not None:
        extra["trace"] = fire.trace
    if fire.remote is not None:
        extra["remote"] = fire.remote
    last = settled_attempt(fire)
    if last and fire.attempts[-1:] != last:
        extra["attempts"] = fire.attempts
    elif len(fire.attempts) > len(last):
        extra["earlier"] = fire.attempts[: len(fire.attempts) - len(last)]
    return text(extra) if extra else None


# --- jobs ---------------------------------------------------------------------------------------------------------

OUTCOME_COLUMNS = (
    "due_at, name, state, started_at, finished_at, replica, reason, error_line, last_success_at,"
    " failures_in_a_row"
)
JOB_COLUMNS = "d.definition, d.rest, c.cursor, c.next_at, j.token, j.decided_through, j.tail, " + ", ".join(
    f"o.{name}" for name in OUTCOME_COLUMNS.split(", ")
)
JOB_TABLES = """
{schema}.jobs j join {schema}.definitions d on d.job_id = j.id join {schema}.calendars c on c.job_id = j.id
left join {schema}.outcomes o on o.job_id = j.id
"""


def job_of(row: Any) -> JobRecord:
    definition, rest, cursor, next_at, token, decided_through, tail, *outcome = row
    record = job_record(definition, rest)
    segments = record.segments
    if segments:
        segments = (changed(segments[0], cursor=moment(cursor), next_at=when(next_at)), *segments[1:])
    return changed(
        record,
        segments=segments,
        token=token,
        decided_through=when(decided_through),
        tail=None if tail is None else fire_key(record.id, moment(tail)),
        **({} if outcome[0] is None else _outcome_of(record.id, outcome)),
    )


def _outcome_of(job_id: str, row: Any) -> dict[str, Any]:
    due_at, name, state, started_at, finished_at, replica, reason, line, success_at, failures = row
    times = (moment(due_at), moment(started_at), moment(finished_at))
    key = f"{job_id}!{name}" if name else fire_key(job_id, times[0])
    return {
        "last_run": LastRun(key, State(state), *times, replica, reason, line),
        "last_success_at": when(success_at),
        "failures_in_a_row": failures,
    }


def outcome_row(record: JobRecord) -> tuple[Any, ...]:
    run = record.last_run
    assert run is not None
    return (
        record.id,
        micros(run.due_at),
        run.key.partition("!")[2],
        run.state.value,
        micros(run.started_at),
        micros(run.finished_at),
        run.replica,
        run.reason,
        run.error_line,
        ticks(record.last_success_at),
        record.failures_in_a_row,
    )


def without_cursor(record: JobRecord) -> JobRecord:
    """As it is kept in the wide row, which is not written again when the calendar is expanded."""
    if not record.segments:
        return record
    return changed(
        record, segments=(changed(record.segments[0], cursor=_EPOCH, next_at=None), *record.segments[1:])
    )


_EPOCH = moment(0)


def head_of(record: JobRecord) -> Segment | None:
    return record.segments[0] if record.segments else None


# --- targets, replicas, the lease ---------------------------------------------------------------------------------

TARGET_COLUMNS = "name, unknown_since, orphaned, gaps"


def target_of(row: Any) -> TargetRecord:
    name, unknown_since, orphaned, gaps = row
    found = from_json(tuple[Gap, ...], json.loads(gaps)) if gaps else ()
    return TargetRecord(name, when(unknown_since), orphaned, found)


REPLICA_COLUMNS = (
    "id, host, pid, version, joined_at, ttl, heartbeat, expires, renewals, beat_no, claim_no, steps, draining,"
    " lingering"
)


def replica_of(row: Any, targets: tuple[str, ...] = ()) -> ReplicaRecord:
    """`row`: these columns."""
    return ReplicaRecord(
        id=row[0],
        host=row[1],
        pid=row[2],
        version=row[3],
        joined_at=moment(row[4]),
        ttl=row[5],
        heartbeat=row[6],
        expires=row[7],
        renewals=row[8],
        beat_no=row[9],
        claim_no=row[10],
        steps=row[11],
        draining=row[12],
        lingering=tuple(row[13].splitlines()),
        targets=targets,
    )


def replica_fields(row: Any, targets: tuple[str, ...]) -> dict[str, Callable[[], Any]]:
    """How to read each by itself: only a moment may be out of range."""
    names = REPLICA_COLUMNS.split(", ")
    found: dict[str, Callable[[], Any]] = {
        name: partial(_as_it_is, value) for name, value in zip(names, row, strict=False)
    }
    found["lingering"] = lambda: tuple(row[13].splitlines())
    return {**found, "joined_at": lambda: moment(row[4]), "targets": lambda: targets}


def _as_it_is(value: Any) -> Any:
    return value


def replica_row(replica: ReplicaRecord) -> tuple[Any, ...]:
    return (
        replica.id,
        replica.host,
        replica.pid,
        replica.version,
        micros(replica.joined_at),
        replica.ttl,
        replica.heartbeat,
        replica.expires,
        replica.renewals,
        replica.beat_no,
        replica.claim_no,
        replica.steps,
        replica.draining,
        "\n".join(replica.lingering),
    )


LEASE_COLUMNS = "holder, term, renewals, ttl, heartbeat, expires, incarnation, standing, lost_through, server"


def lease_of(row: Any) -> Lease:
    *lease, incarnation, standing, lost_through, server = row
    holder, term, renewals, ttl, heartbeat, expires = lease
    era = Era(incarnation, _standing(standing), when(lost_through), server)
    return Lease(holder, term, renewals, ttl, heartbeat, expires, era)


def lease_fields(row: Any) -> dict[str, Callable[[], Any]]:
    """How to read each by itself."""
    found = dict(zip(LEASE_COLUMNS.split(", "), row, strict=True))
    return {
        "term": lambda: found["term"],
        "incarnation": lambda: found["incarnation"],
        "standing": lambda: _standing(found["standing"]),
        "lost_through": lambda: when(found["lost_through"]),
        "server": lambda: found["server"],
    }


def _standing(value: Any) -> Any:
    return from_json(get_type_hints(Era)["standing"], value)


def lease_row(lease: Lease) -> tuple[Any, ...]:
    era = lease.era
    return (
        lease.holder,
        lease.term,
        lease.renewals,
        lease.ttl,
        lease.heartbeat,
        lease.expires,
        era.incarnation,
        era.standing,
        ticks(era.lost_through),
        era.server,
    )
