"""The reference model as something to send named operations to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.store.rules import (
    claims,
    data_loss,
    fires,
    history,
    jobs,
    notify_rules,
    outbox,
    planning,
    presence,
    remote,
    updates,
    watching,
)

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
        remote.remote_runs,
        history.find_fires,
        history.history,
        history.history_since,
        history.prune,
        notify_rules.put_rules,
        notify_rules.change_rule,
        outbox.outbox,
        outbox.update_outbox,
        watching.watch_jobs,
    )
}
