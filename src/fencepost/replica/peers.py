"""The other replicas that claim the same fires, as the last heartbeat's reply named them."""

from __future__ import annotations

from collections.abc import Collection

from fencepost.clock import Clock

DISTRUSTED_FOR = 30.0
"""Seconds for which a replica that did not ask in its turn is left out: it may be full, cut off or dead."""


class Peers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ids: frozenset[str] = frozenset()
        self._distrusted: dict[str, float] = {}
        """Until when."""

    def learn(self, ids: Collection[str]) -> bool:
        """Whether they are others than before."""
        before, self._ids = self._ids, frozenset(ids)
        self._distrusted = {id: until for id, until in self._distrusted.items() if id in self._ids}
        return self._ids != before

    @property
    def trusted(self) -> frozenset[str]:
        """Those that are expected to ask in their turn."""
        now = self._clock.steady()
        return frozenset(id for id in self._ids if self._distrusted.get(id, now) <= now)

    def distrust(self, ids: Collection[str]) -> None:
        until = self._clock.steady() + DISTRUSTED_FOR
        self._distrusted.update((id, until) for id in ids)
