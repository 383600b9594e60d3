"""Looks after the runs of one engine: sends their orders, polls the engine, ends what its worker cannot end any more.

A run belongs to its engine. This loop works from the store's rows alone: what another replica has sent, it adopts when
that replica is gone, and asks the engine first. Workers report by themselves (`fencepost.engine_worker`); what is left
is what a worker cannot say: that it never started, or is no more. `store/rules/remote.py` decides whether that is
believed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.errors import FencepostError
from fencepost.model import FireRecord, Reason, State
from fencepost.model.fires import Remote
from fencepost.model.triggers import iso
from fencepost.replica.service import Service
from fencepost.runs.engines import GONE, UNSURE, Engine, Order, Ref, Sighting, ref_of
from fencepost.runs.events import Event
from fencepost.store.base import Adopt, Claim, FireQuery, Missing, RetryLater, Settle, Update, Updated
from fencepost.store.rules.leadership import OBSERVED

if TYPE_CHECKING:
    from fencepost.replica.replica import Replica

PATIENCE = 10.0
"""Seconds that one call of an engine may take."""
LONGEST_POLL = 5.0
TRIES_TO_FORGET = 3
BATCH = 200

Attempt = tuple[str, int]
"""The key of a fire, and a token."""


class EngineFailed(FencepostError):
    """The engine says that a run failed, and its worker said nothing."""


@dataclass(eq=False, slots=True)
class EngineWatch:
    """What this replica knows of one run."""

    ref: Ref
    claim: Claim
    remote: Remote
    sent: bool | None
    """None: perhaps."""
    sends: int = 0
    """That the engine has taken."""
    send_at: float = 0.0
    sighting: Sighting = UNSURE
    polls: int = 0
    """How often the engine has called it over, without a heartbeat of its worker in between."""
    unchanged_since: float = 0.0
    """By the steady clock: since when its worker was seen to send no heartbeat."""
    started_at: float | None = None
    cancel_at: float | None = None
    stopped_at: float | None = None
    forgets: int = 0

    @property
    def fire(self) -> FireRecord:
        return self.claim.fire

    def learn(self, claim: Claim, remote: Remote, now: float) -> None:
        if (remote.worker, remote.beats) != (self.remote.worker, self.remote.beats):
            self.restart(now)
        self.claim, self.remote = claim, remote
        if remote.worker is not None and self.started_at is None:
            self.started_at = now
        if claim.fire.cancel_requested and self.cancel_at is None:
            self.cancel_at = now

    def restart(self, now: float) -> None:
        """What was observed so far proves nothing."""
        self.polls, self.unchanged_since = 0, now


class EngineLoop(Service):
    shortest = 0.05
    longest_between_sends = 3600.0

    def __init__(self, replica: Replica, engine: str, implementation: Engine) -> None:
        super().__init__(replica)
        self.engine = engine
        self._engine = implementation
        self._watched: dict[Attempt, EngineWatch] = {}
        self._leaving: list[EngineWatch] = []
        """Runs that have ended, and which the engine need not remember."""
        self._polled_at: float | None = None

    @property
    def name(self) -> str:
        return f"engine {self.engine}"

    async def step(self) -> float | None:
        replica, every = self.replica, self._poll_every()
        if not replica.is_ready:
            return every
        runs = await replica.store.remote_runs(replica.id, self.engine)
        if runs.orphaned:
            await self._adopt(runs.orphaned)
            return 0.0
        await self._compare(runs.mine)
        now = replica.clock.steady()
        await self._all(self._send(watch) for watch in self._to_send(now))
        if self._polled_at is None or now - self._polled_at >= every:
            self._polled_at = now
            await self._poll()
            await self._all(self._stop(watch) for watch in self._watched.values() if self._must_stop(watch))
            await self._end_missing()
        await self._all(self._forget(watch) for watch in self._leaving)
        return every

    def _poll_every(self) -> float:
        return min(LONGEST_POLL, self.replica.settings.heartbeat.total_seconds() / 2)

    async def _all(self, calls: Iterable[Awaitable[None]]) -> None:
        """At once: together they take no longer than the one that takes longest, at most `PATIENCE`."""
        await asyncio.gather(*calls)

    async def _asked(self, call: Awaitable[object]) -> bool:
        """Whether the engine has answered. If not, it is not known what it did."""
        try:
            await asyncio.wait_for(call, PATIENCE)
        except Exception as error:
            self.replica.errors.log(f"{self.replica.id}: the engine {self.engine} failed", error)
            return False
        return True

    async def close(self) -> None:
        """Its connections, if it has any to close."""
        if (close := getattr(self._engine, "close", None)) is not None:
            await self._asked(close())

    # --- which runs there are -------------------------------------------------------------------------------

    async def _adopt(self, orphaned: Sequence[Claim]) -> None:
        replica = self.replica
        some = [Adopt(claim.fire.key, claim.fire.token, replica.id) for claim in orphaned[:BATCH]]
        await self._update(some)

    async def _update(self, some: Sequence[Update]) -> Updated:
        reply = await self.replica.store.update_claims(self.replica.id, some)
        self.replica.data_loss.note_steps(reply.steps)
        return reply

    async def _compare(self, mine: Sequence[Claim]) -> None:
        now, current = self.replica.clock.steady(), {}
        for claim in mine:
            remote = Remote.of(claim.fire)
            assert remote is not None
            attempt = claim.fire.key, claim.fire.token
            watch = self._watched.get(attempt) or self._first_seen(claim, remote, now)
            if watch.started_at is None and remote.worker is not None:
                self.replica.events.emit(Event("started", self.replica.id, claim.fire))
            watch.learn(claim, remote, now)
            current[attempt] = watch
        gone = {attempt: watch for attempt, watch in self._watched.items() if attempt not in current}
        self._watched |= current
        if gone:
            await self._conclude(gone)

    def _first_seen(self, claim: Claim, remote: Remote, now: float) -> EngineWatch:
        ref = ref_of(self.replica.settings.namespace, claim.fire.key, claim.fire.token)
        # What a worker has begun was sent, also if this replica lost sight of it: else it would never be polled.
        sent = None if remote.adopted or remote.worker is not None else False
        return EngineWatch(ref, claim, remote, sent, unchanged_since=now)

    async def _conclude(self, gone: Mapping[Attempt, EngineWatch]) -> None:
        """They are over, or another replica looks after them: then it is not for this one to forget them. They are
        watched until the store has answered."""
        keys = tuple(key for key, _ in gone)
        found = await self.replica.store.find_fires(FireQuery(keys=keys, limit=len(keys)))
        rows = {fire.key: fire for fire in found}
        self.replica.worker.wake()  # the end of a run may make the next one due
        for attempt, watch in gone.items():
            fire = rows.get(watch.fire.key)
            runs = fire is not None and fire.state is State.RUNNING and fire.token == watch.fire.token
            remote = Remote.of(fire) if fire is not None and runs else None
            if remote is not None and remote.by == self.replica.id:
                continue  # its job cannot be read for the moment
            del self._watched[attempt]
            if runs:
                continue
            self._leaving.append(watch)
            if fire is not None and fire.token == watch.fire.token:
                kind = fire.state.value if fire.state.final else "retrying"
                self.replica.events.emit(Event(kind, self.replica.id, fire))

    # --- what is asked of the engine --------------------------------------------------------------------------

    def _to_send(self, now: float) -> list[EngineWatch]:
        return [watch for watch in self._watched.values() if self._must_send(watch, now)]

    def _must_send(self, watch: EngineWatch, now: float) -> bool:
        """What was not sent yet. And again, under the same ref, what may not have arrived: the engine was asked first,
        and does not know it."""
        if watch.remote.worker is not None or watch.sent is False:
            return watch.sent is False and watch.remote.worker is None
        if not watch.polls or now < watch.send_at:
            return False
        return watch.sighting.kind == UNSURE.kind or (watch.sent is None and watch.sighting.kind == GONE.kind)

    async def _send(self, watch: EngineWatch) -> None:
        """What the engine has taken is sent again at ever longer intervals; what it has not, as soon as it is back."""
        between = self.replica.settings.run_ttl.total_seconds() * 2.0 ** min(watch.sends, 12)
        watch.send_at = self.replica.clock.steady() + min(between, self.longest_between_sends)
        watch.sent, watch.polls = None, 0
        if await self._asked(self._engine.submit(self._order(watch))):
            watch.sent = True
            watch.sends += 1

    def _order(self, watch: EngineWatch) -> Order:
        settings, fire, job = self.replica.settings, watch.claim.fire, watch.claim.job
        return Order(
            ref=watch.ref,
            engine=self.engine,
            namespace=settings.namespace,
            key=fire.key,
            token=fire.token,
            job_id=job.id,
            target=job.target,
            due_at=iso(fire.nominal_due_at),
            args=job.args if fire.args is None else fire.args,
            attempt=fire.attempt,
            timeout=job.timeout.total_seconds() if job.timeout else None,
            heartbeat=settings.heartbeat.total_seconds(),
            ttl=settings.run_ttl.total_seconds(),
            options=job.engine_options,
        )

    async def _poll(self) -> None:
        """An error proves nothing: what was observed of these runs starts anew."""
        asked = [watch for watch in self._watched.values() if watch.sent is not False]
        for some in (asked[n : n + BATCH] for n in range(0, len(asked), BATCH)):
            try:
                seen = await asyncio.wait_for(self._engine.poll([watch.ref for watch in some]), PATIENCE)
            except Exception as error:
                self.replica.errors.log(f"{self.replica.id}: the engine {self.engine} failed", error)
                for watch in some:
                    watch.restart(self.replica.clock.steady())
                continue
            for watch in some:
                self._note(watch, seen.get(watch.ref, UNSURE))

    def _note(self, watch: EngineWatch, sighting: Sighting) -> None:
        watch.sighting = sighting
        if sighting.kind in ("waiting", "running"):
            watch.sent = True
            watch.restart(self.replica.clock.steady())
        else:
            watch.polls += 1

    def _must_stop(self, watch: EngineWatch) -> bool:
        """Its worker was told first, with the reply to a heartbeat."""
        now, heartbeat = self.replica.clock.steady(), self.replica.settings.heartbeat.total_seconds()
        if watch.stopped_at is not None and now < watch.stopped_at + PATIENCE:
            return False
        return self._timed_out(watch) or (
            watch.cancel_at is not None and now > watch.cancel_at + 2 * heartbeat
        )

    def _timed_out(self, watch: EngineWatch) -> bool:
        limit = watch.claim.job.timeout
        if limit is None or watch.started_at is None:
            return False
        grace = 2 * self.replica.settings.heartbeat.total_seconds()
        return self.replica.clock.steady() > watch.started_at + limit.total_seconds() + grace

    async def _stop(self, watch: EngineWatch) -> None:
        watch.stopped_at = self.replica.clock.steady()
        await self._asked(self._engine.stop(watch.ref))

    async def _forget(self, watch: EngineWatch) -> None:
        """One whose body never started, or may still run although it is lost, is ended first."""
        watch.forgets += 1
        settled = watch.remote.worker is not None and watch.sighting.kind != UNSURE.kind
        stopped = settled or await self._asked(self._engine.stop(watch.ref))
        if (
            stopped and await self._asked(self._engine.forget(watch.ref))
        ) or watch.forgets >= TRIES_TO_FORGET:
            self._leaving.remove(watch)

    # --- what a worker cannot say any more ----------------------------------------------------------------------

    async def _end_missing(self) -> None:
        updates = [self._missing(watch) for watch in self._watched.values() if self._seems_over(watch)]
        for some in (updates[n : n + BATCH] for n in range(0, len(updates), BATCH)):
            if any((await self._update(some)).accepted):
                self.wake()
                self.replica.worker.wake()

    def _seems_over(self, watch: EngineWatch) -> bool:
        if watch.polls < 2:
            return False
        if watch.remote.worker is None:
            # What may never have arrived is sent again first. One that has ended did, and the gate was closed to it.
            known = watch.sighting.kind == "ended" or watch.sent is True
            return known and watch.sighting.kind != UNSURE.kind
        if watch.remote.ttl is None:
            return watch.sighting.kind != UNSURE.kind
        return self._silent_for(watch) >= OBSERVED * watch.remote.heartbeat

    def _silent_for(self, watch: EngineWatch) -> float:
        return self.replica.clock.steady() - watch.unchanged_since

    def _missing(self, watch: EngineWatch) -> Update:
        fire, sighting = watch.fire, watch.sighting
        then = self._outcome(watch, sighting, self.replica.chance)
        return Missing(
            fire.key,
            fire.token,
            watch.remote.beats,
            self._silent_for(watch),
            watch.polls,
            then,
            sighting.error,
        )

    def _outcome(
        self, watch: EngineWatch, sighting: Sighting, chance: random.Random
    ) -> Settle | RetryLater | None:
        """How the engine says that it ended. That it succeeded is believed only of a worker without heartbeats: any
        other would have said so itself, and this may have been a second delivery, which was refused."""
        fire, job = watch.fire, watch.claim.job
        if self._timed_out(watch):
            return self._failed(
                watch, Reason.TIMED_OUT, f"timed out after {job.timeout}", TimeoutError(), chance
            )
        if sighting.kind != "ended":
            return None
        if sighting.succeeded:
            believed = watch.remote.worker is not None and watch.remote.ttl is None
            done = Settle(fire.key, fire.token, State.SUCCEEDED, output=sighting.output)
            return done if believed else None
        text = sighting.error or f"the engine {self.engine} says that it failed"
        return self._failed(watch, Reason.RAISED, text, EngineFailed(text), chance)

    def _failed(
        self, watch: EngineWatch, reason: Reason, text: str, error: Exception, chance: random.Random
    ) -> Settle | RetryLater:
        fire, retry = watch.fire, watch.claim.job.retry
        if retry is not None and retry.covers(error):
            delay = retry.delay_after(fire.attempt - fire.crashes, chance)
            if delay is not None:
                return RetryLater(fire.key, fire.token, delay, text)
        return Settle(fire.key, fire.token, State.FAILED, reason, text, watch.sighting.output)
