"""Several replicas at once on one store: plain steps, careful ones and some that are alone, on the same jobs."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fencepost.errors import StoreUnavailable
from fencepost.insight.audit import audit
from fencepost.model import Job, Overlap, State
from fencepost.model.triggers import every
from fencepost.replica.plan import expand
from fencepost.store.base import (
    Campaign,
    ChangeJob,
    Claim,
    ClaimRequest,
    FireQuery,
    GiveBack,
    HeartbeatRequest,
    NewFire,
    PutJob,
    RetryLater,
    Settle,
    Store,
    Suspect,
    Update,
)
from fencepost.store.postgres import PostgresStore
from fencepost.store.redis import RedisStore

ENOUGH = {
    "ended": 200,
    "again": 3,
    "planned": 3,
    "trigger": 3,
    "pause": 3,
    "cancel": 3,
    "sweep": 3,
    "leave": 10,
}
"""What must have happened more often than that, however long it takes on a busy machine."""
REPLICAS = ("a", "b", "c")
OVERLAPS = ("skip", "skip", "queue(2)", "allow(2)")
UNDECIDED = (State.PENDING, State.QUEUED, State.RUNNING, State.WAITING)


OVERLOADED = 100
"""Repetitions of one call. A step that took too long on a busy machine, or met too many conflicts, is not written."""


class Insistent:
    """A store whose calls are repeated while it says that it is overloaded, as a replica repeats its own."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def ask(*args: Any) -> Any:
            return (await self._ask(name, *args))[0]

        return ask

    async def update(self, replica: str, updates: Sequence[Update]) -> None:
        """Where it was asked twice, the first may have been done in part. A settle is then answered alike; what was to
        be run again may have been claimed meanwhile."""
        reply, times = await self._ask("update_claims", replica, updates)
        for update, accepted in zip(updates, reply.accepted, strict=True):
            assert accepted or (times > 1 and not isinstance(update, Settle)), update

    async def _ask(self, name: str, *args: Any) -> tuple[Any, int]:
        for times in range(1, OVERLOADED):
            try:
                return await getattr(self.store, name)(*args), times
            except StoreUnavailable as error:
                if "overloaded" not in str(error):
                    raise
        return await getattr(self.store, name)(*args), OVERLOADED


