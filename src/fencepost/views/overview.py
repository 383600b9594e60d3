"""The store at a glance, gathered once for `status` and `jobs`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fencepost.model import FireRecord, JobRecord, State
from fencepost.store.base import Evidence, FireQuery, Roster, Store
from fencepost.triggers import iso
from fencepost.views.shapes import Shape, next_run, origin_shape, pause_shape, schedule, time

ACTIVE = (State.RUNNING, State.WAITING, State.QUEUED)
FINAL = tuple(state for state in State if state.final)
RECENT = 1000
"""Rows of the ledger read at once. Jobs that last ran longer ago are asked for one by one, so many at most."""
ASKED_ONE_BY_ONE = 50


async def overview(store: Store, name: str) -> tuple[Shape, datetime]:
    """`status` as JSON, and the store's time."""
    roster = await store.roster()
    standing = await standings(store, roster)
    records = sorted(await store.jobs(), key=lambda record: record.id)
    active = await store.find_fires(FireQuery(states=ACTIVE, limit=RECENT))
    last = await _last_outcomes(store, records, roster.now)
    status = {
        "store": name,
        "now": iso(roster.now),
        "leader": _leader(roster, standing),
        "replicas": [_replica(roster, standing, id, active) for id in sorted(standing)],
        "jobs": [
            _job(record, roster, standing, [fire for fire in active if fire.job_id == record.id], last)
            for record in records
        ],
    }
    return status, roster.now


async def standings(store: Store, roster: Roster) -> dict[str, str]:
    """By replica: alive, draining, overdue or dead."""
    evidence = await store.evidence([replica.id for replica in roster.replicas])
    return {replica.id: _standing(replica.id, roster, evidence) for replica in roster.replicas}


def _standing(id: str, roster: Roster, evidence: Evidence) -> str:
    if id in evidence.dead:
        return "dead"
    if id in roster.overdue or id in evidence.gone:
        return "overdue"
    draining = any(replica.id == id and replica.draining for replica in roster.replicas)
    return "draining" if draining else "alive"


def _leader(roster: Roster, standing: dict[str, str]) -> Shape | None:
    """Whoever holds the lease, unless it is known to be dead."""
    holder = next((each for each in roster.replicas if each.id == roster.leader.holder), None)
    if holder is None or standing[holder.id] == "dead":
        return None
    return {
        "replica": holder.id,
        "host": holder.host,
        "pid": holder.pid,
        "term": roster.leader.term,
        "state": standing[holder.id],
    }


def _replica(roster: Roster, standing: dict[str, str], id: str, active: Sequence[FireRecord]) -> Shape:
    replica = next(each for each in roster.replicas if each.id == id)
    running = [fire.key for fire in active if fire.replica == id and fire.state is State.RUNNING]
    return {
        "replica": id,
        "host": replica.host,
        "pid": replica.pid,
        "state": standing[id],
        "leader": roster.leader.holder == id and standing[id] != "dead",
        "version": replica.version,
        "joined_at": iso(replica.joined_at),
        "renewed_at": iso(roster.heard_at(replica)),
        "running": running,
        "lingering": list(replica.lingering),
        "tasks": list(replica.targets),
    }


def _job(
    record: JobRecord,
    roster: Roster,
    standing: dict[str, str],
    active: Sequence[FireRecord],
    last: dict[str, FireRecord],
) -> Shape:
    live = [replica for replica in roster.replicas if standing[replica.id] in ("alive", "draining")]
    known = any(record.job.target in replica.targets for replica in live)
    pause = record.paused_at(roster.now)
    states = [fire.state for fire in active]
    rivals = [rival for rival in record.rivals if standing.get(rival.replica) == "alive"]
    flags = [
        *(["paused"] if pause else []),
        *(["orphaned"] if live and not known else []),
        *(state.value for state in ACTIVE if state in states),
    ]
    return {
        "id": record.id,
        "task": record.job.target,
        "schedule": schedule(record),
        "state": flags[0] if flags else "idle",
        "states": [*(flags or ["idle"]), *_marks(record, bool(rivals))],
        "paused": pause_shape(pause),
        "orphaned": bool(live) and not known,
        "orphaned_since": time(record.unknown_since) if live and not known else None,
        "active": [_active(fire, standing) for fire in active],
        "last": _outcome(last.get(record.id)),
        "next_run_at": time(next_run(record, roster.now)),
        "execute_on": record.job.execute_on,
        "source": record.source,
        "origin": origin_shape(record.origin),
        "conflicts": [{"replica": rival.replica, "origin": origin_shape(rival.origin)} for rival in rivals],
    }


def _marks(record: JobRecord, disputed: bool) -> list[str]:
    """What there is to know of its definition."""
    return [
        *(["conflict"] if disputed else []),
        *(["by hand"] if record.source == "api" and record.origin is not None else []),
    ]


def _active(fire: FireRecord, standing: dict[str, str]) -> Shape:
    return {
        "key": fire.key,
        "state": fire.state.value,
        "replica": fire.replica,
        "replica_state": standing.get(fire.replica or "", "gone") if fire.state is State.RUNNING else None,
        "started_at": time(fire.started_at),
        "attempt": fire.attempt,
        "progress": None if fire.progress is None else dict(fire.progress),
    }


def _outcome(fire: FireRecord | None) -> Shape | None:
    if fire is None:
        return None
    return {
        "key": fire.key,
        "state": fire.state.value,
        "reason": fire.reason,
        "due_at": iso(fire.due_at),
        "started_at": time(fire.started_at),
        "finished_at": time(fire.finished_at),
        "replica": fire.replica,
    }


async def _last_outcomes(store: Store, records: Sequence[JobRecord], now: datetime) -> dict[str, FireRecord]:
    last: dict[str, FireRecord] = {}
    for fire in await store.find_fires(FireQuery(states=FINAL, limit=RECENT)):
        last.setdefault(fire.job_id, fire)
    quiet = [record.id for record in records if record.id not in last and record.token]
    for id in quiet[:ASKED_ONE_BY_ONE]:
        for fire in await store.find_fires(FireQuery(job_id=id, states=FINAL, limit=1)):
            last[id] = fire
    return last
