"""When all is well one follower is cut off from the store for a while. The others, who count on it to ask for its
share, must start that as well, a little later."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.protocol.sim.simulation import Simulation

AFTER = 3.0
"""Seconds of the tail before it begins."""
LASTS = 2.0
"""Less than a TTL: it is not declared dead."""
RETURNS = 2.0
"""Seconds until a replica that could not reach the store has asked again."""
UNSURE = (-0.5, 0.2)
"""Around the beginning, what it has claimed and was not answered starts later."""


class Absence:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._begins: float | None = None

    def begin(self) -> None:
        world = self._simulation.world
        self._begins = world.now + AFTER
        world.at(self._begins, self._cut_off)

    def _cut_off(self) -> None:
        simulation = self._simulation
        followers = [each for each in simulation.alive() if each.replica.term() is None]
        if not followers:
            return
        member = random.Random(f"{simulation.seed}:absence").choice(followers)
        simulation.fall_ill(member, LASTS)
        simulation.network.cut_off.add(member.name)
        simulation.tell(member.name, "absent")
        simulation.world.at(simulation.world.now + LASTS, simulation.network.cut_off.clear)

    def is_unsure(self) -> bool:
        """Whether what is due now may rightly be late."""
        return (
            self._begins is not None and UNSURE[0] <= self._simulation.world.now - self._begins <= UNSURE[1]
        )

    def is_felt(self) -> bool:
        """Whether replicas may wait for one that does not ask."""
        return self._begins is not None and 0 <= self._simulation.world.now - self._begins <= LASTS + RETURNS
