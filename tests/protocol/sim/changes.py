"""What an application changes while it runs, as the guard does for the jobs of its scheduler.

Drawn apart from the faults, for some seeds, so that other seeds keep their histories. A replica asks for a definition
that may have been replaced before (`PutJob.chosen`); or a job is removed a while after it was read, if it still has the
trigger that was read (`ChangeJob.version`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from fencepost.model import Job, JobRecord
from fencepost.store.base import ChangeJob, PutJob
from fencepost.store.unreadable import RowUnreadable
from tests.protocol.sim.draw import draw_change

if TYPE_CHECKING:
    from tests.protocol.sim.simulation import Simulation

PER_SECOND = (0.2, 0.6)


class Changes:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = random.Random(f"{simulation.seed}:changes")
        some = simulation.focus.has("changes", self._chance.random())
        self._per_second = self._chance.choice(PER_SECOND) if some else 0.0
        self._asked_for: dict[str, list[Job]] = defaultdict(list)

    def begin(self) -> None:
        if self._per_second:
            self._later(self._chance.expovariate(self._per_second), self._change)

    def _change(self) -> None:
        if self._simulation.calm:
            return
        ids, jobs = self._simulation.jobs(), self._simulation.store.jobs.rows
        if ids:
            record = jobs[self._chance.choice(ids)]
            self._simulation.faults.happened["change at run time"] += 1
            self._chance.choice([self._choose, self._choose, self._remove])(record)
        self._later(self._chance.expovariate(self._per_second), self._change)

    def _choose(self, record: JobRecord) -> None:
        """A new definition, or one that the job has had."""
        simulation, chance = self._simulation, self._chance
        able = [each.name for each in simulation.alive() if record.job.target in each.release.tasks]
        earlier = [job for job in self._asked_for[record.id] if job.fingerprint != record.fingerprint]
        chosen = draw_change(chance, record.job, simulation.network.moment().wall)
        if earlier and chance.random() < 0.7:
            chosen = chance.choice(earlier)
        if able:
            by = chance.choice(able)
            self._asked_for[record.id] += [record.job, chosen]
            simulation.tell(by, "asks for", record.id, chosen.trigger)
            self._ask("put_jobs", [PutJob(chosen, by=by, chosen=True)])

    def _remove(self, record: JobRecord) -> None:
        """And perhaps somebody adds it again."""
        change = ChangeJob(record.id, "remove", version=record.version)
        self._simulation.tell("admin", "will remove", record.id, record.version)
        wait = self._chance.choice([0.0, 1.0, 4.0, 8.0])
        self._later(wait, partial(self._ask, "change_job", change))
        if self._chance.random() < 0.8:
            put = [PutJob(record.job)]
            self._later(wait + self._chance.uniform(0.0, 5.0), partial(self._ask, "put_jobs", put))

    def _ask(self, name: str, *args: object) -> None:
        with suppress(RowUnreadable):
            self._simulation.network.apply(None, name, args)

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._simulation.world.at(self._simulation.world.now + seconds, callback)
