"""The fault of a server that moves: a heartbeat is composed, asks where the primary is, and may reach another than the
one that answered its replica meanwhile.

Drawn apart from the other faults, for some seeds, so that other seeds keep their histories.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.protocol.sim.focus import Focus

SHARE = 0.5
"""Of heartbeats that take long to find their server."""
LONGEST = 0.9
"""Seconds: the reply comes before the client gives up."""


class Moves:
    def __init__(self, seed: int, focus: Focus, is_calm: Callable[[], bool]) -> None:
        self._chance = random.Random(f"{seed}:moves")
        self._on = focus.has("moves", self._chance.random())
        self._is_calm = is_calm

    def seconds(self, name: str) -> float:
        """How long a request of this name takes to find its server."""
        if not self._on or name != "heartbeat" or self._is_calm() or self._chance.random() > SHARE:
            return 0.0
        return self._chance.uniform(0.0, LONGEST)
