"""The memory store: the reference model behind a lock. One process, gone with it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import Fork
from fencepost.model import FireRecord, JobEvent, JobRecord
from fencepost.store.base import (
    Added,
    Beat,
    ChangeJob,
    Claimed,
    ClaimRequest,
    DueJobs,
    FireQuery,
    JobPut,
    NewFire,
    Plan,
    Pulse,
    PutJob,
    Roster,
    Store,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.state import StoreState

T = TypeVar("T")


class MemoryStore(Store):
    """Not shared with other processes. Replicas in one process may share the object."""

    shared = False

    def __init__(self, clock: Clock | None = None) -> None:
        self.state = StoreState()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def open(self) -> None:
        self._check_fork()

    async def close(self) -> None:
        return None

    async def heartbeat(self, beat: Beat) -> Pulse:
        return self._do(self.state.heartbeat, beat)

    async def leave(self, replica: str) -> None:
        self._do(self.state.leave, replica)

    async def roster(self) -> Roster:
        return self._do(self.state.roster)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        return self._do(self.state.sweep, by, term, suspects)

    async def put_jobs(self, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
        return self._do(self.state.put_jobs, jobs)

    async def change_job(self, change: ChangeJob) -> JobRecord | None:
        return self._do(self.state.change_job, change)

    async def jobs(self, ids: Sequence[str] | None = None) -> tuple[JobRecord, ...]:
        return self._do(self.state.jobs, ids)

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        return self._do(self.state.due_jobs, horizon, limit)

    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]:
        return self._do(self.state.plan_fires, plans)

    async def add_fire(self, fire: NewFire) -> Added:
        return self._do(self.state.add_fire, fire)

    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        return self._do(self.state.claim_fires, request)

    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        return self._do(self.state.update_claims, replica, updates)

    async def cancel_fire(self, key: str, by: str = "") -> FireRecord | None:
        return self._do(self.state.cancel_fire, key, by)

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        return self._do(self.state.find_fires, query)

    async def history(self, job_id: str) -> tuple[JobEvent, ...]:
        return self._do(self.state.history, job_id)

    async def prune(self, keep_seconds: float) -> int:
        return self._do(self.state.prune, keep_seconds)

    async def wait(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        hint: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._waiting.append((loop, hint))
        timer = loop.call_later(seconds, _resolve, hint)
        try:
            await hint
        finally:
            timer.cancel()
            with self._lock:
                hinted = (loop, hint) not in self._waiting
                self._waiting = [entry for entry in self._waiting if entry[1] is not hint]
        return hinted

    def _do(self, step: Callable[..., T], *args: Any) -> T:
        self._check_fork()
        with self._lock:
            reply = step(moment_of(self._clock), *args)
            waiting = self._waiting if self.state.hinted else []
            if waiting:
                self._waiting = []
            self.state.hinted = False
        for loop, hint in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, hint)
        return reply

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            raise Fork(
                "this memory store was made before a fork and is no longer shared with anybody; "
                "use sqlite:///… for several processes, or start the scheduler after forking"
            )


def _resolve(hint: asyncio.Future[None]) -> None:
    if not hint.done():
        hint.set_result(None)
