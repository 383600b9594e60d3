"""The fake engine: carries out orders in processes of their own, and is as bad at it as real ones are.

It repeats deliveries, loses and delays orders, forgets what it runs, answers "unsure", and calls a delivery that was
refused a success. Its workers are killed and paused. Drawn apart from the other faults, for some seeds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.engine_worker.attend import Attendant
from fencepost.engine_worker.gate import StoreGate
from fencepost.errors import StoreUnavailable
from fencepost.runs.engines import GONE, RUNNING, UNSURE, WAITING, Order, Ref, Sighting, ended
from fencepost.runs.fire import Fire
from fencepost.runs.host import InlineHost
from fencepost.runs.tasks import Task
from fencepost.testing.world import Process
from tests.protocol.network import remote_store
from tests.protocol.sim.draw import Release

if TYPE_CHECKING:
    from tests.protocol.sim.simulation import Simulation

JOBS = 0.5
"""The share of their jobs that run on it."""
NAME = "fake"


class EngineError(Exception):
    """No answer; it may have been done."""


@dataclass(frozen=True)
class Habits:
    """How bad it is, by the share of what happens to. One set for each seed."""

    loses: float
    repeats: float
    late: float
    forgets: float
    unsure: float
    fails: float
    kills: float
    pauses: float
    knows_refs: bool
    """Whether the same ref twice is once; otherwise it is delivered again."""


WELL = Habits(0, 0, 0, 0, 0, 0, 0, 0, True)


@dataclass(eq=False)
class Worker:
    process: Process
    offset: float
    attendant: Attendant | None = None
    task: object = None
    verdict: str | None = None

    def wall(self) -> datetime:
        return self.process.world.datetime(self.offset)

    def steady(self) -> float:
        return self.process.world.now + self.offset

    @property
    def works(self) -> bool:
        return not self.process.killed and self.verdict is None


@dataclass(eq=False)
class Submission:
    order: Order
    deliveries: int = 0
    """That are still to come."""
    lost: bool = False
    forgotten: bool = False
    workers: list[Worker] = field(default_factory=list)


class FakeEngine:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.world = simulation.world
        self.chance = chance = random.Random(f"{simulation.seed}:engine")
        self.exists = simulation.focus.has("engine", chance.random())
        self._bad = Habits(
            loses=chance.choice([0.0, 0.1, 0.3]),
            repeats=chance.choice([0.0, 0.3, 0.7]),
            late=chance.choice([0.0, 0.1, 0.4]),
            forgets=chance.choice([0.0, 0.1, 0.3]),
            unsure=chance.choice([0.0, 0.2, 0.6]),
            fails=chance.choice([0.0, 0.1, 0.3]),
            kills=chance.choice([0.0, 0.1, 0.3]),
            pauses=chance.choice([0.0, 0.1, 0.3]),
            knows_refs=chance.random() < 0.5,
        )
        self._submitted: dict[Ref, Submission] = {}
        self._workers: list[Worker] = []
        """All there were: one that is collected as garbage would run its `finally` in the midst of something else."""

    @property
    def habits(self) -> Habits:
        return replace(WELL, knows_refs=self._bad.knows_refs) if self.simulation.calm else self._bad

    def equip(self, release: Release) -> Release:
        """Some of its jobs run here, always the same ones; none that others would wait for because of a limit."""
        if not self.exists:
            return release
        seed = self.simulation.seed
        jobs = {
            id: replace(job, engine=NAME)
            if random.Random(f"{seed}:engine:{id}").random() < JOBS and not job.limits
            else replace(job, engine=None)
            for id, job in release.jobs.items()
        }
        return replace(release, jobs=jobs)

    def _draw(self, share: float, kind: str) -> bool:
        if share and self.chance.random() < share:
            self.simulation.faults.happened[f"engine {kind}"] += 1
            return True
        return False

    # --- what a replica asks for ------------------------------------------------------------------------------

    async def submit(self, order: Order) -> None:
        self.simulation.checker.engines.submitted(order.ref, _caller())
        await self._travel()
        if self._draw(self.habits.loses / 2, "loses a request"):
            raise EngineError("no answer")
        known = self._submitted.get(order.ref)
        if known is None or not (self.habits.knows_refs or known.lost):
            self._accept(order, known)
        await self._travel()
        self._fail_perhaps()

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        await self._travel()
        self._fail_perhaps()
        seen = {ref: self._sighting(ref) for ref in refs}
        self.simulation.checker.engines.answered(seen, _caller())
        await self._travel()
        return seen

    async def stop(self, ref: Ref) -> None:
        await self._travel()
        self._fail_perhaps()
        known = self._submitted.get(ref)
        if known is not None:
            known.deliveries = 0
            for worker in known.workers:
                if worker.works:
                    self._kill(worker)

    async def forget(self, ref: Ref) -> None:
        await self._travel()
        self._fail_perhaps()
        self._submitted.pop(ref, None)

    async def _travel(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.0005, 0.01))

    def _fail_perhaps(self) -> None:
        if self._draw(self.habits.fails, "does not answer"):
            raise EngineError("no answer")

    # --- what it does -------------------------------------------------------------------------------------------

    def _accept(self, order: Order, known: Submission | None) -> None:
        submission = known or Submission(order)
        submission.lost = submission.forgotten = False
        self._submitted[order.ref] = submission
        if self._draw(self.habits.loses, "loses an order"):
            submission.lost = True
            return
        number = 1
        while number < 4 and self._draw(self.habits.repeats, "repeats a delivery"):
            number += 1
        for n in range(number):
            late = self.chance.uniform(0, 8) if n or self._draw(self.habits.late, "is late") else 0.0
            submission.deliveries += 1
            self.world.at(self.world.now + 0.01 + late, lambda: self._deliver(submission))
        if self._draw(self.habits.forgets, "forgets an order"):
            self.world.at(self.world.now + self.chance.uniform(0, 5), lambda: _forget(submission))

    def _deliver(self, submission: Submission) -> None:
        if not submission.deliveries:
            return  # stopped
        submission.deliveries -= 1
        name = f"w{len(self._workers)}"
        process = Process(self.world, name)
        worker = Worker(process, self.chance.uniform(0, 1e6))
        submission.workers.append(worker)
        self._workers.append(worker)
        process.call_soon(lambda: self._employ(worker, submission.order))
        longest = submission.order.args["longest"]
        if self._draw(self.habits.kills, "worker killed"):
            when = self.world.now + self.chance.uniform(0, 1.5 * longest)
            self.world.at(when, lambda: self._kill(worker) if worker.works else None)
        if self._draw(self.habits.pauses, "worker paused"):
            when = self.world.now + self.chance.uniform(0, longest)
            self.world.at(when, lambda: self._pause(worker))

    def _employ(self, worker: Worker, order: Order) -> None:
        worker.task = worker.process.create_task(self._work(worker, order))

    async def _work(self, worker: Worker, order: Order) -> None:
        simulation, name = self.simulation, worker.process.name
        gate = StoreGate(remote_store(simulation.network, worker.process), order.namespace)
        chance = random.Random(f"{simulation.seed}:{name}")
        worker.attendant = attendant = Attendant(order, gate, InlineHost(), worker, name, chance)

        async def body(fire: Fire, longest: float, fails: float) -> None:
            assert attendant.run is not None
            await simulation.perform(name, attendant.run.claim, fire)

        try:
            worker.verdict = (await attendant.attend(lambda order: Task.of(body, order.target))).kind
        except StoreUnavailable:
            worker.verdict = "failed"  # at the gate: the engine sees its task fail
        simulation.tell(name, "carried out", order.key, order.token, worker.verdict)

    def _kill(self, worker: Worker) -> None:
        worker.process.kill()
        self.simulation.checker.killed(worker.process.name)
        self.simulation.tell(worker.process.name, "killed")

    def _pause(self, worker: Worker) -> None:
        if worker.works and not self.simulation.calm:
            self.simulation.pause(worker.process, self.chance.uniform(0, 3 * self.simulation.ttl))

    def heal(self) -> None:
        for submission in self._submitted.values():
            for worker in submission.workers:
                if not worker.process.killed:
                    worker.process.resume()

    def _sighting(self, ref: Ref) -> Sighting:
        known = self._submitted.get(ref)
        if self._draw(self.habits.unsure, "is unsure"):
            return UNSURE
        if known is None or known.lost or known.forgotten:
            return GONE
        if any(worker.works for worker in known.workers):
            return RUNNING
        if known.deliveries:
            return WAITING
        verdicts = [worker.verdict for worker in known.workers if worker.verdict is not None]
        if not verdicts:
            return GONE if self.chance.random() < 0.5 else ended(False, "exit code 137")
        # The last one counts, also if it was refused: such an engine does not know the difference.
        return ended(verdicts[-1] in ("succeeded", "refused", "cancelled", "given back"), "exit code 1")


def _caller() -> str:
    process: Any = asyncio.get_running_loop()
    return str(process.name)


def _forget(submission: Submission) -> None:
    submission.forgotten = True
