"""The status document: how a pipeline stands, for people and for the page that shows it.

Everything in it is derived from the ledger, the job's record and the roster; nothing is written for it. These are read
one after the other, so something can change in between. Therefore the ledger and the record are read before and after
the roster: if both readings say the same, all of it was true at one moment, that of the roster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.errors import UsageError
from fencepost.model import FireRecord, JobRecord, Json, Reason, State
from fencepost.model.triggers import from_iso, iso
from fencepost.pipeline.memory import FORMAT
from fencepost.pipeline.progress import BEFORE_THE_FIRST, triggered_by
from fencepost.settings import did_you_mean
from fencepost.store.base import FireQuery, Readable, Roster

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

RAN = (State.RUNNING, State.WAITING, State.SUCCEEDED, State.FAILED, State.LOST, State.CANCELLED)
READS = 5
"""How often it reads again if something has changed meanwhile. Runs of a pipeline are not that quick."""
MOST_ROWS = 5
"""The run that goes on, the one that ended last, and a few to spare. More would be searched for far back."""
ERROR_LIMIT = 500


async def pipeline_status(scheduler: Scheduler, job_id: str | None = None) -> dict[str, Json]:
    """How the pipeline stands. It may be left unnamed if there is one: declared here, or alone in the store."""
    return await status_of_pipeline(scheduler, job_id)


async def status_of_pipeline(scheduler: Scheduler, job_id: str | None = None) -> dict[str, Json]:
    """The same, on any loop: the store is read on another one."""
    return await scheduler.reader.ask(lambda store: stored_status(scheduler, store, job_id))


async def stored_status(scheduler: Scheduler, store: Readable, job_id: str | None) -> dict[str, Json]:
    """The same for a caller that has the store."""
    return await read_status(store, job_id or _declared(scheduler))


def pipeline_status_blocking(scheduler: Scheduler, job_id: str | None = None) -> dict[str, Json]:
    """The same for blocking code: a Flask view, a script."""
    return scheduler.ask_blocking(
        scheduler.lifecycle.with_store(lambda store: read_status(store, job_id or _declared(scheduler)))
    )


async def read_status(store: Readable, job_id: str | None) -> dict[str, Json]:
    """The same for a caller that has the store."""
    if job_id is None:
        job_id = await _only_one(store)
    before = await _read(store, job_id)
    for _ in range(READS):
        roster = await store.roster()
        dead = roster.overdue
        if before.current is not None:
            dead |= (await store.evidence([replica.id for replica in roster.replicas])).dead
        after = await _read(store, job_id)
        if before.says == after.says:
            break
        before = after
    return _document(after, roster, dead)


# --- reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    record: JobRecord
    fires: tuple[FireRecord, ...]

    @property
    def says(self) -> tuple[Any, ...]:
        """All but progress, which is free to move on."""
        rows = tuple((fire.key, fire.state, fire.token) for fire in self.fires)
        return rows, self.record.kept, self.record.segments, self.record.pauses

    @property
    def current(self) -> FireRecord | None:
        """The run that has not ended."""
        active = [fire for fire in self.fires if not fire.state.final]
        return next((fire for fire in active if fire.state is State.RUNNING), active[0] if active else None)

    @property
    def last(self) -> FireRecord | None:
        """The run that ended last."""
        ended = [fire for fire in self.fires if fire.finished_at is not None and fire.state.final]
        return max(ended, key=lambda fire: fire.finished_at or fire.due_at, default=None)

    @property
    def kept(self) -> Mapping[str, Json]:
        kept = self.record.kept
        return kept if isinstance(kept, Mapping) and kept.get("pipeline") == FORMAT else {}


async def _read(store: Readable, job_id: str) -> _Reading:
    fires = await store.find_fires(FireQuery(job_id=job_id, states=RAN, limit=MOST_ROWS))
    records = await store.jobs([job_id])
    if not records:
        known = [record.id for record in await store.jobs()]
        raise UsageError(f"there is no job {job_id!r} in the store{did_you_mean(job_id, known)}")
    return _Reading(records[0], fires)


def declared_pipelines(scheduler: Scheduler) -> list[str]:
    from fencepost.pipeline.pipeline import Pipeline

    return [id for id in scheduler.jobs if isinstance(scheduler.function_of(id), Pipeline)]


def _declared(scheduler: Scheduler) -> str | None:
    found = declared_pipelines(scheduler)
    return found[0] if len(found) == 1 else None


async def is_pipeline(store: Readable, job_id: str) -> bool:
    """As far as its runs show: before the first only the code knows."""
    reading = await _read(store, job_id)
    return bool(reading.kept) or any("pipeline" in (fire.progress or {}) for fire in reading.fires)


async def _only_one(store: Readable) -> str:
    ids = sorted(record.id for record in await store.jobs())
    if len(ids) != 1:
        raise UsageError(f"which pipeline? name its job: {', '.join(ids[:20]) or 'there is none yet'}")
    return ids[0]


# --- the document -------------------------------------------------------------------------------------------


def _document(reading: _Reading, roster: Roster, dead: frozenset[str]) -> dict[str, Json]:
    kept = reading.kept
    document: dict[str, Json] = {
        "job_id": reading.record.id,
        "status": "idle",
        "phase": "idle",
        "message": None,
        "blocking_maintenance": False,
        "processed": None,
        "total": None,
        "eta_seconds": None,
        "eta_low_seconds": None,
        "eta_high_seconds": None,
        "run_id": None,
        "trigger": None,
        "started_at": None,
        "maintenance_started_at": None,
        "updated_at": kept.get("data_updated_at"),
        "finished_at": None,
        "last_success_at": kept.get("data_updated_at"),
        "last_error": None,
        "next_run_at": _time(reading.record.next_run_after(roster.now)),
        "data_updated_at": kept.get("data_updated_at"),
        "run_type": kept.get("run_type"),
        "refresh_scope_tables_rewritten": kept.get("rewritten", []),
        "refresh_scope_tables_reused": kept.get("reused", []),
        "now": iso(roster.now),
    }
    current, last = reading.current, reading.last
    if current is not None:
        alive = {replica.id for replica in roster.replicas} - dead
        if current.state is State.RUNNING and (current.replica in alive or current.remote is not None):
            document |= _running(current)
        else:
            knowing = any(
                replica.id in alive and reading.record.job.lane in replica.targets
                for replica in roster.replicas
            )
            document |= _cut_off(current, reading.record, knowing)
    elif last is not None:
        document |= _ended(last)
    return document


def _of(fire: FireRecord) -> dict[str, Json]:
    """What holds in every state. A resumed run began with its first attempt."""
    first = fire.attempts[0].started_at if fire.attempts else fire.started_at
    return {
        "run_id": fire.key,
        "trigger": triggered_by(fire.scheduled, fire.args),
        "started_at": _time(first),
        "updated_at": _time(fire.finished_at or fire.started_at),
        "finished_at": _time(fire.finished_at),
    }


def _scope(fire: FireRecord) -> dict[str, Json]:
    """As an earlier attempt chose it, if there was one: between two attempts nothing reports."""
    memory = fire.checkpoint
    if not isinstance(memory, Mapping) or memory.get("pipeline") != FORMAT or not memory.get("run_type"):
        return {}
    return {
        "run_type": memory["run_type"],
        "refresh_scope_tables_rewritten": memory.get("rewritten", []),
        "refresh_scope_tables_reused": memory.get("reused", []),
    }


def _running(fire: FireRecord) -> dict[str, Json]:
    """Its replica lives. Before the first report of an attempt nothing is known but that."""
    reported = fire.progress or {}
    shown = reported.get("pipeline")
    document = {
        **_of(fire),
        **_scope(fire),
        "status": "running",
        "phase": BEFORE_THE_FIRST,
        "message": "Initializing",
    }
    if not isinstance(shown, Mapping):
        return document
    return {
        **document,
        "phase": shown["phase"],
        "message": reported.get("message"),
        "blocking_maintenance": shown["blocking"],
        "processed": reported.get("done"),
        "total": reported.get("total"),
        "maintenance_started_at": shown["maintenance_started_at"],
        "updated_at": shown["updated_at"],
        "run_type": shown["run_type"],
        "refresh_scope_tables_rewritten": shown["rewritten"],
        "refresh_scope_tables_reused": shown["reused"],
        **_eta(shown),
    }


def _eta(shown: Mapping[str, Json]) -> dict[str, Json]:
    """Of the phase; while it blocks, counted from the beginning of the maintenance as a page counts it."""
    eta, entered, maintenance = shown["eta"], shown["phase_started_at"], shown["maintenance_started_at"]
    if eta is None:
        return {}
    before = (from_iso(entered) - from_iso(maintenance)).total_seconds() if maintenance and entered else 0.0
    names = {"eta_seconds": "seconds", "eta_low_seconds": "low", "eta_high_seconds": "high"}
    return {
        name: None if eta[value] is None else round(eta[value] + before, 3) for name, value in names.items()
    }


def _cut_off(fire: FireRecord, record: JobRecord, is_known: bool) -> dict[str, Json]:
    """It waits to be run again; or its replica has died, and that is not in the ledger yet. Nothing is running, so
    nothing blocks. Without a live replica it may never be settled: then it is shown as it stands."""
    again = fire.state is State.WAITING or (
        record.job.after_crash == "rerun" and fire.crashes + 1 < record.job.crash_attempts
    )
    if again and is_known:
        return {
            **_of(fire),
            **_scope(fire),
            "status": "running",
            "phase": "waiting",
            "message": "Waiting to be resumed",
        }
    reason = "no replica is there to resume it" if fire.state is State.WAITING else Reason.REPLICA_DIED.value
    return {
        **_of(fire),
        "status": "failed",
        "phase": "failed",
        "message": "Cut off",
        "last_error": reason,
    }


def _ended(fire: FireRecord) -> dict[str, Json]:
    if fire.state is State.SUCCEEDED:
        return _of(fire)
    shown = (fire.progress or {}).get("pipeline")
    message = (
        f"{fire.state.value.capitalize()} in {shown['phase']}" if shown else fire.state.value.capitalize()
    )
    error = _message_of(shown) or _last_line(fire.error) or f"{fire.state}: {fire.why}"
    return {
        **_of(fire),
        "status": "failed",
        "phase": "failed",
        "message": message,
        "last_error": error[:ERROR_LIMIT],
    }


def _message_of(shown: Mapping[str, Json] | None) -> str | None:
    """What the phase that failed has raised, without what drivers add in further lines."""
    last = shown["phases"][-1] if shown and shown["phases"] else {}
    lines = (last.get("error") or "").splitlines() if last.get("outcome") == "failed" else []
    return lines[0] if lines else None


def _last_line(text: str | None) -> str | None:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else None


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)
