"""What people ask of a schedule: a fire later, a backfill, one fire left out, starts put off by chance.

Drawn apart from the faults, for some seeds, so that other seeds keep their histories.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fencepost.model import Backfill, JobRecord, State, manual_key
from fencepost.model.triggers import every
from fencepost.store.base import ChangeJob, NewFire, PutJob
from fencepost.store.unreadable import RowUnreadable

if TYPE_CHECKING:
    from tests.protocol.sim.simulation import Simulation

PER_SECOND = (0.3, 0.8)
MOST_BACKFILLS = 4
"""Of one job: they must come to their end while all is well."""


class Backfills:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = random.Random(f"{simulation.seed}:backfills")
        some = simulation.focus.has("backfills", self._chance.random())
        self._per_second = self._chance.choice(PER_SECOND) if some else 0.0
        self._asked = 0

    def begin(self) -> None:
        if self._per_second:
            self._later(self._chance.expovariate(self._per_second), self._act)

    def heal(self) -> None:
        """What is paused goes on, so that all comes to its end. A store that comes up later may have
        forgotten that, or may not have heard it."""
        for seconds in (0.0, 4.0, 8.0, 16.0):
            self._later(seconds, self._resume)

    def _resume(self) -> None:
        for record in list(self._simulation.store.jobs.rows.values()):
            for backfill in record.backfills:
                if backfill.paused:
                    self._ask("change_job", ChangeJob(record.id, "resume backfill", name=backfill.name))

    def _act(self) -> None:
        if self._simulation.calm:
            return
        jobs = {id: each for id, each in self._simulation.store.jobs.rows.items() if each.limit is None}
        if jobs:
            record = jobs[self._chance.choice(sorted(jobs))]
            acts = [self._fire_later, self._fire_later, self._backfill, self._backfill, self._change]
            act = self._chance.choice([*acts, self._skip, self._skip, self._jitter, self._take_back])
            self._simulation.faults.happened[f"asked for {act.__name__.strip('_').replace('_', ' ')}"] += 1
            act(record)
        self._later(self._chance.expovariate(self._per_second), self._act)

    def _fire_later(self, record: JobRecord) -> None:
        self._asked += 1
        key = manual_key(record.id, f"later{self._asked}")
        self._ask("add_fire", NewFire(key, record.id, delay=self._chance.choice([0.3, 2.0, 9.0])))

    def _take_back(self, record: JobRecord) -> None:
        rows = self._simulation.store.fires.rows.values()
        ahead = [fire.key for fire in rows if "!later" in fire.key and fire.state is State.PENDING]
        if ahead:
            self._ask("cancel_fire", self._chance.choice(sorted(ahead)))

    def _backfill(self, record: JobRecord) -> None:
        chance, now = self._chance, self._simulation.network.moment().wall
        if len(record.backfills) >= MOST_BACKFILLS or record.job.engine is not None:
            return  # an engine takes too long for more
        step = chance.choice([1, 2, 5])
        since = now.replace(microsecond=0) - timedelta(seconds=step * chance.choice([2, 7, 12, 30]))
        trigger = every(seconds=step, anchor=since - timedelta(seconds=step))
        if record.segments and chance.random() < 0.5:
            trigger = record.segments[-1].trigger  # type: ignore[assignment]
            since = now - timedelta(seconds=8)
        self._asked += 1
        backfill = Backfill(f"b{self._asked}", trigger, since, now, since, limit=chance.choice([1, 1, 2]))
        backfill = replace(backfill, reverse=chance.random() < 0.3, only_missing=chance.random() < 0.5)
        self._ask("change_job", ChangeJob(record.id, "backfill", backfill=backfill))

    def _change(self, record: JobRecord) -> None:
        running = [each.name for each in record.backfills if each.is_open]
        if running:
            kind = self._chance.choice(
                ["pause backfill", "pause backfill", "resume backfill", "cancel backfill"]
            )
            self._ask("change_job", ChangeJob(record.id, kind, name=self._chance.choice(running)))  # type: ignore[arg-type]

    def _skip(self, record: JobRecord) -> None:
        """The next fire, or the one after it; or one that was to be skipped is to run after all."""
        now = self._simulation.network.moment().wall
        if record.skips and self._chance.random() < 0.3:
            due_at = self._chance.choice(record.skips).due_at
            self._ask("change_job", ChangeJob(record.id, "unskip", due_at=due_at))
            return
        trigger = record.segments[-1].trigger if record.segments else None
        due = trigger.next_after(now) if trigger is not None else None
        if due is not None and trigger is not None and self._chance.random() < 0.5:
            due = trigger.next_after(due) or due
        if due is not None:
            self._ask("change_job", ChangeJob(record.id, "skip", "asked", "ann", due_at=due))

    def _jitter(self, record: JobRecord) -> None:
        jitter = None if record.job.jitter else timedelta(seconds=self._chance.choice([0.5, 3.0]))
        self._ask("put_jobs", [PutJob(replace(record.job, jitter=jitter), source="api")])

    def _ask(self, name: str, *args: object) -> None:
        with suppress(RowUnreadable):
            self._simulation.tell("admin", "asks for", name, *args)
            self._simulation.network.apply(None, name, args)

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._simulation.world.at(self._simulation.world.now + seconds, callback)
