"""One replica: the loops, in the order of the flow, over one store, on one event loop.

Everything here runs on a single event loop: in production the control thread's (see `control.py`), in tests
and in the simulator a virtual one. Bodies run elsewhere, through a `Host`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import os
import random
import re
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fencepost._version import __version__
from fencepost.clock import Clock
from fencepost.declaring import Declarer
from fencepost.election import Leadership
from fencepost.errors import StoreUnavailable
from fencepost.events import Ending, Event, Events
from fencepost.execute import Host, Run, last_words, outcome
from fencepost.failures import Failure, failure_of
from fencepost.heart import Heart
from fencepost.inspector import Inspector
from fencepost.janitor import Janitor
from fencepost.lag import LagWatch
from fencepost.locks import log_claim, log_lease
from fencepost.model import FireRecord, Job, Json, Reason, State, changed
from fencepost.output import keep_logs
from fencepost.planner import Planner
from fencepost.recurring import RecurringErrors
from fencepost.service import Service
from fencepost.settings import Settings
from fencepost.settler import Settler
from fencepost.store.base import Claim, Evidence, GiveBack, Pulse, RetryLater, Settle, Store, Update
from fencepost.tasks import Registry
from fencepost.testimony import Testimony
from fencepost.values import clean_text, fresh_copy
from fencepost.watcher import Watcher
from fencepost.worker import Worker

log = logging.getLogger("fencepost")

T = TypeVar("T")

MOST_LISTED = 10
"""Runs named in one line of the log."""
REMEMBERED = 1_000
"""Ended runs, so that a store that has lost data is not told that they never started."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Unique per process start: two workers in one pod are never the same owner."""

    id: str
    host: str
    pid: int
    version: str = __version__

    @classmethod
    def here(cls) -> Identity:
        host = clean_text(
            os.environ.get("POD_NAME") or os.environ.get("HOSTNAME") or socket.gethostname(), 200
        )
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", host)[:100]
        return cls(f"{name}-{os.getpid()}-{secrets.token_hex(4)}", host, os.getpid())


