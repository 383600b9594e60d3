"""Fires: one occurrence of a job each, and the table of states that it goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fencepost.model.triggers import from_iso, iso
from fencepost.model.values import Json, changed, checked_id


class State(StrEnum):
    """Where a fire stands.

        pending ──────────► running ──► succeeded | failed | cancelled | lost
           │  ╲               │  ▲
           │   ► queued ──────┘  │         queued: admitted to wait for its turn
           │                     │
           │      waiting ◄──────┘         waiting: to be claimed again (retry, given back, rerun)
           ▼
        skipped | missed | cancelled       decided without a start

    The last six are final and never change.
    """

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    MISSED = "missed"
    LOST = "lost"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.SKIPPED, State.MISSED, State.LOST, State.CANCELLED})


class Reason(StrEnum):
    """Why a fire did not simply succeed. Stored, shown, and compared: the wording is part of the ledger."""

    PAUSED = "paused"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue full"
    LIMIT = "limit full"
    PARENT = "a job before it did not let it go"
    COALESCED = "coalesced"
    MISFIRE = "misfire"
    CATCH_UP_LIMIT = "beyond the catch-up limit"
    UNKNOWN_TASK = "no replica knew the task"
    PAST = "already past when the job was declared"
    REMOVED = "job removed"
    REPLICA_DIED = "its replica died in mid-run"
    DECLARED_DEAD = "its replica was declared dead"
    DATA_LOSS = "the store lost data"
    TIMED_OUT = "timed out"
    RAISED = "raised an exception"
    DRAIN_LIMIT = "drain limit"
    REQUESTED = "on request"
    REPLACED = "replaced by a newer fire"
    EFFECT_COMMITTED = "effect already committed"
    NOT_RECORDED = "could not be recorded"
    UNREADABLE = "its row could not be read"
    ENGINE_LOST = "its engine lost it in mid-run"
    NEVER_STARTED = "its engine lost it before it started"


def crashed(times: int) -> str:
    """Why a fire that may be run again after a crash is not: it has done so as often as its job allows."""
    return f"crashed {times} times" if times > 1 else "crashed"


@dataclass(frozen=True)
class Attempt:
    """One claim of a fire and how it ended."""

    token: int
    replica: str
    started_at: datetime
    finished_at: datetime
    outcome: str
    error: str | None = None


MAX_ATTEMPTS_KEPT = 20
ERROR_LINE_LIMIT = 300


def error_line(error: str | None) -> str | None:
    """The last line of an error's text: of a traceback, the exception."""
    line = next((line.strip() for line in reversed((error or "").splitlines()) if line.strip()), None)
    if line is None:
        return None
    return line if len(line) <= ERROR_LINE_LIMIT else f"{line[: ERROR_LINE_LIMIT - 1]}…"


