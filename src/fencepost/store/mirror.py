"""The operations of `rules/` as the async methods of a store: written once, with their types.

A store gives `_write` and `_read`, which run one operation over its rows, atomically, at one moment of its clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Concatenate, ParamSpec, TypeVar

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord, Json
from fencepost.model.watching import NotificationRule
from fencepost.store.base import (
    Added,
    ChangeJob,
    Claimed,
    ClaimRequest,
    DueJobs,
    Evidence,
    FireQuery,
    HeartbeatReply,
    HeartbeatRequest,
    JobPage,
    JobPut,
    NewFire,
    Notices,
    Plan,
    PutJob,
    RemoteRuns,
    Roster,
    Store,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.outbox import Checked, NoticeChange, Outbox, OutboxQuery
from fencepost.store.rows import Rows
from fencepost.store.rules import claims, fires, history, notify_rules, planning, presence, remote, watching
from fencepost.store.rules import jobs as job_rules
from fencepost.store.rules import outbox as outbox_rules
from fencepost.store.rules import updates as update_rules

P = ParamSpec("P")
T = TypeVar("T")

Step = Callable[Concatenate[Rows, Moment, P], T]
"""One of the rules' operations."""


class ProofOfLife(ABC):
    """What a live replica holds, and loses however it ends: where it is missing, the replica is dead."""

    @abstractmethod
    async def begin(self, replica: str) -> None:
        """Before it joins."""

    @abstractmethod
    def end(self, replica: str) -> None:
        """It has left."""

    @abstractmethod
    def forget(self, replicas: Iterable[str]) -> None:
        """These were declared dead."""

    @abstractmethod
    async def evidence(self, replicas: Sequence[str]) -> Evidence: ...


class Mirror(Store):
    """A store whose operations are the rules, over its rows."""

    _proof: ProofOfLife | None = None

    @abstractmethod
    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def _read(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a step that changes nothing."""
        return await self._write(step, *args, **kwargs)

    @cached_property
    def notices(self) -> MirroredNotices:
        return MirroredNotices(self)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        if self._proof is not None and request.joining:
            await self._proof.begin(request.replica)
        return await self._write(presence.heartbeat, request)

    async def leave(self, replica: str) -> None:
        await self._write(presence.leave, replica)
        if self._proof is not None:
            self._proof.end(replica)

    async def roster(self) -> Roster:
        return await self._read(presence.roster)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        swept = await self._write(presence.sweep, by, term, suspects)
        if self._proof is not None and swept is not None:
            self._proof.forget(swept.expired)
        return swept

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return Evidence() if self._proof is None else await self._proof.evidence(replicas)

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

    async def remote_runs(self, replica: str, engine: str) -> RemoteRuns:
        return await self._read(remote.remote_runs, replica, engine)

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        return await self._read(history.find_fires, query)

    async def history(self, job_id: str) -> tuple[JobEvent, ...]:
        return await self._read(history.history, job_id)

    async def history_since(self, since: datetime) -> tuple[JobEvent, ...]:
        return await self._read(history.history_since, since)

    async def prune(self, keep_seconds: float) -> int:
        return await self._write(history.prune, keep_seconds)


class MirroredNotices(Notices):
    def __init__(self, store: Mirror) -> None:
        self._store = store

    async def put_rules(self, channel: str, rules: Sequence[NotificationRule]) -> bool:
        return await self._store._write(notify_rules.put_rules, channel, rules)

    async def change_rule(self, name: str, rule: NotificationRule | None, by: str) -> bool:
        return await self._store._write(notify_rules.change_rule, name, rule, by)

    async def watch_jobs(
        self, by: str, term: int, page: JobPage | None = None, ids: Sequence[str] = ()
    ) -> Checked | None:
        return await self._store._write(watching.watch_jobs, by, term, page, ids)

    async def outbox(self, query: OutboxQuery) -> Outbox:
        return await self._store._read(outbox_rules.outbox, query)

    async def update_outbox(
        self, changes: Sequence[NoticeChange], report: Mapping[str, Json] | None = None
    ) -> tuple[bool, ...]:
        return await self._store._write(outbox_rules.update_outbox, changes, report)
