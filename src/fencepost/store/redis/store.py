"""The store itself: the plain path first, the careful one for what is left; the server's restarts and losses."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate

from fencepost.clock import Clock, Moment
from fencepost.errors import ConfigurationError, NothingStored
from fencepost.model import JobRecord, checked_id
from fencepost.settings import redacted
from fencepost.store import mirror
from fencepost.store.base import (
    Beat,
    Claimed,
    ClaimRequest,
    DueJobs,
    Evidence,
    JobPage,
    Plan,
    Pulse,
    Roster,
    Seen,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.codec import micros
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.preflight import Preflight
from fencepost.store.redis import scripts
from fencepost.store.redis.address import client_url, namespaces, prefix_of
from fencepost.store.redis.beacons import Beacons
from fencepost.store.redis.careful import CarefulPath, Forgotten
from fencepost.store.redis.channel import Channel
from fencepost.store.redis.keys import Keys, split
from fencepost.store.redis.link import TIMEOUT, Link
from fencepost.store.redis.plain import Now, PlainPath
from fencepost.store.redis.preflight import preflight
from fencepost.store.redis.rest import (
    Decided,
    RedisWork,
    claim_left,
    server_restarted,
    store_emptied,
    update_left,
)
from fencepost.store.redis.server import Server
from fencepost.store.redis.step import NOTHING, Needs
from fencepost.store.rules.claims import Closed
from fencepost.store.texts import KnownJobs

log = logging.getLogger("fencepost")

SCHEMA = 1
SHORTEST_TIMEOUT = 1.0


class RedisStore(Mirror):
    """Replicas on any machines share one server, Redis 6.2 to Valkey 9. Its clock judges everything."""

    evidence_every = 0.3
    may_lose_writes = True
    plainly = True
    """Whether the plain path is tried."""

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
        self._link = Link(client_url(url), redacted(url))
        self._clock = clock
        self._first_incarnation = incarnation
        targets: dict[str, tuple[str, ...]] = {}
        self._plain = PlainPath(self._link, self._keys, targets, self.unreadable)
        self._careful = CarefulPath(self._link, self._keys, targets, self._now, self.unreadable)
        self._channel = Channel(self._link, self._keys)
        self._beacons = Beacons(self._link, self._keys)
        self._greeting: asyncio.Task[None] | None = None
        self._greeted = 0
        """The generation of the link on which the server has been asked who it is."""
        self._told = ""
        self._history = ""
        self._seen = Seen()
        self._leader: str | None = None
        self.paths: Counter[str] = Counter()
        """How often which path was taken."""

    def for_reading(self) -> RedisStore:
        store = RedisStore(self._url, self._namespace, clock=self._clock)
        store._plain.known_jobs = KnownJobs()
        return store

    # --- the plain path first, the careful one for what is left -------------------------------------------------

    async def heartbeat(self, beat: Beat) -> Pulse:
        await self._ready()
        if beat.joining:
            checked_id(beat.replica, "replica")
            # A reply that takes longer than this is too late for whoever relies on the TTL.
            self._link.timeout = min(TIMEOUT, max(SHORTEST_TIMEOUT, beat.ttl / 5))
            await self._channel.announce(beat.replica)
        pulse = await self._plain.beat(self._now(), beat, self._history) if self.plainly else None
        self._count("beat", pulse is not None, pulse is None)
        pulse = pulse or await super().heartbeat(beat)
        self._leader = pulse.leader.holder
        self._remember(pulse)
        return pulse

    def _remember(self, pulse: Pulse) -> None:
        seen, lease = self._seen, pulse.leader
        incarnation, term = max(seen.incarnation, lease.era.incarnation), max(seen.term, lease.term)
        self._seen = Seen(incarnation, term, latest=max(pulse.now, seen.latest or pulse.now))

    async def roster(self) -> Roster:
        roster = await super().roster()
        self._leader = roster.leader.holder
        return roster

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        await self._channel.retract(replica)

    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        await self._ready()
        swept = await self._plain.sweep(self._now(), by, term, suspects) if self.plainly else None
        self._count("sweep", swept is not None, swept is None)
        return swept or await super().sweep(by, term, suspects)

    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        await self._ready()
        return await self._plain.jobs(ids, page) if self.plainly else await super().jobs(ids, page)

    async def due_jobs(self, horizon: float, limit: int) -> DueJobs:
        await self._ready()
        if not self.plainly:
            return await super().due_jobs(horizon, limit)
        return await self._plain.due_jobs(self._now(), horizon, limit)

    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]:
        await self._ready()
        left = await self._plain.plan(self._now(), plans) if self.plainly else list(range(len(plans)))
        self._count("plan", len(plans) - len(left), len(left))
        planned = [True] * len(plans)
        if left:
            careful = await super().plan_fires([plans[number] for number in left])
            for number, done in zip(left, careful, strict=True):
                planned[number] = done
        return tuple(planned)

    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        await self._ready()
        plain = await self._plain.claim(self._now(), request) if self.plainly else None
        if plain is None:
            self._count("claim", 0, 1)
            return await super().claim_fires(request)
        self._count("claim", len(plain.made), len(plain.left))
        if plain.returned:
            await self._general(NOTHING, update_left, request.replica, plain.returned, True)
        if not plain.left:
            claims, rows = tuple(plain.made.values()), tuple(plain.closed.values())
            now = {fire.key: fire.count for fire in rows}
            return Claimed(claims, rows, plain.wake_in, plain.steps, now)
        decided = {place: Decided([claim], Closed()) for place, claim in plain.made.items()}
        for place, fire in plain.closed.items():
            decided[place].closed.add(fire, fire.count)
        room = request.room - len(plain.made)
        term = "none" if request.term is None else request.term
        most = len(plain.left) + len(self.unreadable.aside) + 1
        needs = Needs(list(plain.left.values()), request.replica, term, most)
        rest, reply = await self._general(needs, claim_left, request, plain.left, room)
        in_order = [each for _, each in sorted({**decided, **rest}.items(), key=lambda item: item[0])]
        return replace(
            reply,
            claims=tuple(claim for each in in_order for claim in each.claims),
            closed=tuple(fire for each in in_order for fire in each.closed.rows),
            closed_now={key: number for each in in_order for key, number in each.closed.now.items()},
        )

    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        await self._ready()
        if not self.plainly:
            return await super().update_claims(replica, updates)
        plain = await self._plain.settle(self._now(), replica, updates)
        settled = sum(plain.accepted)
        self._count("update", settled, len(plain.left))
        if not plain.left:
            return Updated(tuple(plain.accepted), plain.due, plain.steps)
        left = [updates[number] for number in plain.left]
        jobs = list(dict.fromkeys(split(update.key)[0] for update in left))
        needs = Needs(jobs, replica, most=len(jobs) + len(self.unreadable.aside) + 1)
        careful = await self._general(needs, update_left, replica, left, settled > 0)
        for number, accepted in zip(plain.left, careful.accepted, strict=True):
            plain.accepted[number] = accepted
        return replace(careful, accepted=tuple(plain.accepted))

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._general(NOTHING, step, *args, **kwargs)

    async def _general(
        self,
        needs: Needs,
        step: Callable[Concatenate[RedisWork, Moment, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        reply: T = await self._carefully(step, args, kwargs, writes=True, needs=needs)
        return reply

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._carefully(step, args, kwargs, writes=False)
        return reply

    async def _carefully(
        self, step: Callable[..., Any], args: Any, kwargs: Any, writes: bool, needs: Needs = NOTHING
    ) -> Any:
        await self._ready()
        try:
            return await self._careful.take(self._history, step, args, kwargs, writes=writes, needs=needs)
        except Forgotten:
            self._greeted = 0
            await self._ready()
            return await self._careful.take(self._history, step, args, kwargs, writes=writes, needs=needs)

    def _now(self) -> Now:
        if self._clock is None:
            return "", ""
        return str(micros(self._clock.wall())), f"{self._clock.steady():.6f}"

    def _count(self, what: str, plain: int, careful: int) -> None:
        self.paths[f"plain {what}"] += plain
        self.paths[f"careful {what}"] += careful

    # --- hints and evidence -------------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> bool:
        return await self._channel.wait(seconds)

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        await self._ready()
        return Evidence(gone=await self._beacons.gone([each for each in replicas if each == self._leader]))

    # --- the server ---------------------------------------------------------------------------------------------

    async def preflight(self, name: str) -> Preflight:
        return await preflight(self._url, self._namespace)

    async def open(self) -> None:
        await self._ready()

    async def close(self) -> None:
        await self._channel.close()
        await self._link.close()
        self._careful.close()

    async def _ready(self) -> None:
        """Connected, to a server that has said who it is. Whoever comes meanwhile waits for the same."""
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
        try:
            await self._learn_server()
        except BaseException:
            await self._link.close()
            raise
        self._greeted = self._link.generation

    async def _learn_server(self) -> None:
        server = await Server.ask(self._link)
        server.refuse_what_cannot_work(self._link.name)
        first = "" if self._first_incarnation is None else self._first_incarnation
        fresh = secrets.token_hex(8)
        args = (*self._now(), fresh, first, SCHEMA, server.run, self._history, int(self.creates))
        history, schema, run, gone = await self._link.ask("EVALSHA", scripts.INIT, self._keys.prefix, *args)
        if history is None:
            raise NothingStored(self._link.name, self._namespace, await namespaces(self._link, self._url))
        if int(schema) > SCHEMA:
            raise ConfigurationError(
                f"{self._link.name} has schema {schema}, newer than the {SCHEMA} this version of Fencepost knows; "
                "upgrade Fencepost on this replica"
            )
        if self._history and self._history != history and gone is None:
            log.error("%s has lost its data: begun anew, see docs/stores.md", self._link.name)
            await self._careful.take(history, store_emptied, (self._history, self._seen), {})
        self._history = history
        if run != server.run:
            await self._careful.take(history, server_restarted, (run, server.run, server.keeps_writes), {})
        self._tell(server)

    def _tell(self, server: Server) -> None:
        """Once, and again if it has changed."""
        promise = server.promise()
        if promise != self._told:
            self._told = promise
            log.info("%s: %s", self._link.name, promise)


def _heard(greeting: asyncio.Task[None]) -> None:
    """All who asked may have given up."""
    if not greeting.cancelled():
        greeting.exception()
