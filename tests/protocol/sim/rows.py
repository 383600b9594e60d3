"""The fault of a row that cannot be read: it is set aside for a while, then restored as it was.

Drawn apart from the other faults, for some seeds, so that other seeds keep their histories. While a row is broken the
jobs of all others go on as ever, which is judged by the promises; its own job stands still (R3).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from fencepost.model import State

if TYPE_CHECKING:
    from tests.protocol.sim.simulation import Simulation

PER_SECOND = (0.05, 0.2)
LASTS = (0.5, 3.0, 8.0)
"""Seconds, about."""
BUSY = 0.7
"""How often it is the row of a job that runs, if there is one: its run ends while the row cannot be read."""
WAITS = 0.5
"""How often it is a fire that waits to be run again, if there is one. They are rare, and matter most: their job must
stand still although all else of it can be read."""
HELD_UP = 0.1
"""How often a heartbeat is held up on its way. If its replica claims meanwhile, the presence becomes unreadable at
once: it is written anew by a heartbeat that does not know of that claim."""


class Rows:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = random.Random(f"{simulation.seed}:rows")
        some = simulation.focus.has("rows", self._chance.random())
        self._per_second = self._chance.choice(PER_SECOND) if some else 0.0
        self._held_up: dict[str, float] = {}
        """Until when the heartbeat of a replica is."""

    def begin(self) -> None:
        if self._per_second:
            self._later(self._chance.expovariate(self._per_second), self._break_one)

    def sent(self, replica: str, name: str) -> float:
        """For how many seconds the request is held up."""
        if name != "heartbeat" or not self._per_second or self._chance.random() >= HELD_UP:
            return 0.0
        held_up = self._chance.uniform(0.2, 1.0)
        self._held_up[replica] = self._simulation.world.now + held_up
        return held_up

    def committed(self, replica: str, name: str) -> None:
        simulation = self._simulation
        if name == "claim_fires" and self._held_up.get(replica, 0.0) > simulation.world.now:
            del self._held_up[replica]
            self._break("replica", simulation.store.replicas.rows.keys() & {replica})

    def mend_all(self) -> None:
        for kind, key in list(self._simulation.store.damaged):
            self._mend(kind, key)

    def _break_one(self) -> None:
        if self._simulation.calm:
            return
        store = self._simulation.store
        waiting = self._waiting() if self._chance.random() < WAITS else []
        kind = "live fire" if waiting else self._chance.choice(["job", "ended fire", "replica"])
        keys: dict[str, Iterable[str]] = {
            "job": self._busy_jobs() or store.jobs.rows,
            "live fire": waiting,
            "ended fire": (key for key, fire in store.fires.rows.items() if fire.state.final),
            "replica": store.replicas.rows,
        }
        self._break(kind.rpartition(" ")[2], keys[kind])
        self._later(self._chance.expovariate(self._per_second), self._break_one)

    def data_was_lost(self) -> None:
        """The worst moment: what waits to be run again has run in the history that is lost, and cannot be read while
        the loss is noticed. What was restored since is damaged as it was then, and is restored once more."""
        for kind, key in list(self._simulation.store.damaged):
            self._later(0.0 if self._simulation.calm else self._lasting(), partial(self._mend, kind, key))
        if self._per_second and not self._simulation.calm:
            have_run = {key for key, _ in self._simulation.checker.books.forgotten}
            self._break("fire", have_run.intersection(self._waiting()))

    def _busy_jobs(self) -> set[str]:
        store, often = self._simulation.store, self._chance.random() < BUSY
        runs = [fire for fire in store.fires.rows.values() if fire.state is State.RUNNING]
        return {fire.job_id for fire in runs if fire.job_id in store.jobs.rows} if often else set()

    def _waiting(self) -> list[str]:
        """Not what runs: its replica is told that its claim is gone."""
        fires = self._simulation.store.fires.rows
        return [key for key, fire in fires.items() if fire.state is State.WAITING]

    def _break(self, kind: str, among: Iterable[str]) -> None:
        if keys := sorted(among):
            key = self._chance.choice(keys)
            self._simulation.faults.happened["unreadable row"] += 1
            self._simulation.tell("store", "cannot read", kind, key)
            self._simulation.store.damage(kind, key)
            self._later(self._lasting(), partial(self._mend, kind, key))

    def _lasting(self) -> float:
        return self._chance.choice(LASTS) * self._chance.uniform(0.5, 1.5)

    def _mend(self, kind: str, key: str) -> None:
        self._simulation.store.repair(kind, key)
        self._simulation.tell("store", "can read again", kind, key)

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._simulation.world.at(self._simulation.world.now + seconds, callback)
