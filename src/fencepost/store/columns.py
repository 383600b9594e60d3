"""What has become of a fire, as SQLite and PostgreSQL keep it: one column each, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.model import Attempt, FireRecord, State
from fencepost.store.codec import ticks, when

FATE = (
    "state",
    "reason",
    "refers_to",
    "count",
    "last_due_at",
    "token",
    "replica",
    "claim_no",
    "attempt",
    "crashes",
    "settled",
    "not_before",
    "started_at",
    "finished_at",
    "cancel_requested",
)


def fate_row(fire: FireRecord) -> tuple[Any, ...]:
    return (
        fire.state.value,
        fire.reason,
        fire.refers_to,
        fire.count,
        ticks(fire.last_due_at),
        fire.token,
        fire.replica,
        fire.claim_no,
        fire.attempt,
        fire.crashes,
        fire.settled,
        ticks(fire.not_before),
        ticks(fire.started_at),
        ticks(fire.finished_at),
        int(fire.cancel_requested),
    )


def fate_of(row: Sequence[Any]) -> dict[str, Any]:
    fate = dict(zip(FATE, row, strict=True))
    fate["state"] = State(fate["state"])
    fate["cancel_requested"] = bool(fate["cancel_requested"])
    for name in ("last_due_at", "not_before", "started_at", "finished_at"):
        fate[name] = when(fate[name])
    return fate


def settled_attempt(fire: FireRecord) -> tuple[Attempt, ...]:
    """The last attempt, as far as it follows from the rest: the fire was settled by its own token. It is not kept."""
    if not fire.settled or fire.settled != fire.token or not fire.state.final:
        return ()
    if fire.replica is None or fire.started_at is None or fire.finished_at is None:
        return ()
    return (
        Attempt(fire.token, fire.replica, fire.started_at, fire.finished_at, fire.state.value, fire.error),
    )
