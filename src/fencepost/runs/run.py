"""One run, from claim to the end of its body; what it needs of its replica; where its body runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from fencepost.clock import Clock
from fencepost.errors import ConfigurationError
from fencepost.model import Json, changed
from fencepost.model.traces import RUN
from fencepost.model.values import clean_json
from fencepost.runs.bodies.process import Body
from fencepost.runs.events import Ending
from fencepost.runs.failures import Failure
from fencepost.runs.fenced import Scope
from fencepost.runs.fire import RESULT_LIMIT, Fire
from fencepost.runs.tasks import Task
from fencepost.store.base import Claim, Report, RetryLater, Update

FIRST_WORDS_AFTER = 1.0
"""Seconds until what a run has said is first reported; then once per heartbeat."""


class NotStarted(Exception):
    """The trust window closed before the body could start. It has not run."""


class TooLate(NotStarted):
    """It waited so long for a thread that its misfire policy would not have had it run. It has not run."""


class Context(Protocol):
    """What a run and its host need of their replica. On the control loop, unless it says otherwise."""

    @property
    def clock(self) -> Clock: ...

    @property
    def heartbeat(self) -> float:
        """Seconds."""

    @property
    def scope(self) -> Scope: ...

    @property
    def descriptors(self) -> Sequence[int]:
        """What processes of bodies inherit."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """On the control loop. From any thread."""

    def report(self, report: Report) -> None: ...

    def save(
        self, report: Report, answer: Callable[[Update, bool], None], refused: Callable[[Exception], None]
    ) -> None:
        """`answer`: whether the token was current. `refused`: the store cannot keep it."""

    def kept(self, job_id: str) -> concurrent.futures.Future[Json]:
        """What the job's last success has kept. From any thread."""

    def drop_result(self, job_id: str, why: str) -> None:
        """A result cannot be kept: warn once per job. From any thread."""

    def stop(self, run: Run) -> None:
        """Tell its host to cancel the body."""

    def fenced(self, run: Run) -> None:
        """Its token is gone."""

    def ended(self, run: Run, error: BaseException | None) -> None:
        """Its body has ended: settle it."""

    def outlived(self) -> None:
        """Which bodies outlive their runs has changed."""

    def room_changed(self) -> None:
        """Another run may be started."""


