"""Remote runs: claimed here, carried out by an engine, by a worker that no replica knows.

Four rules. The claim itself puts engine and owner on record (`claims.py`), so that the replica that looks after the
engine finds the run. A worker may start only by passing the gate, once per token. A run belongs to its engine: it ends
when its worker says so, or when the engine has said twice that it is over *and* no heartbeat of the worker is current.
A replica sends it and polls the engine; when that is gone another one adopts it.
"""

from __future__ import annotations

from typing import Any

from fencepost.clock import Moment
from fencepost.model import FireRecord, Reason, ReplicaRecord, State, changed
from fencepost.model.fires import Remote, engine_owner
from fencepost.store.base import Adopt, Alive, Claim, Missing, RemoteRuns, RemoteUpdate, Start
from fencepost.store.rows import Rows
from fencepost.store.rules.leadership import OBSERVED
from fencepost.store.rules.ledger import crash, finish, stored_job, wait_again

MOST_AT_ONCE = 100
"""Fires of one job that one decision hands to its engine."""
LEAST_POLLS = 2
"""How often the engine must have said that a run is over."""


def handed_over(rows: Rows, at: Moment, fire: FireRecord, engine: str, replica: ReplicaRecord) -> FireRecord:
    """A fire that was just claimed, as a run of this engine, which `replica` sends."""
    era = rows.leader.era
    within = replica.ttl
    remote = Remote(engine, replica.id, within, at.steady + within, era.incarnation, era.server)
    rows.notify = True  # for the replica that looks after the engine
    return _put(changed(fire, replica=engine_owner(engine), claim_no=0), remote)


def not_started(rows: Rows, fire: FireRecord) -> bool:
    """Whether it is certain that a run's body has not started, and will not once its token is gone: no worker has
    passed the gate, and the store has not come up anew since the claim, for it might have forgotten."""
    remote, era = Remote.of(fire), rows.leader.era
    if remote is None or remote.worker is not None:
        return False
    return (remote.incarnation, remote.server) == (era.incarnation, era.server)


def _put(fire: FireRecord, remote: Remote, **changes: Any) -> FireRecord:
    return changed(fire, remote=changed(remote, **changes).to_json())


def remote_runs(rows: Rows, at: Moment, replica: str, engine: str) -> RemoteRuns:
    """The runs of this engine that `replica` looks after, and those whose replica is gone."""
    mine, orphaned = [], []
    fires = rows.fires.running_of(engine_owner(engine))
    rows.preload(at.wall, records=sorted({fire.job_id for fire in fires}))
    for fire in fires:
        record, remote = rows.jobs.get(fire.job_id), Remote.of(fire)
        if record is None or remote is None:
            continue
        if remote.by == replica:
            mine.append(Claim(fire, record.job))
        elif rows.replicas.get(remote.by) is None:
            orphaned.append(Claim(fire, record.job))
    return RemoteRuns(tuple(mine), tuple(orphaned))


def update_remote(rows: Rows, at: Moment, fire: FireRecord, update: RemoteUpdate) -> bool:
    """An update that only runs of engines have. Its token is current."""
    remote = Remote.of(fire)
    if remote is None:
        return False
    if isinstance(update, Adopt):
        return _adopt(rows, fire, remote, update)
    if isinstance(update, Start):
        return _start(rows, at, fire, remote, update)
    if isinstance(update, Alive):
        return _alive(rows, at, fire, remote, update)
    return _is_over(at, remote, update) and _end(rows, at, fire, remote, update) is not None


def _adopt(rows: Rows, fire: FireRecord, remote: Remote, adopt: Adopt) -> bool:
    """Whether its order was sent is not known. What was observed before counts for nothing from now on: a delayed
    `Missing` names a number of heartbeats that is no longer current."""
    if remote.by != adopt.by and rows.replicas.get(remote.by) is None:
        rows.fires.put(_put(fire, remote, by=adopt.by, adopted=True, beats=remote.beats + 1))
        return True
    return remote.by == adopt.by


def _start(rows: Rows, at: Moment, fire: FireRecord, remote: Remote, gate: Start) -> bool:
    """The start gate. A worker that asks again because the reply was lost is answered alike; any other comes second.

    If the store has come up anew since the claim, it may have forgotten that the gate was passed."""
    if not_started(rows, fire) and not fire.cancel_requested:
        lease = {"heartbeat": gate.heartbeat, "ttl": gate.ttl, "expires": at.steady + (gate.ttl or 0.0)}
        rows.fires.put(_put(fire, remote, worker=gate.worker, **lease))
        return True
    if remote.worker == gate.worker:
        # It starts now: its lease counts from this answer, not from the one that was lost.
        renewed = at.steady + (gate.ttl or 0.0)
        rows.fires.put(_put(fire, remote, beats=remote.beats + 1, expires=renewed))
        return True
    rows.fires.put(_put(fire, remote, refused=remote.refused + 1))
    return False


def _alive(rows: Rows, at: Moment, fire: FireRecord, remote: Remote, request: Alive) -> bool:
    """A heartbeat of the worker. One that the store does not know has passed the gate in a history that is lost."""
    if remote.worker not in (None, request.worker):
        return False
    lease = {"heartbeat": request.heartbeat, "ttl": request.ttl, "expires": at.steady + request.ttl}
    rows.fires.put(_put(fire, remote, worker=request.worker, beats=remote.beats + 1, **lease))
    return True


def may_end(at: Moment, fire: FireRecord, missing: Missing) -> bool:
    remote = Remote.of(fire)
    return remote is not None and _is_over(at, remote, missing)


def _is_over(at: Moment, remote: Remote, missing: Missing) -> bool:
    """Whether a run that its engine calls over may be ended. As with replicas there are two witnesses: the store's
    clock, and a replica that saw no heartbeat for one and a half of them, or for one and a half TTLs where the clock
    was set back."""
    if missing.polls < LEAST_POLLS or missing.beats != remote.beats:
        return False
    if remote.worker is None:
        return at.steady >= remote.submit_until or missing.seconds >= remote.submit_within
    if remote.ttl is None:
        return True
    expired = remote.expires <= at.steady
    return missing.seconds >= OBSERVED * (remote.heartbeat if expired else remote.ttl)


def _end(rows: Rows, at: Moment, fire: FireRecord, remote: Remote, missing: Missing) -> FireRecord | None:
    """How such a run ends, if the engine does not say how: as after a crash if its body may have started. If it has
    not, it is claimed again, as often as it may crash. None: its job cannot be read, so its fate is not known."""
    if rows.jobs.get(fire.job_id) is None:
        return None
    rows.notify = True
    if fire.cancel_requested:
        return finish(
            rows, at, fire.ended(at.wall, "cancelled", missing.error), State.CANCELLED, Reason.REQUESTED
        )
    if not not_started(rows, fire):
        return crash(rows, at, fire, Reason.ENGINE_LOST, missing.error)
    fire = changed(fire.ended(at.wall, "gone", missing.error), crashes=fire.crashes + 1)
    if fire.crashes < stored_job(rows, fire.job_id).job.crash_attempts:
        return wait_again(rows, at, fire, at.wall, settled=missing.token)
    return finish(rows, at, fire, State.LOST, Reason.NEVER_STARTED)
