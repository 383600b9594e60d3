"""One run, from claim to settle."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from fencepost.bodies.process import Body
from fencepost.errors import ConfigurationError, EffectCommitted, PartCommitted
from fencepost.events import Ending
from fencepost.failures import Failure, failure_of, timed_out
from fencepost.fenced import Scope
from fencepost.fire import RESULT_LIMIT, Fire
from fencepost.model import Json, Reason, State
from fencepost.retry import exception_names
from fencepost.store.base import Claim, GiveBack, Report, RetryLater, Settle, Update
from fencepost.tasks import Task
from fencepost.values import clean_json

if TYPE_CHECKING:
    from fencepost.replica import Replica

log = logging.getLogger("fencepost")

FIRST_WORDS_AFTER = 1.0
"""Seconds until what a run has said is first reported; then once per heartbeat."""


GOES_ON = "a thread cannot be stopped: the function goes on until it returns"
"""Of a run that has ended although its body has not."""


class NotStarted(Exception):
    """The trust window closed before the body could start. It has not run."""


class TooLate(NotStarted):
    """It waited so long for a thread that its misfire policy would not have had it run. It has not run."""


class Run:
    """A claimed fire on its way through this replica: from `begin` on its host to the update that settles it."""

    def __init__(self, replica: Replica, claim: Claim, task: Task, start_before: float) -> None:
        self.replica = replica
        self.claim = claim
        self.task = task
        self.key = claim.fire.key
        self.token = claim.fire.token
        self.known_since = replica.heart.sent_so_far
        args = claim.job.args if claim.fire.args is None else claim.fire.args
        self.fire = Fire(claim.fire, args, self)
        self.to_keep: Json = None
        """What its job shall keep if it succeeds."""
        self.result: Json = None
        """What the body returned, as far as it can be stored."""
        self.started = False
        self.failure: Failure | None = None
        """How it failed, once that is known."""
        self._entered_at: float | None = None
        self._ended_at: float | None = None
        self.cause: str | None = None
        """Why the body was told to end: requested, fenced, drain or timeout."""
        self.checkpointed = claim.fire.checkpoint is not None
        self.body: Body | None = None
        """In a process of its own."""
        self.descriptors: Sequence[int] | None = None
        """What its processes inherit; None: it may have none, as in virtual time."""
        self.outlived = False
        """The body goes on although the run has ended: a thread cannot be stopped."""
        self.is_over = False
        """The body has ended, or cannot be told to. What is left is to settle."""
        self.trusted_until = start_before
        self._timer: asyncio.TimerHandle | None = None
        self._has_news = False
        """It has said something that is not reported yet."""
        self._report_timer: asyncio.TimerHandle | None = None
        self._reported = False
        self._lock = threading.Lock()

    # What the body's side calls, from any thread.

    def enter(self) -> None:
        """The last thing before the body: past the trust window it must not start. Under the lock, so that whoever
        ends this run knows whether its body has started: a run that is given back as not started never starts."""
        with self._lock:
            if self.cause is not None or not self.trusted():
                raise NotStarted
            self.started = True
            self._entered_at = self.steady()

    def trusted(self) -> bool:
        return self.steady() < self.trusted_until

    def steady(self) -> float:
        return self.replica.clock.steady()

    @property
    def scope(self) -> Scope:
        return Scope(self.replica.settings.namespace, self.replica.store.home)

    def report(self, progress: Mapping[str, Json]) -> None:
        report = Report(self.key, self.token, progress)
        self.replica.call_soon(lambda: self.replica.settler.put_report(report))

    def save(
        self, checkpoint: Json, progress: Mapping[str, Json] | None = None
    ) -> concurrent.futures.Future[bool]:
        saved: concurrent.futures.Future[bool] = concurrent.futures.Future()
        report = Report(self.key, self.token, progress, saves=True, checkpoint=checkpoint)

        def answer(_: Update, accepted: bool) -> None:
            self.checkpointed = self.checkpointed or accepted
            if not accepted:
                self.fence()
            saved.set_result(accepted)

        self.replica.call_soon(lambda: self.replica.settler.put(report, answer, saved.set_exception))
        return saved

    def keep(self, value: Json) -> None:
        self.to_keep = value

    def returned(self, value: object) -> None:
        """By the body. What is not JSON, or too long, is not kept; that is no failure of the run."""
        if value is None:
            return
        try:
            self.result = clean_json(value, f"the result of job {self.fire.job_id}", RESULT_LIMIT)
        except ConfigurationError as error:
            self.dropped_result(str(error))

    def dropped_result(self, why: str) -> None:
        if self.fire.job_id not in self.replica.results_dropped:
            self.replica.results_dropped.add(self.fire.job_id)
            log.warning("%s; it is not kept with its fires", why)

    def kept(self) -> concurrent.futures.Future[Json]:
        return self.replica.submit(self.replica.kept(self.fire.job_id))

    def said(self) -> None:
        """Its output is reported now and then, so that it is there although this process may be killed."""
        if not self._has_news and not self.is_over:
            self._has_news = True
            with suppress(RuntimeError):  # the control loop has ended: nobody listens any more
                self.replica.call_soon(self._report_soon)

    # What the replica's side calls.

    def _report_soon(self) -> None:
        pause = self.replica.settings.heartbeat.total_seconds()
        if not self._reported:
            pause = min(pause, FIRST_WORDS_AFTER)
        if not self.is_over and self._report_timer is None:
            self._report_timer = asyncio.get_running_loop().call_later(pause, self._report_output)

    def _report_output(self) -> None:
        self._report_timer, self._reported = None, True
        self._has_news = False  # before it is read: whoever says more from now on asks again
        self.replica.settler.put_report(Report(self.key, self.token, output=self.fire._said()))

    def begin_timeout(self) -> None:
        timeout = self.claim.job.timeout
        if timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout.total_seconds(), self.cancel, "timeout")

    def ending(self, update: Update) -> Ending:
        """What is told of its end beside what the ledger says."""
        retry, seconds = self.claim.job.retry, None
        if self._entered_at is not None and self._ended_at is not None:
            seconds = self._ended_at - self._entered_at
        return Ending(
            seconds=seconds,
            failure=self.failure,
            attempt=self.claim.fire.attempt - self.claim.fire.crashes,
            attempts=retry.attempts if retry is not None else 1,
            retry_in=update.delay if isinstance(update, RetryLater) else None,
        )

    def trust_until(self, steady: float) -> None:
        self.trusted_until = max(self.trusted_until, steady)
        if self.body is not None:
            self.body.trust_until(self.trusted_until)

    def fence(self) -> None:
        """The store has confirmed that the token is gone: tell the body, and refuse its result."""
        if self.cause != "fenced":
            self.replica.tell("fenced", self.claim.fire)
        self._end("fenced")

    def cancel(self, cause: str) -> None:
        if self.cause is None:
            self._end(cause)

    def _end(self, cause: str) -> None:
        with self._lock:
            self.cause = cause
        self.fire._end("fenced" if cause in ("fenced", "timeout") else "cancelled")
        if not self.is_over:
            self.replica.host.cancel(self)

    def ended(self, error: BaseException | None) -> None:
        """Told by the host on the control loop, once: what the body raised."""
        self.is_over = True
        self._ended_at = self.steady()
        for timer in (self._timer, self._report_timer):
            if timer is not None:
                timer.cancel()
        self.replica.ended(self, error)


class Host(Protocol):
    """Where bodies run. All of this is called on the control loop."""

    def begin(self, runs: Sequence[Run]) -> None:
        """Call each run's `enter()`, then its body. When the body has ended call `run.ended(error)` here."""

    def cancel(self, run: Run) -> None:
        """Cancel the body; it counts as running until it has ended, unless it cannot be told (a thread)."""

    def silent_for(self, now: float) -> float | None:
        """Seconds for which the host's event loop has not answered; None: it has none but the control loop."""

    @property
    def detached(self) -> int:
        """How many bodies go on although their runs have ended."""

    @property
    def lingering(self) -> tuple[str, ...]:
        """The keys of their fires."""


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
    """What a run has said, if it is not over with this update: to be told before it."""
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
