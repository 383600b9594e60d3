"""The fault of a row that cannot be read: it is set aside for a while, then restored as it was.

Drawn apart from the other faults, for some seeds, so that other seeds keep their histories. While a row is broken the
jobs of all others go on as ever, which is judged by the promises; its own job stands still (R3).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.testing.sim.simulation import Simulation

SEEDS = 0.25
"""The share of seeds with this fault."""
PER_SECOND = (0.05, 0.2)
LASTS = (0.5, 3.0, 8.0)
"""Seconds, about."""


class Rows:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = random.Random(f"{simulation.seed}:rows")
        self._per_second = self._chance.choice(PER_SECOND) if self._chance.random() < SEEDS else 0.0

    def begin(self) -> None:
        if self._per_second:
            self._later(self._chance.expovariate(self._per_second), self._break_one)

    def mend_all(self) -> None:
        for kind, key in list(self._simulation.store.damaged):
            self._mend(kind, key)

    def _break_one(self) -> None:
        if self._simulation.calm:
            return
        store = self._simulation.store
        kind = self._chance.choice(["job", "live fire", "ended fire", "replica"])
        keys = {
            "job": sorted(store.jobs_by_id),
            "live fire": sorted(key for key, fire in store.fires.items() if fire.state.value == "waiting"),
            "ended fire": sorted(key for key, fire in store.fires.items() if fire.state.final),
            "replica": sorted(store.replicas),
        }[kind]
        if keys:
            kind, key = kind.rpartition(" ")[2], self._chance.choice(keys)
            self._simulation.faults.happened["unreadable row"] += 1
            self._simulation.tell("store", "cannot read", kind, key)
            store.damage(kind, key)
            lasts = self._chance.choice(LASTS) * self._chance.uniform(0.5, 1.5)
            self._later(lasts, partial(self._mend, kind, key))
        self._later(self._chance.expovariate(self._per_second), self._break_one)

    def _mend(self, kind: str, key: str) -> None:
        self._simulation.store.repair(kind, key)
        self._simulation.tell("store", "can read again", kind, key)

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._simulation.world.at(self._simulation.world.now + seconds, callback)
