"""Records as Redis keeps them: hashes of the fields that scripts read and change, texts for everything else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, get_type_hints

from fencepost.model import (
    Attempt,
    Era,
    FireRecord,
    Job,
    JobRecord,
    Json,
    LastRun,
    Lease,
    ReplicaRecord,
    State,
    changed,
)
from fencepost.model.triggers import iso
from fencepost.store.codec import from_json, micros, moment
from fencepost.store.redis.keys import join, split
from fencepost.store.texts import fields_of, job_record, replica_record, same_but_hot, text, texts_of
from fencepost.store.unreadable import checked_fire

_encode = json.JSONEncoder(separators=(",", ":")).encode

Flat = Sequence[Any]
"""Values in the order of their fields, as a script returns them; what is absent is None."""


def when(value: str | None) -> datetime | None:
    return moment(int(value)) if value else None


def stamp(value: datetime | None) -> str:
    return "" if value is None else str(micros(value))


# --- fires ----------------------------------------------------------------------------------------------
#
# A row is its token, a space, and JSON of what is not at its default; the job and the due time are where the row
# is found. Of a final row scripts read how and when it ended, so that comes first. A run that is settled as usual
# keeps its row and gets a second line: [when, state, reason, error, output, result].

_NAMES = {
    "state": "st",
    "finished_at": "f",
    "replica": "r",
    "claim_no": "n",
    "attempt": "a",
    "started_at": "s",
    "reason": "why",
    "refers_to": "to",
    "count": "c",
    "last_due_at": "l",
    "args": "args",
    "by": "by",
    "crashes": "x",
    "settled": "k",
    "not_before": "b",
    "error": "e",
    "checkpoint": "cp",
    "progress": "p",
    "cancel_requested": "q",
    "cancelled_by": "qb",
    "attempts": "h",
    "output": "o",
    "repeats": "re",
    "result": "v",
    "jitter_seconds": "j",
    "trace": "tr",
    "remote": "rm",
}
_FIELDS = {short: name for name, short in _NAMES.items()}
_TIMES = frozenset({"finished_at", "started_at", "last_due_at", "not_before"})
_BLANK = FireRecord("", "", moment(0))
_DEFAULTS = [(name, short, getattr(_BLANK, name)) for name, short in _NAMES.items()]
_MOMENT = "m"
"""The moment, where it does not follow from when the fire was due; and in a final row that has no token, because
two rows of a job must not be the same."""


def has_row(fire: FireRecord) -> bool:
    """Whether there is more to a fire that is not final than its moment."""
    return not (fire.scheduled and fire.state is State.PENDING and fire.count == 1)


def place_of(fire: FireRecord) -> str:
    return f"{fire.job_id}:{member_of(fire)}"


def member_of(fire: FireRecord) -> str:
    return iso(fire.due_at) if fire.scheduled else fire.key[len(fire.job_id) :]


def row_of(fire: FireRecord) -> str:
    values: dict[str, Any] = {}
    for name, short, default in _DEFAULTS:
        value = getattr(fire, name)
        if value == default or value is State.RUNNING:
            continue
        if name in _TIMES:
            value = micros(value)
        elif name == "attempts":
            value = [_attempt_row(attempt) for attempt in value]
        values[short] = value
    if not fire.scheduled or (fire.state.final and not fire.token):
        values[_MOMENT] = member_of(fire)
    return f"{fire.token} {_encode(values)}"


def planned_fire(job_id: str, member: str, due: int) -> FireRecord:
    """Without a row."""
    return changed(_BLANK, key=join(job_id, member), job_id=job_id, due_at=moment(due))


def claimed_fire(
    job_id: str, member: str, due: int, token: int, replica: str, claim_no: int, at: datetime
) -> FireRecord:
    """One that was planned and is claimed for the first time."""
    return changed(
        _BLANK,
        key=f"{job_id}@{member}",
        job_id=job_id,
        due_at=moment(due),
        state=State.RUNNING,
        token=token,
        replica=replica,
        claim_no=claim_no,
        attempt=1,
        started_at=at,
    )


def fire_of(job_id: str, due: int, row: str, state: State = State.PENDING) -> FireRecord:
    """`state`: if the row does not say."""
    first, _, ending = row.partition("\n")
    token, _, fields = first.partition(" ")
    due_at, written = moment(due), json.loads(fields)
    member = written.pop(_MOMENT, None) or iso(due_at)
    values = {_FIELDS[short]: value for short, value in written.items() if short in _FIELDS}
    for name in _TIMES & values.keys():
        values[name] = moment(values[name])
    if "attempts" in values:
        values["attempts"] = tuple(_attempt(each) for each in values["attempts"])
    values["state"] = State(values["state"]) if "state" in values else state
    fire = changed(
        _BLANK,
        key=join(job_id, member),
        job_id=job_id,
        due_at=due_at,
        scheduled=not member.startswith("!"),
        token=int(token),
        **values,
    )
    return _ended(checked_fire(fire), *json.loads(ending)) if ending else checked_fire(fire)


def moment_in(row: str) -> str | None:
    """The moment that a row which cannot be read seems to have of its own."""
    found = re.search(r'"m":"([^"]*)"', row)
    return found[1] if found else None


def holder_of(row: str) -> str | None:
    """The replica that a run which cannot be read seems to be of."""
    found = re.search(r'"r":"([^"]*)"', row)
    return found[1] if found else None


@lru_cache(maxsize=200)
def ending_of(
    state: State, reason: str | None = None, error: str | None = None, output: str | None = None
) -> str:
    """The second line of a run that is settled, but for the bracket and the moment: the server knows that."""
    return _ending([state.value, reason, error, output])


def ending_with(state: State, reason: str | None, error: str | None, output: str | None, result: Json) -> str:
    """The same of a run that has returned something."""
    return _ending([state.value, reason, error, output, result])


def _ending(values: list[Json]) -> str:
    while values[-1] is None:
        values.pop()
    return _encode(values)[1:]


def _ended(
    fire: FireRecord,
    at: int,
    state: str,
    reason: str | None = None,
    error: str | None = None,
    output: str | None = None,
    result: Json = None,
) -> FireRecord:
    return changed(
        fire.ended(moment(at), state, error),
        state=State(state),
        reason=reason,
        finished_at=moment(at),
        settled=fire.token,
        not_before=None,
        output=fire.output if output is None else output,
        result=result,
    )


def _attempt_row(attempt: Attempt) -> list[Any]:
    started_at, finished_at = micros(attempt.started_at), micros(attempt.finished_at)
    return [attempt.token, attempt.replica, started_at, finished_at, attempt.outcome, attempt.error]


def _attempt(row: Sequence[Any]) -> Attempt:
    token, replica, started_at, finished_at, outcome, error = row
    return Attempt(token, replica, moment(started_at), moment(finished_at), outcome, error)


# --- jobs -----------------------------------------------------------------------------------------------

HOT = (
    "edition",
    "token",
    "decided",
    "tail",
    "segment",
    "cursor",
    "next",
    "rows",
    "reach",
    "plain",
    "late",
    "skips",
    "group",
    "text",
    "run",
    "success",
    "failures",
)
NEVER = "never"


@dataclass(frozen=True, slots=True)
class Hot:
    """What of a job changes with its fires, and what a script must know to decide one on the fast path."""

    edition: int
    """Grows with every change to the job or any of its fires: what was read is still true if it is the same."""
    rows: int = 0
    """How many of its live fires have a row."""
    reach: int = 0
    """No fire that has a row was due later."""
    group: str = ""
    """`<kind>:<target>`: by what the moments of its decisions are kept."""
    text: str = ""
    """The digest of everything else."""

    @classmethod
    def of(cls, values: Flat) -> Hot:
        """As far as it can be read."""
        found = dict(zip(HOT, values, strict=True))
        edition, rows, reach = (counted(found[name]) for name in ("edition", "rows", "reach"))
        return cls(edition, rows, reach, found["group"] or "", found["text"] or "")


def group_of(job: Job) -> str:
    kind = "leader" if job.leader_only else "any"
    return f"{kind}{job.priority or ''}:{job.lane}"


def counted(value: Any) -> int:
    """A number that scripts count up; 0: it is none."""
    return int(value) if isinstance(value, str | int) and re.fullmatch(r"-?\d{1,18}", str(value)) else 0


def cold_of(record: JobRecord) -> str:
    """What rarely changes: the definition, a line feed, the rest. The first calendar's cursor is hot."""
    return "\n".join(texts_of(_without_cursor(record)))


