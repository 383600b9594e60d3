"""The store itself: the fast path first, the general one for what is left; the server's restarts and losses."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate

from fencepost.clock import Clock, Moment
from fencepost.errors import NothingStored
from fencepost.model import JobRecord, State, checked_id
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
    Seen,
    Settle,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.codec import micros
from fencepost.store.formats import Contents
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.preflight import Preflight
from fencepost.store.redis import scripts
from fencepost.store.redis.address import namespaces, prefix_of
from fencepost.store.redis.beacons import RedisBeacons
from fencepost.store.redis.fast import Now, RedisFastPath
from fencepost.store.redis.general import Forgotten, GeneralPath
from fencepost.store.redis.keys import SCHEMA, Keys, format_found, split
from fencepost.store.redis.link import TIMEOUT, Link
from fencepost.store.redis.preflight import contents, preflight
from fencepost.store.redis.rest import (
    Decided,
    RedisWork,
    claim_left,
    server_restarted,
    store_emptied,
    update_left,
)
from fencepost.store.redis.server import RedisServerInfo
from fencepost.store.redis.step import NOTHING, Needs
from fencepost.store.redis.subscription import RedisSubscription
from fencepost.store.rules.claims import Closed
from fencepost.store.rules.notify_rules import RULES
from fencepost.store.texts import KnownJobs
from fencepost.store.waiting import ASSURE_EVERY

log = logging.getLogger("fencepost")

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
        self._clock = clock
        self._first_incarnation = incarnation
        targets: dict[str, tuple[str, ...]] = {}
        self._fast = RedisFastPath(self._link, self._keys, targets, self.unreadable)
        self._general_path = GeneralPath(self._link, self._keys, targets, self._now, self.unreadable)
        self._subscription = RedisSubscription(self._link, self._keys)
        self._beacons = RedisBeacons(self._link, self._keys)
        self._greeting: asyncio.Task[None] | None = None
        self._greeted = 0
        """The generation of the link on which the server has been asked who it is."""
        self._logged_promise = ""
        self._history = ""
        self._seen = Seen()
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
        await self._ready()
        if request.joining:
            checked_id(request.replica, "replica")
            # A reply that takes longer than this is too late for a replica that relies on the TTL.
            self._link.timeout = min(TIMEOUT, max(SHORTEST_TIMEOUT, request.ttl / 5))
            await self._subscription.announce(request.replica)
        reply = await self._fast.heartbeat(self._now(), request, self._history) if self.fast else None
        self._count("beat", reply is not None, reply is None)
        reply = reply or await super().heartbeat(request)
        if reply.known:
            await self._beacons.note(request.replica, request.joining)
        self._leader = reply.leader.holder
        self._remember(reply)
        return reply

    def _remember(self, reply: HeartbeatReply) -> None:
        seen, lease = self._seen, reply.leader
        incarnation, term = max(seen.incarnation, lease.era.incarnation), max(seen.term, lease.term)
        self._seen = Seen(incarnation, term, latest=max(reply.now, seen.latest or reply.now))

    async def roster(self) -> Roster:
        roster = await super().roster()
        self._leader = roster.leader.holder
        return roster

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        await self._subscription.retract(replica)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        await self._ready()
        swept = await self._fast.sweep(self._now(), by, term, suspects) if self.fast else None
        self._count("sweep", swept is not None, swept is None)
        return swept or await super().sweep(by, term, suspects)

    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        await self._ready()
        return await self._fast.jobs(ids, page) if self.fast else await super().jobs(ids, page)

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        await self._ready()
        if not self.fast:
            return await super().due_jobs(horizon, limit)
        return await self._fast.due_jobs(self._now(), horizon, limit)

    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]:
        await self._ready()
        left = await self._fast.plan(self._now(), plans) if self.fast else list(range(len(plans)))
        self._count("plan", len(plans) - len(left), len(left))
        planned = [True] * len(plans)
        if left:
            rest = await super().plan_fires([plans[number] for number in left])
            for number, done in zip(left, rest, strict=True):
                planned[number] = done
        return tuple(planned)

    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        await self._ready()
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
        await self._ready()
        await self._general_path.give_way()
        if not self.fast:
            return await super().update_claims(replica, updates)
        done = await self._fast.settle(self._now(), replica, updates, await self._has_rules(updates))
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

    async def _has_rules(self, updates: Sequence[Update]) -> bool:
        """Whether a rule of notifications may ask for one of these failures: they are for the general path then."""
        if not any(isinstance(each, Settle) and each.state is State.FAILED for each in updates):
            return False
        return bool(await self._link.ask("HEXISTS", self._keys.entries, RULES))

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
        await self._ready()
        try:
            return await self._general_path.take(
                self._history, step, args, kwargs, writes=writes, needs=needs
            )
        except Forgotten:
            self._greeted = 0
            await self._ready()
            return await self._general_path.take(
                self._history, step, args, kwargs, writes=writes, needs=needs
            )

    def _now(self) -> Now:
        if self._clock is None:
            return "", ""
        return str(micros(self._clock.wall())), f"{self._clock.steady():.6f}"

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
        await self._ready()
        return Evidence(gone=await self._beacons.gone([self._leader]))

    @property
    def evidence_every(self) -> float:  # type: ignore[override]
        if self._beacons.doubts(self._leader):
            return DOUBTFUL_EVERY
        return self._subscription.assured(self._leader) or EVIDENCE_EVERY

    async def assure(self, replica: str) -> None:
        await self._ready()
        await self._link.ask("PUBLISH", self._keys.lead, replica)

    # --- the server ---------------------------------------------------------------------------------------------

    async def preflight(self, name: str) -> Preflight:
        return await preflight(self._url, self._namespace)

    async def contents(self) -> Contents:
        return await contents(self._url, self._namespace)

    async def open(self) -> None:
        await self._ready()

    async def close(self) -> None:
        await self._subscription.close()
        await self._link.close()
        self._general_path.close()

    async def _ready(self) -> None:
        """Connected, to a server that has said who it is. A caller that comes meanwhile waits for the same."""
        if self._greeted == self._link.generation and self._link.is_open:
            return
        loop = asyncio.get_running_loop()
        greeting = self._greeting
        if greeting is None or greeting.done() or greeting.get_loop() is not loop:
            greeting = self._greeting = loop.create_task(self._greet(), name="fencepost-greeting")
            greeting.add_done_callback(_heard)
        await asyncio.shield(greeting)

    async def _greet(self) -> None:
        await self._link.open()
        await self._subscription.follow(self._link.primary)
        try:
            await self._learn_server()
        except BaseException:
            await self._link.close()
            raise
        self._greeted = self._link.generation

    async def _learn_server(self) -> None:
        server = await RedisServerInfo.ask(self._link)
        server.refuse_what_cannot_work(self._link.name, was_primary=bool(self._history))
        first = "" if self._first_incarnation is None else self._first_incarnation
        fresh = secrets.token_hex(8)
        args = (*self._now(), fresh, first, SCHEMA, server.run, self._history, int(self.creates))
        history, schema, run, gone = await self._link.ask("EVALSHA", scripts.INIT, self._keys.prefix, *args)
        if history is None:
            raise NothingStored(self._link.name, self._namespace, await namespaces(self._link, self._url))
        found = format_found(int(schema), self._link.name)
        found.check(self._link.name, converts=self.creates)
        if found.steps:
            await self._link.ask("HSET", self._keys.meta, "schema", SCHEMA)
        if self._history and self._history != history and gone is None:
            log.error("%s has lost its data: begun anew, see docs/stores.md", self._link.name)
            await self._general_path.take(history, store_emptied, (self._history, self._seen), {})
        self._history = history
        self._beacons.server_run = server.run
        if run != server.run:
            await self._general_path.take(
                history, server_restarted, (run, server.run, server.keeps_writes), {}
            )
        self._tell(server)

    def _tell(self, server: RedisServerInfo) -> None:
        """Once, and again if it has changed."""
        promise = server.promise()
        if promise != self._logged_promise:
            self._logged_promise = promise
            log.info("%s: %s", self._link.name, promise)


def _heard(greeting: asyncio.Task[None]) -> None:
    """All who asked may have given up."""
    if not greeting.cancelled():
        greeting.exception()
