"""One run, from claim to settle, as a list of steps over one value."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fencepost.fire import Fire
from fencepost.model import Job, Json, Reason, State
from fencepost.store.base import Claim, GiveBack, Report, RetryLater, Settle, Update
from fencepost.tasks import Task

if TYPE_CHECKING:
    from fencepost.replica import Replica

ERROR_LIMIT = 8_192


class NotStarted(Exception):
    """The trust window closed before the body could start. It has not run."""


class Run:
    """A claimed fire on its way through this replica."""

    def __init__(self, replica: Replica, claim: Claim, task: Task, start_before: float) -> None:
        self.replica = replica
        self.claim = claim
        self.task = task
        self.key = claim.fire.key
        self.token = claim.fire.token
        self.known_since = replica.heart.sent_so_far
        args = claim.job.args if claim.fire.args is None else claim.fire.args
        self.fire = Fire(claim.fire, args, self)
        self.started = False
        self.cause: str | None = None
        """Why the body was told to end: requested, fenced or drain."""
        self.checkpointed = claim.fire.checkpoint is not None
        self.body: asyncio.Task[None] | None = None
        self.in_body = False
        self.outlived = False
        """The body goes on although the run has ended: a thread cannot be stopped."""
        self._trusted_until = start_before

    # What the body's side calls, from any thread.

    def enter(self) -> None:
        """The last thing before the body: past the trust window it must not start."""
        if self.cause is not None or not self.trusted():
            raise NotStarted
        self.started = True

    def trusted(self) -> bool:
        return self.replica.clock.steady() < self._trusted_until

    def report(self, progress: Mapping[str, Json]) -> None:
        report = Report(self.key, self.token, progress)
        self.replica.call_soon(lambda: self.replica.settler.put_report(report))

    def save(self, checkpoint: Json) -> concurrent.futures.Future[bool]:
        saved: concurrent.futures.Future[bool] = concurrent.futures.Future()
        report = Report(self.key, self.token, saves=True, checkpoint=checkpoint)

        def answer(accepted: bool) -> None:
            self.checkpointed = self.checkpointed or accepted
            if not accepted:
                self.fence()
            saved.set_result(accepted)

        self.replica.call_soon(lambda: self.replica.settler.put(report, answer))
        return saved

    # What the replica's side calls.

    def trust_until(self, steady: float) -> None:
        self._trusted_until = max(self._trusted_until, steady)

    def fence(self) -> None:
        """The store has confirmed that the token is gone: tell the body, and refuse its result."""
        if self.cause != "fenced":
            self.replica.tell("fenced", self.claim.fire)
        self._end("fenced")

    def cancel(self, cause: str) -> None:
        if self.cause is None:
            self._end(cause)

    def _end(self, cause: str) -> None:
        self.cause = cause
        self.fire._end("fenced" if cause == "fenced" else "cancelled")
        # Before the body `enter` refuses; after it there is nothing left to cancel but the settling.
        if self.in_body and self.body is not None:
            self.body.cancel()


class Host(Protocol):
    """Where bodies run."""

    async def call(self, run: Run) -> BaseException | None:
        """Call `run.enter()`, then the body, and return what it raised when it has ended. When cancelled,
        cancel the body and wait for its end, unless it cannot be told (a thread)."""

    @property
    def detached(self) -> int:
        """Bodies that go on although their run has ended."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the body ended."""

    kind: str
    """returned, raised, timed out, cancelled or not started"""
    error: BaseException | None = None


async def execute(run: Run, host: Host, chance: random.Random) -> Update | None:
    """Run the body and say what to settle; None: nothing, the token is gone."""
    ending = await attempt(run, host)
    return settlement(run, ending, chance)


async def attempt(run: Run, host: Host) -> Ending:
    timeout = run.claim.job.timeout
    limit = asyncio.timeout(timeout.total_seconds() if timeout else None)
    try:
        async with limit:
            run.in_body = True
            error = await host.call(run)
    except TimeoutError as expired:
        run.fire._end("fenced")
        return Ending("timed out", expired)
    except asyncio.CancelledError as cancelled:
        return Ending("cancelled") if run.cause else Ending("raised", cancelled)
    finally:
        run.in_body = False
    if isinstance(error, NotStarted):
        return Ending("not started")
    return Ending("raised", error) if error is not None else Ending("returned")


def settlement(run: Run, ending: Ending, chance: random.Random) -> Update | None:
    if run.cause == "fenced":
        return None
    if ending.kind == "not started":
        return GiveBack(run.key, run.token)
    if ending.kind == "returned":
        return Settle(run.key, run.token, State.SUCCEEDED)
    if ending.kind == "cancelled":
        if not run.started:
            return GiveBack(run.key, run.token)
        if run.cause == "requested":
            return Settle(run.key, run.token, State.CANCELLED, Reason.REQUESTED)
        if run.checkpointed and not run.outlived:
            return GiveBack(run.key, run.token, started=True)
        return Settle(run.key, run.token, State.CANCELLED, Reason.DRAIN_LIMIT)
    return _failure(run, run.claim.job, ending, chance)


def _failure(run: Run, job: Job, ending: Ending, chance: random.Random) -> Update:
    reason = Reason.TIMED_OUT if ending.kind == "timed out" else Reason.RAISED
    error = ending.error
    text = _told(error) if ending.kind == "raised" else f"timed out after {job.timeout}"
    if job.retry is not None and error is not None and job.retry.covers(error):
        # Attempts cut short by a crash are counted apart, under crash_attempts.
        delay = job.retry.delay_after(run.claim.fire.attempt - run.claim.fire.crashes, chance)
        if delay is not None:
            return RetryLater(run.key, run.token, delay, text)
    return Settle(run.key, run.token, State.FAILED, reason, text)


def _told(error: BaseException | None) -> str:
    try:
        text = "".join(traceback.format_exception(error)) if error else ""
    except Exception:  # an exception may be broken itself; the run has failed all the same
        text = f"{type(error).__name__} (it cannot be shown)"
    return text if len(text) <= ERROR_LIMIT else "…" + text[-ERROR_LIMIT:]