def same_cold(one: JobRecord, other: JobRecord) -> bool:
    return same_but_hot(_without_cursor(one), _without_cursor(other))


def _without_cursor(record: JobRecord) -> JobRecord:
    if not record.segments:
        return record
    head = changed(record.segments[0], cursor=moment(0), next_at=None)
    return changed(record, segments=(head, *record.segments[1:]))


def digest(cold: str) -> str:
    return hashlib.sha1(cold.encode()).hexdigest()[:16]


def cold_record(cold: str) -> JobRecord:
    definition, _, rest = cold.partition("\n")
    return job_record(definition, rest)


def job_of(values: Flat, record: JobRecord) -> JobRecord:
    """`record`: what is cold."""
    hot = dict(zip(HOT, values, strict=True))
    for name in ("edition", "rows", "reach", "late"):
        int(hot[name])
    if hot["plain"] != NEVER:
        int(hot["plain"])
    segments = record.segments
    if segments:
        cursor, following = when(hot["cursor"]), when(hot["next"])
        segments = (changed(segments[0], cursor=cursor, next_at=following), *segments[1:])
    decided = when(hot["decided"])
    tail = hot["tail"] or None
    return changed(
        record,
        token=int(hot["token"]),
        decided_through=decided,
        tail=tail,
        segments=segments,
        last_run=_run_of(record.id, hot["run"]) if hot["run"] else None,
        last_success_at=when(hot["success"]),
        failures_in_a_row=int(hot["failures"] or 0),
    )