@dataclass(frozen=True)
class FireRecord:
    """One occurrence of a job; or, closed without a start, a run of neighbours that share one fate."""

    key: str
    job_id: str
    due_at: datetime
    scheduled: bool = True
    state: State = State.PENDING
    reason: str | None = None
    refers_to: str | None = None
    """The fire named by the reason: coalesced into which, overlapped by which. Of a run that was asked to end to make
    room for a newer fire: that one."""
    count: int = 1
    last_due_at: datetime | None = None
    args: Mapping[str, Json] | None = None
    by: str = ""
    token: int = 0
    replica: str | None = None
    claim_no: int = 0
    attempt: int = 0
    crashes: int = 0
    settled: int = 0
    """The token that settled it or gave it back. Lets a repeated settle be answered alike."""
    not_before: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    checkpoint: Json = None
    progress: Mapping[str, Json] | None = None
    cancel_requested: bool = False
    cancelled_by: str = ""
    """Who asked for its end."""
    attempts: tuple[Attempt, ...] = ()
    output: str | None = None
    """The end of what its run has logged and printed."""
    repeats: Mapping[str, Json] | None = None
    """Of a retry: `key` and `due_at` of the fire that it repeats, and `effect_key` if it shares its effects. Of a fire
    of a backfill: the same of the scheduled fire in whose place it runs, and the `backfill`."""
    result: Json = None
    """What the body of its success returned, if that is JSON."""
    jitter_seconds: float = 0.0
    """By how much its start was put off on purpose (`Job.jitter`)."""
    trace: Mapping[str, str] | None = None
    """Trace contexts, as W3C `traceparent`: `caller`, where it was triggered, and `run`, of the run that began last."""
    remote: Mapping[str, Json] | None = None
    """Of a run that an engine carries out: see `Remote`."""

    @property
    def retry_of(self) -> str | None:
        """The key of the fire that this one repeats."""
        return self.repeats["key"] if self.repeats else None

    @property
    def backfill(self) -> str | None:
        """The name of the backfill that it belongs to."""
        return self.repeats.get("backfill") if self.repeats else None

    @property
    def start_at(self) -> datetime:
        """When it was to start: lateness counts from here."""
        return self.due_at + timedelta(seconds=self.jitter_seconds) if self.jitter_seconds else self.due_at

    @property
    def nominal_due_at(self) -> datetime:
        """When it was due. A retry keeps the due time of what it repeats; its own `due_at` is when it was asked for."""
        return from_iso(self.repeats["due_at"]) if self.repeats else self.due_at

    @property
    def effect_key(self) -> str:
        """Under which its effects happen once: the key of the first fire in a chain of retries."""
        return (self.repeats or {}).get("effect_key") or self.key

    @property
    def first_due_at(self) -> datetime:
        return self.due_at

    @property
    def last_due(self) -> datetime:
        return self.last_due_at or self.due_at

    @property
    def why(self) -> str | None:
        return f"{self.reason} ({self.refers_to})" if self.refers_to else self.reason

    def ended(self, at: datetime, outcome: str, error: str | None = None) -> FireRecord:
        """With the current attempt put on record."""
        assert self.replica is not None
        assert self.started_at is not None
        attempt = Attempt(self.token, self.replica, self.started_at, at, outcome, error)
        return changed(self, attempts=(*self.attempts, attempt)[-MAX_ATTEMPTS_KEPT:], error=error)


@dataclass(frozen=True)
class Remote:
    """What is on record of a run that an engine carries out. It belongs to the engine: its row names `engine:<name>` as
    its owner, so the death of the replica that sent it does not touch it."""

    engine: str
    by: str
    """The replica that sends it and polls the engine. When that is gone, another adopts it."""
    submit_within: float
    """Seconds in which its order reaches the engine, or is not expected to any more."""
    submit_until: float
    """When these are over, on the store's steady clock."""
    incarnation: int = 0
    server: str = ""
    """Which history of the store it was claimed in. In another one its order must not start."""
    adopted: bool = False
    """Whether its order was sent is not known."""
    worker: str | None = None
    """Who passed the start gate; None: its body has not started."""
    heartbeat: float = 0.0
    ttl: float | None = None
    """Of the worker's heartbeats; None: it sends none."""
    expires: float = 0.0
    """On the store's steady clock: until then the last heartbeat of the worker holds."""
    beats: int = 0
    """Heartbeats of the worker so far; an adoption counts as one."""
    refused: int = 0
    """Deliveries that the start gate has refused."""

    @classmethod
    def of(cls, fire: FireRecord) -> Remote | None:
        return None if fire.remote is None else cls(**fire.remote)

    def to_json(self) -> dict[str, Json]:
        return {
            each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default
        }


def engine_owner(engine: str) -> str:
    """In place of a replica, in the rows of runs that an engine carries out. No replica can be called that."""
    return f"engine:{engine}"


_BLANK = FireRecord("", "", datetime(1970, 1, 1, tzinfo=UTC))


def planned_fire(
    key: str, job_id: str, due_at: datetime, count: int, last_due_at: datetime | None
) -> FireRecord:
    """`FireRecord(…)`, several times as fast: most rows that are ever made are made here."""
    return changed(_BLANK, key=key, job_id=job_id, due_at=due_at, count=count, last_due_at=last_due_at)


def fire_key(job_id: str, due_at: datetime) -> str:
    """The frozen, derived key of a scheduled fire: two leaders planning it write the same row."""
    return f"{job_id}@{iso(due_at)}"


def job_of(key: str) -> str:
    """The id of the job that the fire with this key belongs to."""
    return key.partition("@")[0].partition("!")[0]


def repeating(fire: FireRecord, again: bool) -> dict[str, Json]:
    """What a retry records of the fire it repeats. `again`: its effects happen once more, under a key of their own."""
    repeats = {"key": fire.key, "due_at": iso(fire.nominal_due_at)}
    return repeats if again else {**repeats, "effect_key": fire.effect_key}


def manual_key(job_id: str, name: str) -> str:
    """Manual fires have a key space of their own."""
    return f"{job_id}!{checked_id(name, 'idempotency key')}"
