"""What to settle for a run whose body has ended."""

from __future__ import annotations

import asyncio
import random

from fencepost.errors import EffectCommitted, PartCommitted
from fencepost.model import Json, Reason, State
from fencepost.model.retry import exception_names
from fencepost.runs.failures import failure_of, timed_out
from fencepost.runs.run import NotStarted, Run, TooLate
from fencepost.store.base import GiveBack, Report, RetryLater, Settle, Update

GOES_ON = "a thread cannot be stopped: the function goes on until it returns"
"""Of a run that has ended although its body has not."""


def outcome(run: Run, error: BaseException | None, chance: random.Random) -> Update | None:
    """What to settle for a run whose body has ended; None: nothing, the token is gone."""
    if run.cause == "fenced":
        return None
    if isinstance(error, TooLate):
        return _end(run, State.MISSED, Reason.MISFIRE)
    if isinstance(error, NotStarted):
        return GiveBack(run.key, run.token)
    if error is not None and _has_happened(error):
        return _end(run, State.SUCCEEDED, Reason.EFFECT_COMMITTED, keep=run.to_keep)
    if error is not None and (run.cause is None or not isinstance(error, asyncio.CancelledError)):
        return _failure(run, Reason.RAISED, error, chance)
    if run.cause is None:
        return _end(run, State.SUCCEEDED, keep=run.to_keep, result=run.result)
    if not run.started:
        return GiveBack(run.key, run.token)
    if run.cause == "timeout":
        return _failure(run, Reason.TIMED_OUT, TimeoutError(), chance)
    if run.cause == "requested":
        return _end(run, State.CANCELLED, Reason.REQUESTED, GOES_ON if run.outlived else None)
    if run.checkpointed and not run.outlived:
        return GiveBack(run.key, run.token, started=True)
    return _end(run, State.CANCELLED, Reason.DRAIN_LIMIT, GOES_ON if run.outlived else None)


def last_words(run: Run, update: Update) -> Report | None:
    """Output to report before this update, if the update does not carry it."""
    said = None if isinstance(update, Settle) else run.fire._said()
    return None if said is None else Report(run.key, run.token, output=said)


def _has_happened(error: BaseException) -> bool:
    """What the fire is for, as far as the error says. By name: it may have been raised in a process of its own."""
    whole, part = (f"{kind.__module__}.{kind.__qualname__}" for kind in (EffectCommitted, PartCommitted))
    names = exception_names(error)
    return whole in names and part not in names


def _end(
    run: Run,
    state: State,
    reason: str | None = None,
    error: str | None = None,
    keep: Json = None,
    result: Json = None,
) -> Settle:
    return Settle(run.key, run.token, state, reason, error, run.fire._said(), keep, result)


def _failure(run: Run, reason: Reason, error: BaseException, chance: random.Random) -> Update:
    job, fire = run.claim.job, run.claim.fire
    run.failure = failure = (
        failure_of(error)
        if reason is Reason.RAISED
        else timed_out(job.timeout, GOES_ON if run.outlived else "")
    )
    if job.retry is not None and job.retry.covers(error):
        # Attempts cut short by a crash are counted apart, under crash_attempts.
        delay = job.retry.delay_after(fire.attempt - fire.crashes, chance)
        if delay is not None:
            return RetryLater(run.key, run.token, delay, failure.text)
    return _end(run, State.FAILED, reason, failure.text)
