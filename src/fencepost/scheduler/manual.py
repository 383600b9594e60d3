"""Fires that a person or a program asks for: triggered, or retried."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from fencepost.errors import AnotherRunIsActive, Conflict, UsageError
from fencepost.model import FireRecord, State, manual_key
from fencepost.settings import did_you_mean
from fencepost.store.base import NewFire, Store


def new_key(job_id: str, idempotency_key: str | None) -> str:
    return manual_key(job_id, secrets.token_hex(8) if idempotency_key is None else idempotency_key)


async def add_manual(store: Store, new: NewFire, known: Iterable[str] = ()) -> None:
    """Add the fire; if it cannot be, an error that says why. `known`: ids of jobs, for a hint."""
    added = await store.add_fire(new)
    if added.outcome == "no such job":
        raise UsageError(f"there is no job {new.job_id!r} in the store{did_you_mean(new.job_id, known)}")
    if added.outcome == "active":
        key = added.fire.key if added.fire else "?"
        raise AnotherRunIsActive(f"another run of {new.job_id} is already active: {key}")
    if added.outcome == "full":
        raise UsageError(f"too many fires of {new.job_id} wait for their turn; try again later")
    if added.outcome == "exists" and added.fire is not None:
        _check_same(added.fire, new)


def check_retry(fire: FireRecord, again: bool) -> None:
    """Whether what this fire ran may be run once more."""
    if not fire.state.final:
        raise AnotherRunIsActive(f"{fire.key} has not ended ({fire.state}); cancel it first, or wait")
    if fire.state is State.SUCCEEDED and not again:
        raise Conflict(
            f"{fire.key} has succeeded; to run it once more, so that its effects happen again, "
            "say so: --again, or again=True"
        )


def _check_same(fire: FireRecord, new: NewFire) -> None:
    """The same idempotency key is the same request sent again, or a mistake."""
    if fire.repeats != new.repeats:
        asked = f"another retry, of {fire.retry_of}" if fire.retry_of else "a trigger"
        raise Conflict(f"the idempotency key of {fire.key} was used for {asked}; use a new one")
    if fire.args != new.args:
        raise Conflict(f"the idempotency key of {fire.key} was used with other arguments; use a new one")
