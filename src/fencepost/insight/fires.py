"""Fires of the ledger, chosen by job, state and time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fencepost.errors import ConfigurationError
from fencepost.insight.lookup import stored_job
from fencepost.model import FireRecord, State
from fencepost.settings import did_you_mean
from fencepost.store.base import FireQuery, Store

MOST = 10_000


async def find_fires(
    store: Store,
    *,
    job: str | None = None,
    states: Iterable[State] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
    planned: bool = False,
) -> tuple[FireRecord, ...]:
    """Newest first. Without `until` those that are due; those still to come only if `planned`, or if nothing but
    pending ones is asked for. A job that has never been stored raises."""
    states = tuple(states)
    if job is not None and not await store.history(job):
        await stored_job(store, job)
    if until is None and not planned and states != (State.PENDING,):
        until = (await store.roster()).now + datetime.resolution
    return await store.find_fires(FireQuery(None, job, states, since, until, limit))


def states_of(state: str | Iterable[str] | None) -> tuple[State, ...]:
    """As the public interface takes them: one, several or none."""
    names = () if state is None else (state,) if isinstance(state, str) else tuple(state)
    known = [each.value for each in State]
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"state={name!r} is not known{did_you_mean(name, known)}; there are {', '.join(known)}"
            )
    return tuple(State(name) for name in names)


def checked_moment(moment: datetime | None, name: str) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise ConfigurationError(f"{name}={moment} has no time zone; give it one (tzinfo=…)")
    return moment


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise ConfigurationError(f"limit={limit!r}: give a number from 1 to {MOST}")
    return limit