class Replica:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        settings: Settings,
        registry: Registry,
        host: Host,
        identity: Identity,
        jobs: Sequence[Job] = (),
        job_file: Path | None = None,
        events: Events | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.registry = registry
        self.host = host
        self.identity = identity
        self.id = identity.id
        self.events = events or Events()
        self.chance = chance or random.Random()
        self.results_dropped: set[str] = set()
        """Jobs whose results could not be kept: said once of each."""
        self.runs: dict[str, Run] = {}
        self.draining = False
        self.is_ready = False
        self.targets_changed = False
        self._ended: dict[str, Update] = {}
        """How the last runs ended, by their keys."""
        self._degraded = False
        self._recovered_at = -math.inf
        self.degraded_loops: dict[str, str] = {}
        """Loops that keep failing, and with what type of error. Read from other threads: replaced, never changed."""
        self.errors = RecurringErrors(log, clock.steady)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = asyncio.Event()
        self.progress = asyncio.Event()
        """Set when a run ended or something was settled."""
        self.leadership = Leadership(
            self.id, settings.leader_ttl.total_seconds(), settings.heartbeat.total_seconds()
        )
        self.testimony = Testimony(settings.run_ttl.total_seconds())
        self.heart = Heart(self)
        self.declarer = Declarer(self, jobs, job_file)
        self.planner = Planner(self)
        self.worker = Worker(self)
        self.settler = Settler(self)
        self.janitor = Janitor(self)
        self.watcher = Watcher(self)
        self.inspector = Inspector(self)
        self.listener = Listener(self)
        self.lag_watch = LagWatch(self)
        self.evidence = Evidence()
        """What the watcher last saw."""
        self._claimers: list[Service] = [
            self.declarer,
            self.planner,
            self.worker,
            self.janitor,
            self.watcher,
            self.inspector,
        ]
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the loops."""
        keep_logs()
        self._loop = asyncio.get_running_loop()
        for service in self.loops:
            self._tasks.append(asyncio.create_task(service.run(), name=service.name))

    @property
    def loops(self) -> list[Service]:
        return [*self._claimers, self.heart, self.settler, self.listener, self.lag_watch]

    def take_on(self, service: Service) -> None:
        """One more loop, before `begin`: it lives and is woken with those that claim."""
        self._claimers.append(service)

    async def ready(self) -> None:
        """Until this replica has joined and its jobs are declared."""
        await self._ready.wait()

    async def drain(self) -> None:
        """The graceful way out: claim no more, hand leadership over, let runs end, settle, leave."""
        if not self.draining:
            self.draining = True
            self.tell("replica.draining", detail=self._waits_for())
        for service in self._claimers:
            service.stop()
        self.worker.give_up()
        self.heart.wake()
        await self._until(lambda: not self.runs, self.settings.drain_timeout.total_seconds())
        if self.runs:
            log.warning("the drain limit is over; ending %s", _listed(self.running_keys))
        for run in self.runs.values():
            run.cancel("drain")
        await self._until(lambda: not self.runs and self.settler.is_empty, self._patience())
        for service in (self.heart, self.settler, self.listener, self.lag_watch):
            service.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.runs:
            await self._leave()

    def _waits_for(self) -> str:
        if not (keys := self.running_keys):
            return "nothing runs"
        limit = f"{self.settings.drain_timeout.total_seconds():g} s"
        return (
            f"waits up to {limit} for {len(keys)} run{'s' if len(keys) > 1 else ''} to end: {_listed(keys)}"
        )

    @property
    def running_keys(self) -> tuple[str, ...]:
        """From any thread."""
        return tuple(self.runs)

    async def _leave(self) -> None:
        try:
            await self.store.leave(self.id)
        except StoreUnavailable as error:
            log.warning("%s could not say good-bye (%s); its presence expires by itself", self.id, error)
        else:
            if (lease := self.leadership.lease).holder == self.id:
                log_lease(self.id, lease, changed(lease, holder=None), draining=True)
                self.tell("leader.resigned", detail=f"term {lease.term}")
            self.tell("replica.left")

    def _patience(self) -> float:
        """How long settling may take when the time for draining is up."""
        return min(5.0, max(0.5, self.settings.heartbeat.total_seconds()))

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self.progress.clear()
                    await self.progress.wait()

    # --- runs ---------------------------------------------------------------------------------------

    def start(self, claims: Sequence[Claim], start_before: float) -> None:
        """Start claimed fires."""
        known = [claim for claim in claims if claim.job.target in self.registry]
        if len(known) < len(claims):  # dropped while the claim was on its way
            self.return_unstarted([(each.fire.key, each.fire.token) for each in claims if each not in known])
        runs = [Run(self, claim, self.registry.get(claim.job.target), start_before) for claim in known]
        for run in runs:
            if (outdated := self.runs.get(run.key)) is not None:
                outdated.fence()  # its token is gone, and no beat would tell: the new run has its place
            self.runs[run.key] = run
            run.begin_timeout()
            log_claim("acquired", run.key, run.token)
            self.events.emit(Event("started", self.id, run.claim.fire, queued=queued_for(run.claim)))
        self.host.begin(runs)

    def runs_already(self, claim: Claim) -> bool:
        known = self.runs.get(claim.fire.key)
        return known is not None and known.token == claim.fire.token

    def ended(self, run: Run, error: BaseException | None) -> None:
        """A body has ended: settle its run."""
        try:
            update = outcome(run, error, self.chance)
        except Exception as failure:
            # Not the body's fault, but without an outcome its claim would be renewed for ever.
            log.exception("%s: %s ended in a way that cannot be settled", self.id, run.key)
            update = Settle(run.key, run.token, State.FAILED, Reason.RAISED, repr(failure)[:500])
        if update is None:
            self._remember(Settle(run.key, run.token, State.LOST, Reason.DATA_LOSS))
            self._forget(run)
        else:
            if (words := last_words(run, update)) is not None:
                self.settler.put(words)
            self.settler.put(update, lambda written, accepted: self._settled(run, written, accepted))

    def _settled(self, run: Run, update: Update, accepted: bool) -> None:
        self._remember(update)
        log_claim("released" if accepted else "refused", run.key, run.token)
        if not accepted:
            run.fence()
        elif isinstance(update, Settle):
            if update.reason == Reason.NOT_RECORDED:
                run.failure = Failure(update.error or "", update.error or "")
            told = changed(run.claim.fire, state=update.state, reason=update.reason, error=update.error)
            self.tell(update.state.value, told, ending=run.ending(update))
        elif isinstance(update, RetryLater):
            told = changed(run.claim.fire, error=update.error)
            self.tell("retrying", told, ending=run.ending(update))
        else:
            self.tell("given_back", run.claim.fire)
        self._forget(run)

    def _forget(self, run: Run) -> None:
        if self.runs.get(run.key) is run:
            del self.runs[run.key]
        self.progress.set()
        self.worker.wake()

    def return_unstarted(self, claims: Sequence[tuple[str, int]]) -> None:
        """Give back claims whose bodies never started here. If one has run, then the store has forgotten how it
        ended: it is told again."""
        for key, token in claims:
            ended = self._ended.get(key)
            told = ended if ended is not None and ended.token == token else GiveBack(key, token)
            self.settler.put(told)

    def _remember(self, ended: Update) -> None:
        self._ended[ended.key] = ended
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def room(self) -> int:
        return max(0, self.settings.slots - len(self.runs) - self.host.detached)

    # --- what the loops share -------------------------------------------------------------------------

    def term(self) -> int | None:
        """The term this replica may act as the leader in, now."""
        return None if self.draining else self.leadership.term(self.clock.steady())

    def learn_era(self, pulse: Pulse) -> None:
        steady = self.clock.steady()
        waited = self.testimony.wait(steady)
        lost = self.testimony.learn(pulse, steady)
        if not waited and (wait := self.testimony.wait(steady)):
            log.warning(
                "%s claims nothing for %.0f s: the store's server has restarted and may have lost writes; meanwhile "
                "all live replicas say what they have seen, so that nothing runs twice",
                self.id,
                wait,
            )
        if lost:
            self.tell("store.lost_data", detail=f"incarnation {pulse.leader.era.incarnation}")
            self.declarer.again()
            self.know_anew()

    def joined(self) -> None:
        self.tell("replica.joined")
        self.wake_all()
        self.watcher.wake()

    def declared(self) -> None:
        self.is_ready = True
        self._ready.set()
        self.wake_all()

    def declare(self, jobs: Sequence[Job]) -> None:
        """Add to what is declared at the start; takes effect when the store answers."""
        self.declarer.add(jobs)
        self.know_anew()

    def know_anew(self) -> None:
        """The tasks known here have changed: say so with the next beat, now."""
        self.targets_changed = True
        self.heart.wake()

    def wake_all(self) -> None:
        for service in (*self._claimers, self.heart):
            service.wake()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """From any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(callback)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """From any thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def kept(self, job_id: str) -> Json:
        """What the job's last success has kept; asked for until the store answers."""
        failures = 0
        while True:
            try:
                records = await self.store.jobs([job_id])
            except StoreUnavailable as error:
                failures += 1
                self.store_failed(error)
                await asyncio.sleep(self.backoff(failures))
            else:
                return fresh_copy(records[0].kept) if records else None

    def tell(
        self, kind: str, fire: FireRecord | None = None, detail: str = "", ending: Ending | None = None
    ) -> None:
        self.events.emit(Event(kind, self.id, fire, detail, ending))

    def store_failed(self, error: StoreUnavailable, asked_at: float | None = None) -> None:
        """`asked_at`: when the request was sent, if it may have been before the store recovered. Then its failure
        belongs to the outage that is over."""
        is_old = asked_at is not None and asked_at <= self._recovered_at
        if not self._degraded and not is_old:
            self._degraded = True
            self.tell("store.degraded", detail=str(error))

    @property
    def store_is_lost(self) -> bool:
        """The store did not answer when it was last asked. Read from other threads, too."""
        return self._degraded

    def store_answered(self) -> None:
        if self._degraded:
            self._degraded = False
            self._recovered_at = self.clock.steady()
            self.tell("store.recovered")
            self.wake_all()
            self.settler.wake()

    def loop_degraded(self, name: str, error: Exception) -> None:
        failure = failure_of(error)
        self.degraded_loops = {**self.degraded_loops, name: failure.kind}
        self.tell("loop.degraded", detail=f"{name} keeps failing: {failure.line}")

    def loop_recovered(self, name: str) -> None:
        self.degraded_loops = {each: kind for each, kind in self.degraded_loops.items() if each != name}
        self.tell("loop.recovered", detail=name)

    def backoff(self, failures: int) -> float:
        """1 s, doubling, up to 60 s; but a replica that holds claims, or may without knowing, must not let them
        expire by waiting, and none waits longer than two terms would last."""
        delay = min(60.0, 2 * self.settings.leader_ttl.total_seconds(), 2.0 ** min(failures - 1, 6))
        if self.runs or not self.settler.is_empty or self.worker.is_asking:
            delay = min(delay, self.settings.heartbeat.total_seconds() / 2)
        return delay * self.chance.uniform(0.75, 1.0)


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - MOST_LISTED} more" if len(keys) > MOST_LISTED else ""
    return ", ".join(keys[:MOST_LISTED]) + more


def queued_for(claim: Claim) -> float:
    """Seconds that a fire waited for its turn."""
    return (claim.free_at - claim.fire.due_at).total_seconds() if claim.free_at else 0.0


class Listener(Service):
    """Hints from the store. They only save time: polling alone is correct."""

    async def step(self) -> float | None:
        # No pause between two waits: a hint that nobody waits for is lost.
        while await self.replica.store.wait(self.replica.settings.horizon.total_seconds() / 2):
            self.replica.wake_all()
        return 0.0
