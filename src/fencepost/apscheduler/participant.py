"""Fencepost's own scheduler, as it takes part for a guarded one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable

from fencepost.apscheduler.mirror import JobMirror
from fencepost.clock import Clock, SystemClock
from fencepost.errors import FencepostError, StoreUnavailable, StoreUnusable, UsageError
from fencepost.replica.replica import Identity, Replica
from fencepost.runs.host import ClosableHost
from fencepost.runs.run import Host
from fencepost.runs.tasks import Registry
from fencepost.scheduler.lifecycle import Lifecycle
from fencepost.scheduler.scheduler import Scheduler
from fencepost.store.base import Store

log = logging.getLogger("fencepost")

LONGEST_WAIT = 5.0
"""Seconds between two tries to open the store at the start."""
PATIENCE = 2.0
"""Seconds to wait for what was wished for before something is asked, or the end."""


class GuardedLifecycle(Lifecycle):
    """Its host is APScheduler, and it may be started again while what it ran before still ends."""

    def __init__(self, scheduler: Scheduler, store: Store | None) -> None:
        super().__init__(scheduler, store)
        self._joined: concurrent.futures.Future[None] | None = None
        self._make_mirror: Callable[[Replica], JobMirror] | None = None
        self.mirror: JobMirror | None = None

    async def start(self) -> None:
        raise UsageError(
            "a guarded scheduler takes part when APScheduler's starts; to serve its API: asgi(replica=False)"
        )

    def join(
        self, host: ClosableHost, make_mirror: Callable[[Replica], JobMirror]
    ) -> concurrent.futures.Future[None]:
        self._make_mirror = make_mirror
        self._joined = self.take_part(host)
        return self._joined

    def replica_on(
        self, store: Store, clock: Clock, host: Host, identity: Identity | None = None, inline: bool = False
    ) -> Replica:
        current = self._store  # another one by now, if the scheduler was stopped and started at once
        replica = super().replica_on(store, clock, host, identity, inline)
        self._store = current
        assert self._make_mirror is not None
        self.mirror = self._make_mirror(replica)
        replica.take_on(self.mirror)
        return replica

    async def _bring_up(self, store: Store, host: Host) -> None:
        """An application must come up whatever the store says. Where a database, a role or a folder is missing it is
        tried again as well, like after an outage: when it is mended the application need not be restarted."""
        replica = self.replica_on(store, SystemClock(), host)
        reported, failures = "", 0
        while True:
            try:
                await store.open()
                break
            except FencepostError as error:
                if isinstance(error, StoreUnavailable) and not isinstance(error, StoreUnusable):
                    replica.store_failed(error)
                elif str(error) != reported:
                    reported = str(error)
                    log.error("no guarded job runs, and the store is tried again: %s", reported)
                failures += 1
                await asyncio.sleep(min(LONGEST_WAIT, replica.backoff(failures)))
        if reported:
            log.warning("the store answers now: guarded jobs run")
        replica.begin()
        await replica.ready()

    async def ready_store(self) -> Store:
        """What was added to the scheduler before is known there, too."""
        store = await super().ready_store()
        if self.mirror is not None:
            await self.mirror.granted(PATIENCE)
        return store

    def depart(self) -> concurrent.futures.Future[None]:
        """Grant what was wished for, then drain and leave, on the control thread. A new start meanwhile has another
        replica, on another store object: it need not wait for what still runs."""
        with self._lock:
            store, self._store = self._store, None
            host, self._host = self._host, None
        return self.control_thread().submit(self._depart(store, host, self._joined))

    async def _depart(
        self,
        store: Store | None,
        host: ClosableHost | None,
        joined: concurrent.futures.Future[None] | None,
    ) -> None:
        replica, mirror, drained = self._replica, self.mirror, self._draining
        if mirror is not None:
            await mirror.granted(PATIENCE)
        if self._replica is replica:
            self._replica = self.mirror = self._draining = None
        if joined is not None:
            joined.cancel()
        if drained is not None:
            await asyncio.wrap_future(drained)
        elif (
            replica is not None and replica.has_begun
        ):  # one that never reached its store has nothing to leave
            await replica.drain()
        if store is not None and store is not self._given_store:
            await store.close()
        if host is not None:
            host.close()

    def end(self) -> None:
        super().end()
        self.mirror = None


class Participant(Scheduler):
    """Its jobs come through the mirror, and its host is APScheduler."""

    lifecycle: GuardedLifecycle
    lifecycle_kind = GuardedLifecycle

    def take_part(
        self, host: ClosableHost, make_mirror: Callable[[Replica], JobMirror]
    ) -> concurrent.futures.Future[None]:
        self.declared.registry = Registry()
        return self.lifecycle.join(host, make_mirror)

    def depart(self) -> concurrent.futures.Future[None]:
        return self.lifecycle.depart()

    def end(self) -> None:
        self.lifecycle.end()

    @property
    def is_running_jobs(self) -> bool:
        replica = self.replica
        return replica is not None and bool(replica.runs)

    def wake_worker(self) -> None:
        if (replica := self.replica) is not None:
            self._soon(replica.worker.wake)

    def wake_mirror(self) -> None:
        if (mirror := self.lifecycle.mirror) is not None:
            self._soon(mirror.wake)

    def _soon(self, call: Callable[[], None]) -> None:
        self.lifecycle.control_thread().loop.call_soon_threadsafe(call)
