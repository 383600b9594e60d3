"""The other replicas that may claim the same fires: those that know the same tasks, in the same pools."""

from __future__ import annotations

from fencepost.replica.service import Service

DISTRUSTED_FOR = 2.0
"""Seconds for which a replica that did not ask in its turn is left out. It may be full, cut off or dead."""


class Peers(Service):
    _others: frozenset[str] = frozenset()
    _read_at: float | None = None
    _distrusted: dict[str, float]

    async def step(self) -> float | None:
        replica = self.replica
        heartbeat = replica.settings.heartbeat.total_seconds()
        if not replica.heartbeat.has_joined:
            return heartbeat / 2
        roster = await replica.store.roster()
        lanes = replica.lanes
        self._others = frozenset(
            each.id
            for each in roster.replicas
            if each.id != replica.id
            and each.targets == lanes
            and not each.draining
            and each.id not in roster.overdue
        )
        self._read_at = replica.clock.steady()
        return heartbeat

    @property
    def others(self) -> frozenset[str]:
        """None, if it is not known."""
        now = self.replica.clock.steady()
        if self._read_at is None or now > self._read_at + 3 * self.replica.settings.heartbeat.total_seconds():
            return frozenset()
        missed = getattr(self, "_distrusted", {})
        return frozenset(each for each in self._others if missed.get(each, now) <= now)

    def distrust(self, replicas: frozenset[str]) -> None:
        until = self.replica.clock.steady() + DISTRUSTED_FOR
        before = getattr(self, "_distrusted", {})
        self._distrusted = {each: before[each] for each in before if each in self._others}
        self._distrusted.update(dict.fromkeys(replicas, until))