# The last run: [due, started, finished, replica, moment, state, reason, line of the error]. A script puts the first
# half before the second one, which it is sent.


def _run_of(job_id: str, row: str) -> LastRun:
    due, started, finished, replica, member, state, reason, line = json.loads(row)
    times = (moment(due), moment(started), moment(finished))
    return LastRun(join(job_id, member), State(state), *times, replica, reason, line)


def _run_row(run: LastRun) -> str:
    begun = [micros(run.due_at), micros(run.started_at), micros(run.finished_at), run.replica]
    half = run_half(split(run.key)[1], run.state, run.reason, run.error_line)
    return f"{_encode(begun)[:-1]},{half}"


def run_half(member: str, state: State, reason: str | None, line: str | None) -> str:
    return _encode([member, state.value, reason, line])[1:]


def hot_values(record: JobRecord, hot: Hot, fast_from: str) -> list[str]:
    """Names and values for one command."""
    head = record.segments[0] if record.segments else None
    values = (
        hot.edition,
        record.token,
        stamp(record.decided_through),
        record.tail or "",
        head.version if head else "",
        stamp(head.cursor) if head else "",
        stamp(head.next_at) if head else "",
        hot.rows,
        hot.reach,
        fast_from,
        round(record.job.misfire_after.total_seconds() * 1_000_000),
        int(record.job.overlap.kind == "skip"),
        hot.group,
        hot.text,
        _run_row(record.last_run) if record.last_run else "",
        stamp(record.last_success_at),
        record.failures_in_a_row,
    )
    return [str(word) for pair in zip(HOT, values, strict=True) for word in pair]


# --- replicas and the lease -----------------------------------------------------------------------------