class Run:
    """A claimed fire on its way through this replica: from `begin` on its host to the update that settles it."""

    def __init__(
        self, context: Context, claim: Claim, task: Task, start_before: float, known_since: int
    ) -> None:
        self.context = context
        self.claim = claim
        self.task = task
        self.key = claim.fire.key
        self.token = claim.fire.token
        self.known_since = known_since
        """The number of the last heartbeat sent before it was known here."""
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
        """Why the body was asked to end: requested, fenced, drain or timeout."""
        self.checkpointed = claim.fire.checkpoint is not None
        self.body: Body | None = None
        """In a process of its own."""
        self.descriptors: Sequence[int] | None = None
        """What its processes inherit; None: it may have none, as in virtual time."""
        self.outlived = False
        """The body goes on although the run has ended: a thread cannot be stopped."""
        self.is_over = False
        """The body has ended, or cannot be ended. What is left is to settle."""
        self.trusted_until = start_before
        self._timer: asyncio.TimerHandle | None = None
        self._has_news = False
        """It has said something that is not reported yet."""
        self._report_timer: asyncio.TimerHandle | None = None
        self._reported = False
        self.variables: contextvars.Context | None = None
        """What the body runs in; None: a context like any other."""
        self._unsaved_trace: str | None = None
        self._lock = threading.Lock()

    # What the body's side calls, from any thread.

    def enter(self) -> None:
        """The last thing before the body: past the trust window it must not start. Under the lock, so that the
        caller that ends this run knows whether its body has started: a run given back as not started never starts."""
        with self._lock:
            if self.cause is not None or not self.trusted():
                raise NotStarted
            self.started = True
            self._entered_at = self.steady()

    @property
    def clock(self) -> Clock:
        return self.context.clock

    def trusted(self) -> bool:
        return self.steady() < self.trusted_until

    def steady(self) -> float:
        return self.context.clock.steady()

    @property
    def scope(self) -> Scope:
        return self.context.scope

    def report(self, progress: Mapping[str, Json]) -> None:
        report = Report(self.key, self.token, progress)
        self.context.call_soon(lambda: self.context.report(report))

    def save(
        self, checkpoint: Json, progress: Mapping[str, Json] | None = None
    ) -> concurrent.futures.Future[bool]:
        saved: concurrent.futures.Future[bool] = concurrent.futures.Future()
        saved.set_running_or_notify_cancel()  # from now on a body that is cancelled while it waits cannot cancel this
        trace, self._unsaved_trace = self._unsaved_trace, None
        report = Report(self.key, self.token, progress, saves=True, checkpoint=checkpoint, trace=trace)

        def answer(_: Update, accepted: bool) -> None:
            self.checkpointed = self.checkpointed or accepted
            if not accepted:
                self.fence()
            saved.set_result(accepted)

        self.context.call_soon(lambda: self.context.save(report, answer, saved.set_exception))
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
        self.context.drop_result(self.fire.job_id, why)

    def kept(self) -> concurrent.futures.Future[Json]:
        return self.context.kept(self.fire.job_id)

    def said(self) -> None:
        """Its output is reported now and then, so that it is there although this process may be killed."""
        if not self._has_news and not self.is_over:
            self._has_news = True
            with suppress(RuntimeError):  # the control loop has ended
                self.context.call_soon(self._report_soon)

    # What the replica's side calls.

    def trace(self, traceparent: str, variables: contextvars.Context) -> None:
        """Before the body starts: have it run in this context, and keep the context for whatever repeats this run. Only
        runs that may be repeated have it written: at once if that takes no checkpoint."""
        fire, job = self.claim.fire, self.claim.job
        self.claim = replace(self.claim, fire=changed(fire, trace={**(fire.trace or {}), RUN: traceparent}))
        self.fire.traceparent, self.variables = traceparent, variables
        if job.retry is not None or job.after_crash == "rerun":
            self.context.report(Report(self.key, self.token, trace=traceparent))
        else:
            self._unsaved_trace = traceparent

    def _report_soon(self) -> None:
        pause = self.context.heartbeat
        if not self._reported:
            pause = min(pause, FIRST_WORDS_AFTER)
        if not self.is_over and self._report_timer is None:
            self._report_timer = asyncio.get_running_loop().call_later(pause, self._report_output)

    def _report_output(self) -> None:
        self._report_timer, self._reported = None, True
        self._has_news = False  # before it is read: later output asks again
        self.context.report(Report(self.key, self.token, output=self.fire._said()))

    def begin_timeout(self) -> None:
        timeout = self.claim.job.timeout
        if timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout.total_seconds(), self.cancel, "timeout")

    def ending(self, update: Update) -> Ending:
        """What an event says of its end beside what the ledger says."""
        retry, seconds, ended_at = self.claim.job.retry, None, self._ended_at
        if self._entered_at is not None and ended_at is not None:
            seconds = ended_at - self._entered_at
        return Ending(
            seconds=seconds,
            failure=self.failure,
            attempt=self.claim.fire.attempt - self.claim.fire.crashes,
            attempts=retry.attempts if retry is not None else 1,
            retry_in=update.delay if isinstance(update, RetryLater) else None,
            settled_after=0.0 if ended_at is None else self.steady() - ended_at,
        )

    def trust_until(self, steady: float) -> None:
        self.trusted_until = max(self.trusted_until, steady)
        if self.body is not None:
            self.body.trust_until(self.trusted_until)

    def fence(self) -> None:
        """The store has confirmed that the token is gone: fence the body, and refuse its result."""
        if self.cause != "fenced":
            self.context.fenced(self)
        self._end("fenced")

    def cancel(self, cause: str) -> None:
        if self.cause is None:
            self._end(cause)

    def _end(self, cause: str) -> None:
        with self._lock:
            self.cause = cause
        self.fire._end("fenced" if cause in ("fenced", "timeout") else "cancelled")
        if not self.is_over:
            self.context.stop(self)

    def ended(self, error: BaseException | None) -> None:
        """Told by the host on the control loop, once: what the body raised."""
        self.is_over = True
        self._ended_at = self.steady()
        for timer in (self._timer, self._report_timer):
            if timer is not None:
                timer.cancel()
        self.context.ended(self, error)


class Host(Protocol):
    """Where bodies run. All of this is called on the control loop."""

    def begin(self, runs: Sequence[Run]) -> None:
        """Call each run's `enter()`, then its body. When the body has ended call `run.ended(error)` here."""

    def cancel(self, run: Run) -> None:
        """Cancel the body; it counts as running until it has ended, unless it cannot be cancelled (a thread)."""

    def silent_for(self, now: float) -> float | None:
        """Seconds for which the host's event loop has not answered; None: it has none but the control loop."""

    def room(self, now: float) -> int:
        """How many more runs can begin, as far as the host has limits beside the slots."""

    @property
    def detached(self) -> int:
        """How many bodies go on although their runs have ended."""

    @property
    def lingering(self) -> tuple[str, ...]:
        """The keys of their fires."""
