"""The operations of `rules/` as the async methods of a store: written once, with their types.

A store gives `_write` and `_read`, which run one operation over its rows, atomically, at one moment of its clock.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord
from fencepost.store.base import (
    Added,
    Beat,
    ChangeJob,
    Claimed,
    ClaimRequest,
    DueJobs,
    Evidence,
    FireQuery,
    JobPage,
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
from fencepost.store.local import Beacons, Hint
from fencepost.store.rows import Rows
from fencepost.store.rules import claims, fires, history, planning, presence
from fencepost.store.rules import jobs as job_rules
from fencepost.store.rules import updates as update_rules

P = ParamSpec("P")
T = TypeVar("T")

Step = Callable[Concatenate[Rows, Moment, P], T]
"""One of the rules' operations."""


class Mirror(Store):
    @abstractmethod
    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def _read(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a step that changes nothing."""
        return await self._write(step, *args, **kwargs)

    async def heartbeat(self, beat: Beat) -> Pulse:
        return await self._write(presence.heartbeat, beat)

    async def leave(self, replica: str) -> None:
        await self._write(presence.leave, replica)

    async def roster(self) -> Roster:
        return await self._read(presence.roster)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        return await self._write(presence.sweep, by, term, suspects)

    async def put_jobs(self, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
        return await self._write(job_rules.put_jobs, jobs)

    async def change_job(self, change: ChangeJob) -> JobRecord | None:
        return await self._write(job_rules.change_job, change)

    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        return await self._read(job_rules.jobs, ids, page)

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        return await self._read(planning.due_jobs, horizon, limit)

    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]:
        return await self._write(planning.plan_fires, plans)

    async def add_fire(self, fire: NewFire) -> Added:
        return await self._write(fires.add_fire, fire)

    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        return await self._write(claims.claim_fires, request)

    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        return await self._write(update_rules.update_claims, replica, updates)

    async def cancel_fire(self, key: str, by: str = "", dead_token: int | None = None) -> FireRecord | None:
        return await self._write(fires.cancel_fire, key, by, dead_token)

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        return await self._read(history.find_fires, query)

    async def history(self, job_id: str) -> tuple[JobEvent, ...]:
        return await self._read(history.history, job_id)

    async def history_since(self, since: datetime) -> tuple[JobEvent, ...]:
        return await self._read(history.history_since, since)

    async def prune(self, keep_seconds: float) -> int:
        return await self._write(history.prune, keep_seconds)


class ThreadedMirror(Mirror):
    """A store that blocks: its work runs whole on one thread of its own."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._thread_of = 0

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker(), lambda: work(*args, **kwargs))

    def _worker(self) -> ThreadPoolExecutor:
        if self._thread is None or self._thread_of != os.getpid():  # threads do not cross a fork
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="fencepost-store")
            self._thread_of = os.getpid()
        return self._thread

    def _end_thread(self) -> None:
        if self._thread is not None and self._thread_of == os.getpid():
            self._thread.shutdown(wait=False)
        self._thread = None


class LocalMirror(ThreadedMirror):
    """A store whose replicas share one machine: a beacon proves each one's death, a file carries the hints."""

    evidence_every = 0.2
    may_lose_writes = False

    def __init__(self, beacons: Beacons, hint: Hint) -> None:
        super().__init__()
        self._beacons = beacons
        self._hint = hint

    @property
    def descriptors(self) -> Sequence[int]:  # type: ignore[override]
        return self._beacons.descriptors

    async def heartbeat(self, beat: Beat) -> Pulse:
        if beat.joining:
            await self._in_thread(self._beacons.hold, beat.replica)
        return await super().heartbeat(beat)

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        self._beacons.release(replica)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        swept = await super().sweep(by, term, suspects)
        if swept is not None:
            self._beacons.forget(swept.expired)
        return swept

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return Evidence(dead=await self._in_thread(self._beacons.dead, replicas))

    async def wait(self, seconds: float) -> bool:
        return await self._hint.wait(seconds)