REPLICA = (
    "id",
    "edition",
    "expires",
    "ttl",
    "heartbeat",
    "renewals",
    "beat_no",
    "claim_no",
    "steps",
    "draining",
    "targets",
    "text",
)


def replica_of(values: Flat, targets: tuple[str, ...]) -> ReplicaRecord:
    _, _, expires, ttl, heartbeat, renewals, heartbeat_no, claim_no, steps, draining, _, row = values
    return changed(
        replica_record(row),
        expires=float(expires),
        ttl=float(ttl),
        heartbeat=float(heartbeat),
        renewals=int(renewals),
        beat_no=int(heartbeat_no),
        claim_no=int(claim_no),
        steps=int(steps),
        draining=draining == "1",
        targets=targets,
    )


def replica_fields(values: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """How to read each by itself; `values`: by their names, but for the targets."""
    kinds: dict[str, Callable[[Any], Any]] = {"expires": float, "ttl": float, "heartbeat": float}
    kinds |= dict.fromkeys(("renewals", "beat_no", "claim_no", "steps"), int)
    kinds["draining"] = lambda value: value == "1"
    row = fields_of(ReplicaRecord, values["text"] or "")
    still: dict[str, Callable[[], Any]] = {
        name: row[name] for name in ("host", "pid", "version", "joined_at") if name in row
    }
    return {**still, **{name: partial(kind, values[name]) for name, kind in kinds.items()}}


def replica_values(replica: ReplicaRecord, edition: int, targets: str) -> list[str]:
    """Names and values, but for the steps: those are counted up, never set."""
    still = changed(replica, targets=(), expires=0.0, renewals=0, beat_no=0, claim_no=0, steps=0)
    values = {
        "id": replica.id,
        "edition": edition,
        "expires": f"{replica.expires:.6f}",
        "ttl": replica.ttl,
        "heartbeat": replica.heartbeat,
        "renewals": replica.renewals,
        "beat_no": replica.beat_no,
        "claim_no": replica.claim_no,
        "draining": int(replica.draining),
        "targets": targets,
        "text": text(changed(still, draining=False)),
    }
    return [str(word) for pair in values.items() for word in pair]


def targets_digest(targets: tuple[str, ...]) -> str:
    return hashlib.sha1("\n".join(targets).encode()).hexdigest()[:16] if targets else ""


LEASE = (
    "edition",
    "holder",
    "term",
    "renewals",
    "ttl",
    "heartbeat",
    "expires",
    "incarnation",
    "standing",
    "lost_through",
    "server",
    "history",
)


def lease_of(values: Flat) -> Lease:
    _, holder, term, renewals, ttl, heartbeat, expires, incarnation, standing, lost_through, server, _ = (
        values
    )
    era = Era(int(incarnation), _standing(standing), when(lost_through), server)
    return Lease(holder or None, int(term), int(renewals), float(ttl), float(heartbeat), float(expires), era)


def lease_fields(values: Flat) -> dict[str, Callable[[], Any]]:
    """How to read each by itself."""
    found = dict(zip(LEASE, values, strict=True))
    return {
        "term": lambda: int(found["term"]),
        "incarnation": lambda: int(found["incarnation"]),
        "standing": lambda: _standing(found["standing"]),
        "lost_through": lambda: when(found["lost_through"]),
        "server": lambda: found["server"] or "",
    }


def _standing(value: Any) -> Any:
    return from_json(get_type_hints(Era)["standing"], value)


def lease_values(lease: Lease, edition: int) -> list[str]:
    values = {
        "edition": edition,
        "holder": lease.holder or "",
        "term": lease.term,
        "renewals": lease.renewals,
        "ttl": lease.ttl,
        "heartbeat": lease.heartbeat,
        "expires": f"{lease.expires:.6f}",
        "incarnation": lease.era.incarnation,
        "standing": lease.era.standing,
        "lost_through": stamp(lease.era.lost_through),
        "server": lease.era.server,
    }
    return [str(word) for pair in values.items() for word in pair]
