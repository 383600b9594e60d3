"""One seed: three replicas, faults, and a while in which all is well."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import random
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from fencepost.clock import seconds
from fencepost.model import fire_key
from fencepost.runs.fire import Fire
from fencepost.settings import Settings
from fencepost.store.base import Claim
from fencepost.testing.world import EPOCH, Process, World
from tests.protocol.checker import Body, Books, Checker, Step
from tests.protocol.network import Network, Request, Weather
from tests.protocol.sim.absence import Absence
from tests.protocol.sim.apart import with_policies
from tests.protocol.sim.backfills import Backfills
from tests.protocol.sim.changes import Changes
from tests.protocol.sim.draw import Release, draw_mix, draw_release
from tests.protocol.sim.engine import NAME, FakeEngine
from tests.protocol.sim.faults import CHORES, FAULTS, Faults
from tests.protocol.sim.focus import Focus
from tests.protocol.sim.members import Member, draw_member, equip
from tests.protocol.sim.moves import Moves
from tests.protocol.sim.notices import Notices
from tests.protocol.sim.rows import Rows
from tests.protocol.sim.store import SimulatedStore
from tests.protocol.sim.values import Values
from tests.protocol.trace import told

TTL = 6.0
HEARTBEAT = 2.0
REPLICAS = 3
RECOVERY = 2 * TTL + 12.0
"""Seconds after the last fault within which everything settles."""
INSTANT = 1e-6
TAIL = 10.0
"""Seconds after that in which steady state is expected."""
KEEPS = 0.5
"""The share of bodies that keep something for later runs, drawn apart from the rest."""


@dataclass(frozen=True)
class Result:
    seed: int
    violations: list[str]
    seconds: float
    """Of virtual time."""
    fires: int
    """Rows of the ledger."""
    runs: int
    """Bodies that were started."""
    faults: dict[str, int]
    """How often each kind was drawn. Now and then there is nothing left to harm."""
    digest: str
    trace: list[str]


class Simulation:
    ttl = TTL

    def __init__(self, seed: int, trace: bool = False, focus: Sequence[str] = ()) -> None:
        self.seed = seed
        self.focus = Focus(focus)
        chance = random.Random(seed)
        self.mix = draw_mix(chance, list(FAULTS), list(CHORES))
        first = draw_release(chance, self.mix.revisions, EPOCH)
        self.releases: list[Release] = [with_policies(seed, first, self.focus)]
        self.settings = Settings(
            leader_ttl=timedelta(seconds=TTL),
            run_ttl=timedelta(seconds=TTL),
            heartbeat=timedelta(seconds=HEARTBEAT),
            horizon=timedelta(seconds=20),
            slots=self.mix.slots,
            drain_timeout=timedelta(seconds=5),
        )
        self.chance = chance
        self.world = World()
        self.store = SimulatedStore()
        self.network = Network(self.world, random.Random(f"{seed}:network"), self.store)
        self.network.evidence_every = 0.3 if self.mix.proof_of_death else None
        self.network.is_dead = lambda name: self.members[name].process.killed
        self.network.on_commit = self._committed
        self.checker = Checker(Books(self.store, lambda: self.world.now, self.network.moment, TTL, HEARTBEAT))
        self.calm = False
        self.engine = FakeEngine(self)
        self.releases = [self.engine.equip(self.releases[0])]
        self.values = Values(seed, self.focus, self.checker.books, lambda: self.calm)
        self.network.refusal = self.values.refusal
        self.network.on_send = self._sent
        self.network.finding_server = Moves(seed, self.focus, lambda: self.calm).seconds
        self.network.on_delivery = self._delivered
        self.network.on_refusal = self.checker.refused
        self.store.fires.on_row = self.checker.row
        self.members: dict[str, Member] = {}
        self.faults = Faults(self, random.Random(f"{seed}:faults"))
        self.rows = Rows(self)
        self.changes = Changes(self)
        self.notices = Notices(self)
        self.absence = Absence(self)
        self.backfills = Backfills(self)
        self._drains: list[Coroutine[Any, Any, None]] = []
        self._digest = hashlib.sha256()
        self._trace: list[str] | None = [] if trace else None

    def run(self) -> Result:
        try:
            return self._run()
        finally:
            for draining in self._drains:
                if inspect.getcoroutinestate(draining) == inspect.CORO_CREATED:
                    draining.close()  # killed before it began

    def _run(self) -> Result:
        for _ in range(REPLICAS):
            self.start()
        self.faults.begin()
        self.rows.begin()
        self.changes.begin()
        self.backfills.begin()
        self.notices.begin()
        healed = self.mix.seconds
        self.world.at(healed, self._heal)
        self.world.at(healed + RECOVERY, self._expect_punctuality)
        self.world.run_until(healed + RECOVERY + TAIL)
        self._check_leader()
        self.checker.finish(self.network.moment().wall - timedelta(seconds=6))
        for member in self.members.values():
            for error in member.process.errors:
                self.checker.books.violation("code", f"{member.name}: {error}")
        return Result(
            self.seed,
            self.checker.violations,
            self.world.now,
            len(self.store.fires.rows),
            len(self.checker.books.bodies),
            dict(self.faults.happened),
            self._digest.hexdigest(),
            self._trace or [],
        )

    # --- members --------------------------------------------------------------------------------------------

    def start(self, release: Release | None = None) -> None:
        if self.calm and len(self.alive()) >= REPLICAS:
            return
        name = f"r{len(self.members)}"
        member = draw_member(self.chance, Process(self.world, name), release or self.releases[-1])
        engines = {NAME: self.engine} if self.engine.exists else {}
        chance = random.Random(f"{self.seed}:{name}")
        equip(member, self.network, self.settings, chance, self._perform, engines, self.notices)
        member.replica.events.subscribe(
            lambda event: self.tell(name, event.kind, event.key or "", event.detail)
        )
        self.members[name] = member
        self.checker.books.targets[name] = frozenset(member.replica.lanes)
        member.process.call_soon(member.replica.begin)

    async def _perform(self, member: Member, fire: Fire) -> None:
        await self.perform(member.name, member.replica.runs[fire.key].claim, fire)

    async def perform(self, process: str, claim: Claim, fire: Fire) -> None:
        """What a body does: take a while, perhaps save and fail, then change the world once."""
        chance = random.Random(f"{self.seed}:{fire.key}:{fire.token}")
        # When all is well bodies are quick and do not fail, so that what is queued up can be worked off.
        longest, fails = (0.02, 0.0) if self.calm else (fire.args["longest"], fire.args["fails"])
        body = Body(claim, process, self.world.now)
        self.tell(process, "start", fire.key, fire.token)
        if claim.fire.remote is None and self.values.started(fire.key, fire.token):
            self.faults.happened["unwritable value"] += 1
            self.tell(process, "says what cannot be written", fire.key, fire.token)
        self.checker.started(body)
        try:
            await asyncio.sleep(chance.uniform(0.0, longest))
            if chance.random() < 0.2:
                await fire.save({"half": fire.token})
            if chance.random() < fails:
                raise RuntimeError("drawn by the seed")
            await asyncio.sleep(chance.uniform(0.0, longest))
            if random.Random(f"{self.seed}:keeps:{fire.key}:{fire.token}").random() < KEEPS:
                fire.keep({"token": fire.token})
            self.checker.sink.effect(body)
            body.finished = True
        finally:
            self.checker.ended(body)

    def kill(self, member: Member) -> None:
        member.process.kill()
        self.checker.killed(member.name)
        self.tell(member.name, "killed")

    def stop(self, member: Member) -> None:
        async def drain() -> None:
            await member.replica.drain()
            self.kill(member)

        member.stopping = True
        self.tell(member.name, "stopping")
        draining = drain()
        self._drains.append(draining)
        member.process.call_soon(lambda: member.process.create_task(draining))

    def pause(self, process: Process, duration: float) -> None:
        process.pause(duration)
        self.checker.books.paused[process.name] = process.paused_until
        self.tell(process.name, "paused")

    def alive(self) -> list[Member]:
        return [m for m in self.members.values() if not m.process.killed and not m.stopping]

    def fall_ill(self, member: Member, duration: float) -> None:
        """For so long, and a while after, it may rightly be declared dead."""
        member.ill_until = max(member.ill_until, self.world.now + duration + 2 * HEARTBEAT)

    def everybody_falls_ill(self, duration: float) -> None:
        for member in self.alive():
            self.fall_ill(member, duration)

    def _healthy(self) -> set[str]:
        """Members nobody has a reason to declare dead: they can reach the store, and could for a while."""
        if self.network.weather.slow or self.network.weather.lose_request or self.network.service_time:
            return set()
        return {member.name for member in self.alive() if member.ill_until <= self.world.now}

    # --- recovery -------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.calm = True
        self.rows.mend_all()
        self.backfills.heal()
        self.network.weather = Weather()
        self.network.store_is_up = True
        self.network.service_time = 0.0
        self.network.cut_off.clear()
        self.network.deaf.clear()
        self.engine.heal()
        for member in self.members.values():
            if not member.process.killed:
                member.process.resume()
                self.fall_ill(member, 0)
        self.tell("world", "healed")

    def _expect_punctuality(self) -> None:
        """L2: note which fires of the tail have no reason to be late, at the moment they fall due."""
        self.absence.begin()
        start = self.network.moment().wall
        for job_id in self.jobs():
            for due in self.checker.books.due(job_id, start, start + timedelta(seconds=TAIL - 1)):
                self.world.at(self.world.now + seconds(due - start), partial(self._note_due, job_id, due))

    def jobs(self) -> list[str]:
        """Without the rows of limits."""
        return sorted(id for id, record in self.store.jobs.rows.items() if record.limit is None)

    def _note_due(self, job_id: str, due: datetime) -> None:
        record, key = self.store.jobs.rows[job_id], fire_key(job_id, due)
        lost_through = self.store.leader.era.lost_through
        decided = any(each is not None and due <= each for each in (record.decided_through, lost_through))
        leads = self.store.leader.holder
        able = [each for each in self.alive() if not record.job.leader_only or each.name == leads]
        able = [each for each in able if each.name not in self.network.cut_off]
        known = any(record.job.target in member.release.tasks for member in able)
        few = len(self.jobs()) <= 2 * self.mix.slots
        free = few and all(member.replica.runs.room() > 0 for member in self.alive())
        idle = not self.store.fires.active(job_id) and not any(
            fire.due_at < due for fire in self.store.fires.due(job_id, due)
        )
        row = self.store.fires.rows.get(key)
        stretch = row is not None and row.count > 1  # which the clock, set back, makes lie ahead
        # As with pauses: nobody knew the task when the clock, which was set back since, read this time before.
        absences = self.store.targets.get(record.job.target).gaps if self.checker.books.stepped_back else ()
        held = (
            stretch
            or record.paused_at(due) is not None
            or record.job.jitter is not None
            or record.skip_at(due) is not None
            or any(each.is_open for each in record.backfills)
            or any(gap.covers(due) for gap in absences)
            or self.checker.books.waits_for_the_clock(job_id, due)
            or self.absence.is_unsure()
        )
        apart = record.job.engine is not None or record.job.limits
        if known and free and idle and not decided and not held and not apart:
            self.checker.runs.expect(key, self.world.now, self.absence.is_felt())

    def _check_leader(self) -> None:
        """L1, L3, L4: when all is well exactly one replica leads, and knows."""
        leaders = [m.name for m in self.alive() if m.replica.term() is not None]
        if leaders != [self.store.leader.holder]:
            self.checker.books.violation("L1", f"{leaders} lead, the store says {self.store.leader.holder}")

    # --- the record -----------------------------------------------------------------------------------------

    def _committed(self, process: Process | None, name: str, args: tuple[Any, ...], reply: Any) -> None:
        who = process.name if process else ""
        line = told(name, args, reply)
        if line:
            self.tell(who or "admin", name, line)
        sent = self.network.handling.sent if self.network.handling else self.world.now
        self.checker.step(Step(name, args, reply, who, sent, self.network.steps, self._healthy))
        member = self.members.get(who)
        if line and not self.calm and member is not None and name in ("claim_fires", "update_claims"):
            self.faults.committed(member)
            self.rows.committed(who, name)

    def _sent(self, process: Process, name: str) -> float:
        member = self.members.get(process.name)
        if self.calm or member is None:
            return 0.0
        return self.faults.sent(member, name) + self.rows.sent(process.name, name)

    def _delivered(self, request: Request) -> None:
        self.checker.delivered(request)
        name = request.process.name
        if request.name == "heartbeat" and request.reply.leader.holder != name:
            self.world.at(self.world.now + INSTANT, partial(self._check_humility, self.members[name]))

    def _check_humility(self, member: Member) -> None:
        """L4: who hears that another leads steps down at once."""
        if member.process.paused_until <= self.world.now and member.replica.term() is not None:
            self.checker.books.violation(
                "L4", f"{member.name} leads on although it was told that another does"
            )

    def tell(self, who: str, *what: object) -> None:
        line = f"{self.world.now:9.3f} {who:8} {' '.join(str(each) for each in what)}"
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace.append(line)


def simulate(seed: int, trace: bool = False, focus: Sequence[str] = ()) -> Result:
    with _quiet():
        return Simulation(seed, trace, focus).run()


@contextmanager
def _quiet() -> Iterator[None]:
    """The loops log what they meet. A simulation meets a lot."""
    log = logging.getLogger("fencepost")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
