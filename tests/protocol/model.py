"""The reference model as something to send named operations to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.store.rules import claims, data_loss, fires, history, jobs, planning, presence, updates

OPERATIONS: dict[str, Callable[..., Any]] = {
    operation.__name__: operation
    for operation in (
        presence.heartbeat,
        presence.leave,
        presence.roster,
        presence.sweep,
        data_loss.restarted,
        jobs.put_jobs,
        jobs.change_job,
        jobs.jobs,
        planning.due_jobs,
        planning.plan_fires,
        fires.add_fire,
        fires.cancel_fire,
        claims.claim_fires,
        updates.update_claims,
        history.find_fires,
        history.history,
        history.history_since,
        history.prune,
    )
}
