"""Fencepost's own scheduler, as it takes part for a guarded one."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fencepost.apscheduler.mirror import Mirror
from fencepost.clock import Clock
from fencepost.errors import UsageError
from fencepost.execute import Host
from fencepost.host import ClosableHost
from fencepost.replica import Identity, Replica
from fencepost.scheduler import Scheduler
from fencepost.store.base import Store
from fencepost.tasks import Registry

PATIENCE = 2.0
"""Seconds to wait for what was wished for before something is asked, or the end."""


class Participant(Scheduler):
    """Its jobs come through the mirror, and its host is APScheduler."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._make_mirror: Callable[[Replica], Mirror] | None = None
        self._mirror: Mirror | None = None

    async def start(self) -> None:
        raise UsageError(
            "a guarded scheduler takes part when APScheduler's starts; to serve its API: asgi(replica=False)"
        )

    def take_part(
        self, host: ClosableHost, make_mirror: Callable[[Replica], Mirror]
    ) -> concurrent.futures.Future[None]:
        self._registry = Registry()
        self._make_mirror = make_mirror
        return self._take_part(host)

    def replica_on(
        self, store: Store, clock: Clock, host: Host, identity: Identity | None = None, inline: bool = False
    ) -> Replica:
        replica = super().replica_on(store, clock, host, identity, inline)
        assert self._make_mirror is not None
        self._mirror = self._make_mirror(replica)
        replica.take_on(self._mirror)
        return replica

    async def _ready_store(self) -> Store:
        """What was added to the scheduler before is known there, too."""
        store = await super()._ready_store()
        if self._mirror is not None:
            await self._mirror.granted(PATIENCE)
        return store

    def depart(self) -> concurrent.futures.Future[None]:
        """Grant what was wished for, then drain and leave. `end` comes after."""
        return self.control_thread().submit(self._depart())

    async def _depart(self) -> None:
        if self._mirror is not None:
            await self._mirror.granted(PATIENCE)
        if (drained := self.begin_drain()) is not None:
            await asyncio.wrap_future(drained)

    def end(self) -> None:
        self._end()
        self._mirror = None

    @property
    def is_running_jobs(self) -> bool:
        return self.replica is not None and bool(self.replica.runs)

    def wake_worker(self) -> None:
        if (replica := self.replica) is not None:
            self.control_thread().loop.call_soon_threadsafe(replica.worker.wake)

    def wake_mirror(self) -> None:
        if (mirror := self._mirror) is not None:
            self.control_thread().loop.call_soon_threadsafe(mirror.wake)

    def clock_now(self) -> datetime:
        assert self._replica is not None
        return self._replica.clock.wall()