class Crowd:
    """Replicas that claim and settle as fast as they can, somebody who plans, and somebody who interferes."""

    def __init__(self, opened: Callable[[], Store], seed: int) -> None:
        self.chance = random.Random(seed)
        self.stores = {
            name: Insistent(opened()) for name in (*REPLICAS, "comer and goer", "planner", "admin")
        }
        self.jobs = [
            Job(
                f"job{n:02}",
                "work",
                every(seconds=self.chance.choice([0.2, 0.3, 0.5])),
                overlap=Overlap.parse(OVERLAPS[n % 4]),
                after_crash=self.chance.choice(["record", "rerun"]),
            )
            for n in range(30)
        ]
        self.at_once = {job.id: job.overlap.at_once for job in self.jobs}
        self.running: Counter[str] = Counter()
        self.tokens: defaultdict[str, list[int]] = defaultdict(list)
        self.happened: Counter[str] = Counter()
        self.asks: dict[str, ClaimRequest] = {}
        self.calm = False
        """From now on everything succeeds, and nobody interferes."""
        self.over = False

    async def run(self) -> None:
        for store in self.stores.values():
            await store.open()
        for name in REPLICAS:
            self.asks[name] = await self._join(name, self.stores[name])
        await self.stores["admin"].put_jobs([PutJob(job) for job in self.jobs])
        try:
            async with asyncio.TaskGroup() as group:
                for name in REPLICAS:
                    group.create_task(self._work(name))
                group.create_task(self._come_and_go())
                group.create_task(self._plan())
                group.create_task(self._interfere())
                await self._until_enough_has_happened()
                self.calm = True
                await self._until_all_is_decided()
                self.over = True
            report = await audit(self.stores["admin"].store)
            assert report.clean, report.findings
        finally:
            for store in self.stores.values():
                await store.close()

    # --- those who take part --------------------------------------------------------------------------------

    async def _join(self, name: str, store: Insistent) -> ClaimRequest:
        """What its claims begin with."""
        request = HeartbeatRequest(
            name, 1, 30.0, 10.0, joining=True, targets=("work",), campaign=Campaign(30.0)
        )
        era = (await store.heartbeat(request)).leader.era
        return ClaimRequest(name, 0, 1, None, era.incarnation, era.server)

    async def _come_and_go(self) -> None:
        """A replica that leaves while its claim is under way: what it was given is given back."""
        store, life = self.stores["comer and goer"], 0
        while not self.calm:
            life += 1
            ask = await self._join(f"life{life}", store)
            claiming = asyncio.create_task(store.claim_fires(replace(ask, number=1, room=3)))
            await asyncio.sleep(self.chance.uniform(0, 0.01))
            await asyncio.gather(claiming, store.leave(ask.replica))
            self.happened["leave"] += 1
            await asyncio.sleep(self.chance.uniform(0, 0.03))

    async def _work(self, name: str) -> None:
        store, number, bodies = self.stores[name], 0, set[asyncio.Task[None]]()
        ask = self.asks[name]
        while not self.over:
            number += 1
            room = self.chance.choice([1, 3, 20])
            term = 1 if name == "a" else None
            claimed = await store.claim_fires(replace(ask, number=number, room=room, term=term))
            assert len(claimed.claims) <= room
            updates: list[Update] = []
            for claim in claimed.claims:
                self._begin(claim)
                if self.calm or self.chance.random() < 0.7:
                    updates.append(self._end(claim))
                else:
                    bodies.add(task := asyncio.create_task(self._take_long(name, claim)))
                    task.add_done_callback(bodies.discard)
            if updates:
                await store.update(name, updates)
            if number % 20 == 0:
                await store.heartbeat(HeartbeatRequest(name, 1 + number, 30.0, 10.0))
        await asyncio.gather(*bodies)

    async def _take_long(self, name: str, claim: Claim) -> None:
        await asyncio.sleep(self.chance.uniform(0, 0.6))
        await self.stores[name].update(name, [self._end(claim)])

    def _begin(self, claim: Claim) -> None:
        fire = claim.fire
        self.running[fire.job_id] += 1
        assert self.running[fire.job_id] <= self.at_once[fire.job_id], f"{fire.key} overlaps"
        tokens = self.tokens[fire.job_id]
        # Of runs beside each other, the answer to the later claim may be heard first.
        in_order = self.at_once[fire.job_id] > 1 or fire.token > max(tokens, default=0)
        assert in_order, f"{fire.key} has an old token"
        assert fire.token not in tokens, f"{fire.key} has the token of another"
        tokens.append(fire.token)

    def _end(self, claim: Claim) -> Update:
        """The body has ended before the store hears of it."""
        fire, draw = claim.fire, self.chance.random()
        self.happened["ended"] += 1
        if self.calm or draw < 0.8:
            self.running[fire.job_id] -= 1
            return Settle(fire.key, fire.token, State.SUCCEEDED)
        # It counts as active until it is run again, and that run is the same fire's.
        self.running[fire.job_id] -= 1
        self.happened["again"] += 1
        if draw < 0.9:
            return RetryLater(fire.key, fire.token, 0.1)
        return GiveBack(fire.key, fire.token)

    async def _plan(self) -> None:
        store = self.stores["planner"]
        while not self.over:
            if not self.calm:
                due = await store.due_jobs(1.0, 100)
                plans = [expand(record, due.now, 1.0, due.gaps_of(record)) for record in due.jobs]
                written = await store.plan_fires(plans) if plans else ()
                self.happened["planned"] += sum(written)
            await asyncio.sleep(0.02)

    async def _interfere(self) -> None:
        store, number = self.stores["admin"], 0
        while not self.calm:
            number += 1
            job = self.chance.choice(self.jobs).id
            what = self.chance.choice(["trigger", "trigger", "pause", "cancel", "sweep"])
            self.happened[what] += 1
            if what == "trigger":
                await store.add_fire(NewFire(f"{job}!n{number}", job))
            elif what == "cancel":
                found = await store.find_fires(FireQuery(job_id=job, states=UNDECIDED, limit=5))
                if found:
                    await store.cancel_fire(self.chance.choice(found).key)
            elif what == "sweep":
                assert await store.sweep("a", 1, [Suspect("b", 0, 0.0)])
            else:
                await store.change_job(ChangeJob(job, "pause"))
                await asyncio.sleep(0.02)
                await store.change_job(ChangeJob(job, "resume"))
            await asyncio.sleep(self.chance.uniform(0, 0.03))

    async def _until_enough_has_happened(self) -> None:
        deadline = time.monotonic() + 60
        while any(self.happened[what] <= least for what, least in ENOUGH.items()):
            assert time.monotonic() < deadline, self.happened
            await asyncio.sleep(0.05)

    async def _until_all_is_decided(self) -> None:
        """Calendars end, so that something can be finished. Then nothing may be left lying."""
        admin, planner = self.stores["admin"], self.stores["planner"]
        await admin.put_jobs([PutJob(replace(job, trigger=None)) for job in self.jobs])
        deadline = time.monotonic() + 30
        left: tuple[object, ...] = (None,)
        while left:
            due = await planner.due_jobs(0.0, 100)
            if due.jobs:
                await planner.plan_fires([expand(each, due.now, 0.0, due.gaps_of(each)) for each in due.jobs])
            left = await admin.find_fires(FireQuery(states=UNDECIDED))
            assert time.monotonic() < deadline, f"nobody looks at {left}"
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("seed", range(int(__import__("os").environ.get("SEEDS", "2"))))
class TestNothingIsDoubledAndNothingForgotten:
    async def test_on_postgresql(self, postgres_url: str, seed: int) -> None:
        await Crowd(lambda: PostgresStore(postgres_url), seed).run()

    async def test_on_redis(self, valkey_url: str, seed: int) -> None:
        await Crowd(lambda: RedisStore(valkey_url, incarnation=0), seed).run()
