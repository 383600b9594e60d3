"""The store under test and control over its time, with the verbs the rules are written in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.clock import Moment, moment_of
from fencepost.model import (
    Era,
    FireRecord,
    Job,
    JobRecord,
    Lease,
    Overlap,
    ReplicaRecord,
    State,
    manual_key,
)
from fencepost.model.triggers import Trigger, every
from fencepost.replica.plan import plans_of
from fencepost.store.base import (
    Added,
    Campaign,
    ChangeJob,
    Claimed,
    ClaimRequest,
    FireQuery,
    HeartbeatReply,
    HeartbeatRequest,
    JobPut,
    NewFire,
    Plan,
    PutJob,
    Settle,
    Store,
    Suspect,
    Swept,
    Update,
    Watched,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
TTL = 30.0
HEARTBEAT = 10.0
WITNESSED = 1.5 * HEARTBEAT
"""Seconds of observation that make a second witness."""
HORIZON = 60.0


class HandClock:
    """A clock that stands still until a test advances it. Stepping back moves the wall clock only."""

    def __init__(self, start: datetime = NOON) -> None:
        self._wall = start
        self._steady = 1000.0

    def wall(self) -> datetime:
        return self._wall

    def steady(self) -> float:
        return self._steady

    async def advance(self, seconds: float) -> None:
        self._wall += timedelta(seconds=seconds)
        self._steady += seconds

    async def step_back(self, seconds: float) -> None:
        self._wall -= timedelta(seconds=seconds)


@dataclass
class Harness:
    """A store under test, control over its time, and one method for each thing that happens to it."""

    store: Store
    advance: Callable[[float], Awaitable[None]]
    step_back: Callable[[float], Awaitable[None]] | None = None
    """Steps the store's wall clock back; None: this store's clock cannot be stepped."""
    moment: Callable[[], Moment] | None = None
    """The store's time, where it can be read and stands still; the comparison needs it."""
    era: Era = field(default_factory=Era)
    """From the last reply to a heartbeat."""
    _heartbeats: dict[str, int] = field(default_factory=dict)
    _claims: dict[str, int] = field(default_factory=dict)

    @classmethod
    def with_clock(cls, store: Store, clock: HandClock) -> Harness:
        """For a store that reads the time from `clock`."""
        return cls(store, clock.advance, clock.step_back, lambda: moment_of(clock))

    async def now(self) -> datetime:
        return (await self.store.roster()).now

    async def elapse(self, seconds: float) -> None:
        """Time passes while every replica that takes part keeps its heartbeats."""
        while seconds > 0:
            await self.advance(min(seconds, HEARTBEAT))
            seconds -= HEARTBEAT
            for replica in (await self.store.roster()).replicas:
                await self.heartbeat(replica.id)

    # Replicas.

    async def join(self, name: str, *targets: str, **fields: Any) -> HeartbeatReply:
        return await self.heartbeat(name, joining=True, targets=targets or ("work",), **fields)

    async def heartbeat(self, name: str, number: int | None = None, **fields: Any) -> HeartbeatReply:
        if number is None:
            number = self._heartbeats[name] = self._heartbeats.get(name, 0) + 1
        reply = await self.store.heartbeat(HeartbeatRequest(name, number, TTL, HEARTBEAT, **fields))
        self.era = reply.leader.era
        return reply

    async def campaign(self, name: str, watched: Watched | None = None) -> Lease:
        """`name` asks for leadership; who leads now?"""
        return (await self.heartbeat(name, campaign=Campaign(TTL, watched))).leader

    async def elect(self, name: str, *targets: str) -> int:
        """`name` joins and takes the free lease; its term."""
        await self.join(name, *targets)
        lease = await self.campaign(name)
        assert lease.holder == name
        return lease.term

    async def presence(self, name: str) -> ReplicaRecord | None:
        return next((r for r in (await self.store.roster()).replicas if r.id == name), None)

    async def bury(self, leader: str, term: int, dead: str) -> Swept:
        """The leader has proof that `dead` died."""
        swept = await self.store.sweep(leader, term, [Suspect(dead, 0, 0.0, dead=True)])
        assert swept is not None
        return swept

    # Jobs.

    async def define(self, id: str, trigger: Trigger | None = None, **policies: Any) -> JobPut:
        return await self.put(job_of(id, trigger, **policies))

    async def put(self, job: Job, **how: Any) -> JobPut:
        (reply,) = await self.store.put_jobs([PutJob(job, **how)])
        return reply

    async def job(self, id: str) -> JobRecord:
        (record,) = await self.store.jobs([id])
        return record

    async def pause(self, id: str, until: datetime | None = None) -> None:
        assert await self.store.change_job(ChangeJob(id, "pause", until=until))

    async def resume(self, id: str) -> None:
        assert await self.store.change_job(ChangeJob(id, "resume"))

    async def remove(self, id: str) -> None:
        assert await self.store.change_job(ChangeJob(id, "remove"))

    async def plan(self, horizon: float = HORIZON) -> None:
        """What the leader's planner does, until there is nothing left to plan."""
        while plans := await self.plans(horizon):
            await self.store.plan_fires(plans)

    async def plans(self, horizon: float = HORIZON) -> list[Plan]:
        due = await self.store.due_jobs(horizon, 500)
        return [plan for job in due.jobs for plan in plans_of(job, due.now, horizon, due.gaps_of(job))]

    # Fires.

    async def trigger(self, id: str, name: str = "by-hand", **fields: Any) -> Added:
        return await self.store.add_fire(NewFire(manual_key(id, name), id, **fields))

    async def ask(
        self, name: str, room: int = 10, term: int | None = None, number: int | None = None, ahead: int = 0
    ) -> Claimed:
        """A claim attempt: the next one, or the one of this number."""
        if number is None:
            number = self._claims[name] = self._claims.get(name, 0) + 1
        known = self.era.incarnation, self.era.server
        return await self.store.claim_fires(ClaimRequest(name, number, room, term, *known, ahead))

    async def claims(self, name: str, room: int = 10, term: int | None = None) -> list[FireRecord]:
        return [claim.fire for claim in (await self.ask(name, room, term)).claims]

    async def claim(self, name: str) -> FireRecord:
        """The one fire that is there to be claimed."""
        (fire,) = await self.claims(name)
        return fire

    async def update(self, update: Update, replica: str = "a") -> bool:
        return (await self.store.update_claims(replica, [update])).accepted[0]

    async def settle(self, fire: FireRecord, state: State = State.SUCCEEDED) -> bool:
        return await self.update(Settle(fire.key, fire.token, state))

    async def fires(self, id: str, *states: State) -> list[FireRecord]:
        """Oldest first."""
        found = await self.store.find_fires(FireQuery(job_id=id, states=states, limit=10_000))
        return list(reversed(found))

    async def fire(self, key: str) -> FireRecord:
        (fire,) = await self.store.find_fires(FireQuery(key=key))
        return fire

    # Scenes.

    async def running(self, id: str = "job", name: str = "a", **policies: Any) -> FireRecord:
        """A minutely job of which replica `name` is running the first fire."""
        if await self.presence(name) is None:
            await self.join(name)
        await self.define(id, every(minutes=1), **policies)
        await self.fall_due()
        return await self.claim(name)

    async def fall_due(self, seconds: float = 60.0) -> None:
        """Plan, let time pass, plan what has come due."""
        await self.plan()
        await self.elapse(seconds)
        await self.plan()


def job_of(id: str, trigger: Trigger | None = None, **policies: Any) -> Job:
    """A job of the task `work`; `overlap` may be given as text."""
    overlap = Overlap.parse(policies.pop("overlap", "skip"))
    return Job(id, policies.pop("target", "work"), trigger, overlap=overlap, **policies)


def due_times(fires: Sequence[FireRecord]) -> list[datetime]:
    return [fire.due_at for fire in fires]


def steps(first: datetime, seconds: float, count: int) -> list[datetime]:
    """first, first + seconds, …"""
    return [first + n * timedelta(seconds=seconds) for n in range(count)]
