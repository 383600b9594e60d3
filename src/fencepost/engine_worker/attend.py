"""One order, from the start gate to its outcome: what a replica is to its runs, for a single one of them.

On one event loop, the worker's control loop. The body runs elsewhere, through a `Host`, as everywhere.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fencepost.clock import Clock
from fencepost.engine_worker.gate import Gate
from fencepost.errors import NotStorable, StoreUnavailable
from fencepost.model import Json, Reason, State
from fencepost.model.values import fresh_copy
from fencepost.replica.election import TRUSTED
from fencepost.replica.settler import merged, unrecorded
from fencepost.runs.engines import Order
from fencepost.runs.failures import failure_of
from fencepost.runs.fenced import Scope
from fencepost.runs.outcome import last_words, outcome
from fencepost.runs.run import Host, Run
from fencepost.runs.tasks import Task
from fencepost.store.base import Alive, Claim, GiveBack, Report, RetryLater, Settle, Start, Update

log = logging.getLogger("fencepost")

ASK_FOR = 10
"""Heartbeats for which a worker waits at the gate while the store does not answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an order ended here. `refused`: the start gate was closed, nothing has run, and nothing is to be done.
    `unreported`: its token was gone when it ended, or the store did not answer at the gate."""

    kind: Literal["succeeded", "failed", "cancelled", "retrying", "given back", "refused", "unreported"]
    error: str | None = None

    @property
    def exit_code(self) -> int:
        """Of a process that carries out one order. A delivery that was refused is no failure."""
        return 1 if self.kind in ("failed", "retrying", "unreported") else 0


Answer = Callable[[Update, bool], None]
Refused = Callable[[Exception], None]


@dataclass(eq=False, slots=True)
class WaitingUpdate:
    update: Update
    answer: Answer | None = None
    refused: Refused | None = None


class Attendant:
    """The `Context` of the one run."""

    def __init__(
        self, order: Order, gate: Gate, host: Host, clock: Clock, worker: str, chance: random.Random
    ) -> None:
        self.order = order
        self.clock = clock
        self._gate = gate
        self._host = host
        self._worker = worker
        self._chance = chance
        self._outbox: deque[WaitingUpdate] = deque()
        self._report: Report | None = None
        self._news = asyncio.Event()
        self._over: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self.run: Run | None = None

    async def attend(self, find: Callable[[Order], Task]) -> Verdict:
        passed = await self._pass_gate()
        if passed is None:
            log.info("%s: the start gate is closed, nothing runs here", self.order.key)
            return Verdict("refused")
        claim, start_before = passed
        work = [asyncio.ensure_future(each) for each in (self._send_heartbeats(), self._deliver())]
        try:
            self._begin(claim, find, start_before)
            return await self._over
        finally:
            for task in work:
                task.cancel()

    # --- the gate -------------------------------------------------------------------------------------------

    async def _pass_gate(self) -> tuple[Claim, float] | None:
        """The run, and by when its body must start: as with a claim, trust counts from when the request was sent."""
        order, tries = self.order, 0
        start = Start(order.key, order.token, self._worker, order.heartbeat, order.ttl)
        while True:
            sent = self.clock.steady()
            try:
                (accepted,) = await self._gate.send(self._worker, [start])
                claim = await self._gate.claim(order) if accepted else None
            except StoreUnavailable:
                tries += 1
                if tries >= 2 * ASK_FOR:
                    raise
                await asyncio.sleep(order.heartbeat / 2)
                continue
            if accepted and claim is None:
                # Its job was removed at this moment. The gate is shut behind this worker, so it must say that it runs
                # nothing: else the run would be taken for one that was lost in the middle.
                await self._sent(WaitingUpdate(GiveBack(order.key, order.token)))
            return None if claim is None else (claim, sent + TRUSTED * order.ttl)

    def _begin(self, claim: Claim, find: Callable[[Order], Task], start_before: float) -> None:
        try:
            task = find(self.order)
            task.check(claim.job.args if claim.fire.args is None else claim.fire.args, f"job {claim.job.id}")
        except Exception as error:
            text = failure_of(error).text
            settle = Settle(self.order.key, self.order.token, State.FAILED, Reason.RAISED, text)
            self._put(WaitingUpdate(settle, self._settled))
            return
        self.run = Run(self, claim, task, start_before, 0)
        self.run.begin_timeout()
        self._host.begin([self.run])

    # --- heartbeats -----------------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        order = self.order
        alive = Alive(order.key, order.token, self._worker, order.heartbeat, order.ttl)
        pause = order.heartbeat
        while True:
            await asyncio.sleep(pause)
            sent = self.clock.steady()
            try:
                (accepted,) = await self._gate.send(self._worker, [alive])
                claim = await self._gate.claim(order) if accepted else None
            except Exception as error:  # whatever it is: the next one may get through
                log.warning("%s: no heartbeat (%s)", order.key, error)
                pause = order.heartbeat / 2
                continue
            pause = order.heartbeat
            if self.run is None:
                continue
            if not accepted:
                self.run.fence()
                continue
            self.run.trust_until(sent + TRUSTED * order.ttl)
            if claim is not None and claim.fire.cancel_requested:
                self.run.cancel("requested")

    # --- updates --------------------------------------------------------------------------------------------

    def _put(self, entry: WaitingUpdate) -> None:
        self._outbox.append(entry)
        self._news.set()

    async def _deliver(self) -> None:
        """One after the other, each until the store has answered."""
        while True:
            if self._report is not None:
                report, self._report = self._report, None
                await self._sent(WaitingUpdate(report))
            elif self._outbox:
                entry = self._outbox.popleft()
                await self._sent(entry)
            else:
                self._news.clear()
                await self._news.wait()

    async def _sent(self, entry: WaitingUpdate) -> None:
        update, failures = entry.update, 0
        while True:
            try:
                (accepted,) = await self._gate.send(self._worker, [update])
            except StoreUnavailable:
                await asyncio.sleep(self.order.heartbeat / 2)
            except Exception as error:
                failures += 1
                if isinstance(update, Report):
                    self._dropped(entry, error)
                    return
                # Once more as it is, for not every error comes back; then as a failure that says why.
                if failures == 2:
                    update = unrecorded(entry.update, error) or update
                await asyncio.sleep(0.0 if failures < 3 else self.order.heartbeat / 2)
            else:
                if entry.answer is not None:
                    entry.answer(update, accepted)
                return

    def _dropped(self, entry: WaitingUpdate, error: Exception) -> None:
        log.warning(
            "%s: a report cannot be written and is dropped (%s)", self.order.key, failure_of(error).line
        )
        if entry.refused is not None:
            message = f"{self.order.key}: the store cannot keep this checkpoint ({failure_of(error).line})"
            entry.refused(NotStorable(message))

    def _settled(self, update: Update, accepted: bool) -> None:
        if not self._over.done():
            self._over.set_result(_verdict(update, accepted))

    # --- what a run asks for: see `runs.run.Context` ----------------------------------------------------------

    @property
    def heartbeat(self) -> float:
        return self.order.heartbeat

    @property
    def scope(self) -> Scope:
        return self._gate.scope

    @property
    def descriptors(self) -> Sequence[int]:
        return ()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(callback)

    def report(self, report: Report) -> None:
        self._report = merged(self._report, report)
        self._news.set()

    def save(self, report: Report, answer: Answer, refused: Refused) -> None:
        self._put(WaitingUpdate(report, answer, refused))

    def kept(self, job_id: str) -> concurrent.futures.Future[Json]:
        return asyncio.run_coroutine_threadsafe(self._kept(job_id), self._loop)

    async def _kept(self, job_id: str) -> Json:
        while True:
            try:
                return fresh_copy(await self._gate.kept(job_id))
            except StoreUnavailable:
                await asyncio.sleep(self.order.heartbeat / 2)

    def drop_result(self, job_id: str, why: str) -> None:
        log.warning("%s; it is not kept with its fires", why)

    def stop(self, run: Run) -> None:
        self._host.cancel(run)

    def fenced(self, run: Run) -> None:
        log.warning("%s: token %s is gone; its result will be refused", run.key, run.token)

    def ended(self, run: Run, error: BaseException | None) -> None:
        try:
            update = outcome(run, error, self._chance)
        except Exception as failure:
            log.exception("%s ended in a way that cannot be settled", run.key)
            update = Settle(run.key, run.token, State.FAILED, Reason.RAISED, repr(failure)[:500])
        if update is None:
            self._over.set_result(Verdict("unreported", "its token was gone"))
            return
        if (words := last_words(run, update)) is not None:
            self._put(WaitingUpdate(words))
        self._put(WaitingUpdate(update, self._settled))

    def outlived(self) -> None:
        return

    def room_changed(self) -> None:
        return


def _verdict(update: Update, accepted: bool) -> Verdict:
    if not accepted:
        return Verdict("unreported", "its token was gone")
    if isinstance(update, RetryLater):
        return Verdict("retrying", update.error)
    if isinstance(update, GiveBack):
        return Verdict("given back")
    assert isinstance(update, Settle)
    if update.state is State.SUCCEEDED:
        return Verdict("succeeded")
    return Verdict("cancelled" if update.state is State.CANCELLED else "failed", update.error)
