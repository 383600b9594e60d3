"""One replica: the loops, in the order of the flow, over one store, on one event loop.

Everything here runs on a single event loop: in production the control thread's (see `control.py`), in tests
and in the simulator a virtual one. Bodies run elsewhere, through a `Host`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import random
import re
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fencepost import __version__
from fencepost.clock import Clock
from fencepost.errors import FencepostError, StoreUnavailable
from fencepost.model import FireRecord, Job, Json, changed
from fencepost.model.jobs import lane_of
from fencepost.model.values import clean_text, fresh_copy
from fencepost.replica.data_loss import DataLossDetector
from fencepost.replica.declaring import Declarer
from fencepost.replica.election import TRUSTED, Leadership
from fencepost.replica.engines import EngineLoop
from fencepost.replica.heartbeat import Heartbeat
from fencepost.replica.inspector import Inspector
from fencepost.replica.intake import Intake
from fencepost.replica.janitor import Janitor
from fencepost.replica.lag import LagWatch
from fencepost.replica.locks import log_lease
from fencepost.replica.notifier import Notifier, Subscription
from fencepost.replica.outage import Outage
from fencepost.replica.peers import Peers
from fencepost.replica.planner import Planner
from fencepost.replica.runs import Runs
from fencepost.replica.service import Service
from fencepost.replica.settler import Settler
from fencepost.replica.watcher import Watcher
from fencepost.replica.worker import Worker
from fencepost.runs.engines import Engine
from fencepost.runs.events import Ending, Event, Events
from fencepost.runs.failures import failure_of
from fencepost.runs.output import keep_logs
from fencepost.runs.recurring import RecurringErrors
from fencepost.runs.run import Host
from fencepost.runs.tasks import Registry
from fencepost.settings import Settings
from fencepost.store.base import Evidence, HeartbeatReply, Seen, Store
from fencepost.store.inbox import inbox_of
from fencepost.store.rereading import readable_job

log = logging.getLogger("fencepost")

T = TypeVar("T")

MOST_LISTED = 10
"""Runs named in one line of the log."""


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
        engines: Mapping[str, Engine] | None = None,
        notify: Sequence[Subscription] = (),
        inline: bool = False,
    ) -> None:
        """`notify`: the channels of this process. `inline`: a test owns the time, and everything runs on one loop."""
        self.store = store
        self.clock = clock
        self.settings = settings
        self.registry = registry
        self.host = host
        self.identity = identity
        self.id = identity.id
        self.events = events or Events()
        self.chance = chance or random.Random()
        self.runs = Runs(self)
        self.draining = False
        self.is_ready = False
        self.targets_changed = False
        self._outage = Outage(
            clock.steady,
            settings.heartbeat.total_seconds(),
            begins=lambda why: self.emit("store.degraded", detail=why),
            ends=lambda: self.emit("store.recovered"),
        )
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
        # After this time no replica starts a run that was granted before the restart; noticing the restart and
        # waiting take less than a TTL together.
        self.data_loss = DataLossDetector(TRUSTED * settings.run_ttl.total_seconds())
        self.heartbeat = Heartbeat(self)
        self.declarer = Declarer(self, jobs, job_file)
        self.planner = Planner(self)
        self.peers = Peers(clock)
        self.worker = Worker(self)
        self.settler = Settler(self)
        self.janitor = Janitor(self)
        self.watcher = Watcher(self)
        self.inspector = Inspector(self)
        inbox = inbox_of(store)
        self.intake = Intake(self, inbox) if inbox is not None else None
        self.engines = [EngineLoop(self, name, engine) for name, engine in (engines or {}).items()]
        self.notifier = Notifier(self, notify, inline) if notify else None
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
            *((self.intake,) if self.intake is not None else ()),
            *self.engines,
            *((self.notifier,) if self.notifier is not None else ()),
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
    def has_begun(self) -> bool:
        return bool(self._tasks)

    @property
    def loops(self) -> list[Service]:
        return [*self._claimers, self.heartbeat, self.settler, self.listener, self.lag_watch]

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
            self.emit("replica.draining", detail=self._waits_for())
        for service in self._claimers:
            service.stop()
        self.worker.give_up()
        self.heartbeat.wake()
        await self._until(lambda: not self.runs, self.settings.drain_timeout.total_seconds())
        if self.runs:
            log.warning("the drain limit is over; ending %s", _listed(self.runs.running_keys))
        for run in self.runs.values():
            run.cancel("drain")
        await self._until(lambda: not self.runs and self.settler.is_empty, self._patience())
        for service in (self.heartbeat, self.settler, self.listener, self.lag_watch):
            service.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.runs:
            await self._leave()
        await asyncio.gather(*(loop.close() for loop in self.engines))

    def _waits_for(self) -> str:
        if not (keys := self.runs.running_keys):
            return "nothing runs"
        limit = f"{self.settings.drain_timeout.total_seconds():g} s"
        return (
            f"waits up to {limit} for {len(keys)} run{'s' if len(keys) > 1 else ''} to end: {_listed(keys)}"
        )

    async def _leave(self) -> None:
        try:
            await self.store.leave(self.id)
        except FencepostError as error:
            log.warning("%s could not leave the store (%s); its presence expires by itself", self.id, error)
        else:
            if (lease := self.leadership.lease).holder == self.id:
                log_lease(self.id, lease, changed(lease, holder=None), draining=True)
                self.emit("leader.resigned", detail=f"term {lease.term}")
            self.emit("replica.left")

    def _patience(self) -> float:
        """How long settling may take when the time for draining is up."""
        return min(5.0, max(0.5, self.settings.heartbeat.total_seconds()))

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self.progress.clear()
                    await self.progress.wait()

    # --- what the loops share -------------------------------------------------------------------------

    def term(self) -> int | None:
        """The term this replica may act as the leader in, now."""
        return None if self.draining else self.leadership.term(self.clock.steady())

    def learn_era(self, reply: HeartbeatReply, reported: Seen) -> None:
        steady = self.clock.steady()
        waited = self.data_loss.seconds_until_claims(steady)
        lost = self.data_loss.note_heartbeat(reply, reported, steady)
        if not waited and (wait := self.data_loss.seconds_until_claims(steady)):
            log.warning(
                "%s claims nothing for %.0f s: the store's server has restarted and may have lost writes; meanwhile "
                "all live replicas report what they have seen, so that nothing runs twice",
                self.id,
                wait,
            )
            self.worker.wake()  # to ask when the wait is over, whatever the last reply said
        if lost:
            self.emit("store.lost_data", detail=f"incarnation {reply.leader.era.incarnation}")
            self.declarer.again()
            self.targets_did_change()

    def joined(self) -> None:
        self.emit("replica.joined")
        self.wake_all()
        self.watcher.wake()

    def declared(self) -> None:
        self.is_ready = True
        self._ready.set()
        self.wake_all()

    def declare(self, jobs: Sequence[Job]) -> None:
        """Add to what is declared at the start; takes effect when the store answers."""
        self.declarer.add(jobs)
        self.targets_did_change()

    @property
    def lanes(self) -> tuple[str, ...]:
        """What this replica registers: the tasks it knows, in each of its pools."""
        names, pools = self.registry.names, self.settings.pools
        engines = [f"@{loop.engine}" for loop in self.engines]
        return tuple(sorted([*engines, *(lane_of(name, pool) for pool in pools for name in names)]))

    def targets_did_change(self) -> None:
        """The tasks known here have changed: send them with a heartbeat now."""
        self.targets_changed = True
        self.heartbeat.wake()

    def wake_all(self) -> None:
        for service in (*self._claimers, self.heartbeat):
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
                record = await readable_job(self.store, job_id)
            except StoreUnavailable as error:
                failures += 1
                self.store_failed(error)
                await asyncio.sleep(self.backoff(failures))
            else:
                return fresh_copy(record.kept) if record else None

    def emit(
        self, kind: str, fire: FireRecord | None = None, detail: str = "", ending: Ending | None = None
    ) -> None:
        self.events.emit(Event(kind, self.id, fire, detail, ending))

    def store_failed(
        self, error: StoreUnavailable, asked_at: float | None = None, loop: str | None = None
    ) -> None:
        """`asked_at`: when the request was sent, if it may have been before the store recovered. Then its failure
        belongs to the outage that is over. `loop`: whose step failed."""
        self._outage.failed(error, asked_at, loop)

    def store_served(self, loop: str) -> None:
        """A step of this loop succeeded."""
        self._outage.served(loop)

    @property
    def store_is_lost(self) -> bool:
        """The store did not answer when it was last asked. Read from other threads, too."""
        return self._outage.is_on

    def store_answered(self) -> None:
        if self._outage.answered():
            self.wake_all()
            self.settler.wake()
        self._outage.log_end()

    def loop_degraded(self, name: str, error: Exception) -> None:
        failure = failure_of(error)
        self.degraded_loops = {**self.degraded_loops, name: failure.kind}
        self.emit("loop.degraded", detail=f"{name} keeps failing: {failure.line}")

    def loop_recovered(self, name: str) -> None:
        self.degraded_loops = {each: kind for each, kind in self.degraded_loops.items() if each != name}
        self.emit("loop.recovered", detail=name)

    def backoff(self, failures: int) -> float:
        """1 s, doubling, up to 60 s; but a replica that holds claims, or may without knowing, must not let them
        expire by waiting, and none waits longer than two terms would last."""
        delay = min(60.0, 2 * self.settings.leader_ttl.total_seconds(), 2.0 ** min(failures - 1, 6))
        may_hold = self.runs or self.runs.ended_lately or self.worker.is_asking
        if may_hold or not self.settler.is_empty:
            delay = min(delay, self.settings.heartbeat.total_seconds() / 2)
        return delay * self.chance.uniform(0.75, 1.0)


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - MOST_LISTED} more" if len(keys) > MOST_LISTED else ""
    return ", ".join(keys[:MOST_LISTED]) + more


class Listener(Service):
    """Notifications from the store. They only save time: polling alone is correct."""

    async def step(self) -> float | None:
        # No pause between two waits: a notification that arrives between them is lost.
        while await self.replica.store.wait(self.replica.settings.horizon.total_seconds() / 2):
            self.replica.wake_all()
        return 0.0
