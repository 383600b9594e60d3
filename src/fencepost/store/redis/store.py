"""The store itself: the fast path first, the general one for what is left; the server's restarts and losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate

from fencepost.clock import Clock, Moment
from fencepost.errors import NothingStored
from fencepost.model import JobRecord, checked_id
from fencepost.store import mirror
from fencepost.store.base import (
    Claimed,
    ClaimRequest,
    DueJobs,
    Evidence,
    HeartbeatReply,
    HeartbeatRequest,
    JobPage,
    Plan,
    Roster,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.formats import Contents
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.preflight import Preflight
from fencepost.store.redis.address import namespaces, prefix_of
from fencepost.store.redis.beacons import RedisBeacons
from fencepost.store.redis.fast import RedisFastPath, now_by
from fencepost.store.redis.general import Forgotten, GeneralPath
from fencepost.store.redis.greeting import RedisGreeting, RedisHistory
from fencepost.store.redis.keys import Keys, split
from fencepost.store.redis.link import TIMEOUT, Link
from fencepost.store.redis.preflight import contents, preflight
from fencepost.store.redis.rest import (
    Decided,
    RedisWork,
    claim_left,
    update_left,
)
from fencepost.store.redis.server import RedisServerInfo
from fencepost.store.redis.step import NOTHING, Needs
from fencepost.store.redis.subscription import RedisSubscription
from fencepost.store.rules.claims import Closed
from fencepost.store.texts import KnownJobs
from fencepost.store.waiting import ASSURE_EVERY

SHORTEST_TIMEOUT = 1.0
EVIDENCE_EVERY = 0.3
"""Seconds between two questions about a leader that is silent."""
DOUBTFUL_EVERY = 0.1
"""The same when it was missing the last time."""


class RedisStore(Mirror):
    """Replicas on any machines share one server, Redis 6.2 to Valkey 9. Its clock judges everything."""

    assure_every = ASSURE_EVERY
    proves_death = False
    may_lose_writes = True
    fast = True
    """Whether the fast path is tried."""

    def __init__(
        self,
        url: str,
        namespace: str = "default",
        *,
        clock: Clock | None = None,
        incarnation: int | None = None,
    ) -> None:
        """`clock`: instead of the server's own, for tests. `incarnation`: the first one of a store that is new."""
        self._url, self._namespace = url, namespace
        self._keys = Keys(prefix_of(url, namespace))
        self._link = Link(url, self._keys.prefix)
        self._clock, self._now = clock, now_by(clock)
        targets: dict[str, tuple[str, ...]] = {}
        self._fast = RedisFastPath(self._link, self._keys, targets, self.unreadable)
        self._general_path = GeneralPath(self._link, self._keys, targets, self._now, self.unreadable)
        self._subscription = RedisSubscription(self._link, self._keys)
        self._beacons = RedisBeacons(self._link, self._keys)
        self._history = RedisHistory(self._link, self._keys, self._general_path, incarnation)
        self._greeting = RedisGreeting(self._link, self._meet)
        self._leader: str | None = None
        self.paths: Counter[str] = Counter()
        """How often which path was taken."""

    def for_reading(self) -> RedisStore:
        store = RedisStore(self._url, self._namespace, clock=self._clock)
        store._fast.known_jobs = KnownJobs()
        return store

    # --- the fast path first, the general one for what is left -------------------------------------------------

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        await self._link.confirm()
        await self._greeting.ready()
        if request.joining:
            checked_id(request.replica, "replica")
            # A reply that takes longer than this is too late for a replica that relies on the TTL.
            self._link.timeout = min(TIMEOUT, max(SHORTEST_TIMEOUT, request.ttl / 5))
            await self._subscription.announce(request.replica)
        reply = await self._fast.heartbeat(self._now(), request, self._history.id) if self.fast else None
        self._count("beat", reply is not None, reply is None)
        reply = reply or await super().heartbeat(request)
        if reply.known:
            await self._beacons.note(request.replica, request.joining)
        self._leader = reply.leader.holder
        self._history.remember(reply)
        return reply

    async def roster(self) -> Roster:
        roster = await super().roster()
        self._leader = roster.leader.holder
        return roster

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        await self._subscription.retract(replica)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        await self._greeting.ready()
        swept = await self._fast.sweep(self._now(), by, term, suspects) if self.fast else None
        self._count("sweep", swept is not None, swept is None)
        return swept or await super().sweep(by, term, suspects)

    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        await self._greeting.ready()
        return await self._fast.jobs(ids, page) if self.fast else await super().jobs(ids, page)

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        await self._greeting.ready()
        if not self.fast:
            return await super().due_jobs(horizon, limit)
        return await self._fast.due_jobs(self._now(), horizon, limit)

    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]:
        await self._greeting.ready()
        left = await self._fast.plan(self._now(), plans) if self.fast else list(range(len(plans)))
        self._count("plan", len(plans) - len(left), len(left))
        planned = [True] * len(plans)
        if left:
            rest = await super().plan_fires([plans[number] for number in left])
            for number, done in zip(left, rest, strict=True):
                planned[number] = done
        return tuple(planned)

    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        await self._greeting.ready()
        await self._general_path.give_way()
        done = await self._fast.claim(self._now(), request) if self.fast else None
        if done is None:
            self._count("claim", 0, 1)
            return await super().claim_fires(request)
        self._count("claim", len(done.made), len(done.left))
        if done.returned:
            await self._general(NOTHING, update_left, request.replica, done.returned, True)
        if not done.left:
            claims, rows = tuple(done.made.values()), tuple(done.closed.values())
            now = {fire.key: fire.count for fire in rows}
            return Claimed(claims, rows, done.wake_in, done.steps, now, done.ahead)
        decided = {place: Decided([claim], Closed()) for place, claim in done.made.items()}
        for place, fire in done.closed.items():
            decided[place].closed.add(fire, fire.count)
        room = request.room - len(done.made)
        term = "none" if request.term is None else request.term
        most = len(done.left) + len(self.unreadable.aside) + max(1, request.ahead)
        needs = Needs(list(done.left.values()), request.replica, term, most)
        rest, reply = await self._general(needs, claim_left, request, done.left, room)
        in_order = [each for _, each in sorted({**decided, **rest}.items(), key=lambda item: item[0])]
        return replace(
            reply,
            claims=tuple(claim for each in in_order for claim in each.claims),
            closed=tuple(fire for each in in_order for fire in each.closed.rows),
            closed_now={key: number for each in in_order for key, number in each.closed.now.items()},
        )

    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        await self._greeting.ready()
        await self._general_path.give_way()
        if not self.fast:
            return await super().update_claims(replica, updates)
        done = await self._fast.settle(self._now(), replica, updates)
        settled = sum(done.accepted)
        self._count("update", settled, len(done.left))
        if not done.left:
            return Updated(tuple(done.accepted), done.wake_in, done.steps, done.next_at)
        left = [updates[number] for number in done.left]
        jobs = list(dict.fromkeys(split(update.key)[0] for update in left))
        needs = Needs(jobs, replica, most=len(jobs) + len(self.unreadable.aside) + 1)
        rest = await self._general(needs, update_left, replica, left, settled > 0)
        for number, accepted in zip(done.left, rest.accepted, strict=True):
            done.accepted[number] = accepted
        return replace(rest, accepted=tuple(done.accepted))

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._general(NOTHING, step, *args, **kwargs)

    async def _general(
        self,
        needs: Needs,
        step: Callable[Concatenate[RedisWork, Moment, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        reply: T = await self._take_general(step, args, kwargs, writes=True, needs=needs)
        return reply

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._take_general(step, args, kwargs, writes=False)
        return reply

    async def _take_general(
        self, step: Callable[..., Any], args: Any, kwargs: Any, writes: bool, needs: Needs = NOTHING
    ) -> Any:
        await self._greeting.ready()
        try:
            return await self._general_path.take(
                self._history.id, step, args, kwargs, writes=writes, needs=needs
            )
        except Forgotten:
            await self._greeting.again()
            return await self._general_path.take(
                self._history.id, step, args, kwargs, writes=writes, needs=needs
            )

    def _count(self, what: str, fast: int, general: int) -> None:
        self.paths[f"fast {what}"] += fast
        self.paths[f"general {what}"] += general

    # --- hints and evidence -------------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> bool:
        return await self._subscription.wait(seconds)

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        if self._leader is None or self._leader not in replicas:
            return Evidence()
        if self._subscription.assured(self._leader):
            self._beacons.heard_of(self._leader)
            return Evidence()
        await self._greeting.ready()
        return Evidence(gone=await self._beacons.gone([self._leader]))

    @property
    def evidence_every(self) -> float:  # type: ignore[override]
        if self._beacons.doubts(self._leader):
            return DOUBTFUL_EVERY
        return self._subscription.assured(self._leader) or EVIDENCE_EVERY

    async def assure(self, replica: str) -> None:
        await self._greeting.ready()
        await self._link.ask("PUBLISH", self._keys.lead, replica)

    # --- the server ---------------------------------------------------------------------------------------------

    async def preflight(self, name: str) -> Preflight:
        return await preflight(self._url, self._namespace)

    async def contents(self) -> Contents:
        return await contents(self._url, self._namespace)

    async def open(self) -> None:
        await self._greeting.ready()

    async def close(self) -> None:
        await self._subscription.close()
        await self._link.close()
        self._general_path.close()

    async def _meet(self) -> None:
        await self._subscription.follow(self._link.primary)
        try:
            server = await RedisServerInfo.ask(self._link)
            if not await self._history.learn(server, self._now(), self.creates):
                raise NothingStored(self._link.name, self._namespace, await namespaces(self._link, self._url))
        except BaseException:
            await self._link.close()
            raise
        self._beacons.server_run = server.run
