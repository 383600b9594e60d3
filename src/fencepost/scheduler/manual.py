"""Fires that a person or a program asks for: triggered, or retried."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fencepost.errors import AnotherRunIsActive, ConfigurationError, Conflict, NotFound, QueueFull
from fencepost.model import FireRecord, State, manual_key
from fencepost.model.traces import CALLER, RUN
from fencepost.settings import did_you_mean, duration
from fencepost.store.base import NewFire, Store


@dataclass(frozen=True)
class Due:
    """When a fire by hand is due: after so long, or at this moment."""

    delay: float = 0.0
    at: datetime | None = None

    def of(self, fire: NewFire) -> NewFire:
        return replace(fire, delay=self.delay, due_at=self.at)


NOW = Due()
LONGEST = timedelta(days=3660)


def due_in(when: str | float | timedelta | datetime) -> Due:
    """As `scheduler.later` takes it."""
    if isinstance(when, datetime):
        return Due(at=aware(when, "when"))
    delay = duration(when)
    if not timedelta(0) <= delay <= LONGEST:
        raise ConfigurationError(f'{when!r} does not work; give a duration up to ten years, e.g. "10m"')
    return Due(delay.total_seconds())


def aware(moment: datetime, name: str) -> datetime:
    if moment.tzinfo is None:
        raise ConfigurationError(f"{name}={moment} has no time zone; give a datetime with one (tzinfo=…)")
    return moment.astimezone(UTC)


def new_key(job_id: str, idempotency_key: str | None) -> str:
    return manual_key(job_id, secrets.token_hex(8) if idempotency_key is None else idempotency_key)


def caller_trace(source: Callable[[], str | None], repeated: FireRecord | None) -> dict[str, str] | None:
    """The trace contexts that a new fire begins with: of the code that asks for it, and of the run that it repeats."""
    found = {CALLER: source(), RUN: (repeated.trace or {}).get(RUN) if repeated else None}
    return {name: text for name, text in found.items() if text is not None} or None


async def add_manual(store: Store, new: NewFire, known: Iterable[str] = ()) -> FireRecord:
    """Add the fire; if it cannot be, an error that says why. `known`: ids of jobs, for a hint."""
    added = await store.add_fire(new)
    if added.outcome == "no such job" or added.fire is None:
        raise NotFound(f"there is no job {new.job_id!r} in the store", did_you_mean(new.job_id, known))
    if added.outcome == "active":
        raise AnotherRunIsActive(f"another run of {new.job_id} is already active: {added.fire.key}")
    if added.outcome == "full":
        raise QueueFull(f"too many fires of {new.job_id} wait for their turn; try again later")
    if added.outcome == "exists":
        _check_same(added.fire, new)
    return added.fire


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
