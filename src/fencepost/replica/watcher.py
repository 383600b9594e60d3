"""The watcher: looks for evidence that makes waiting for a TTL needless."""

from __future__ import annotations

from fencepost.replica.service import Service
from fencepost.store.base import Evidence

PATIENCE = 2.0
"""Seconds for which a replica that has joined claims nothing because of others that are dead."""


class Watcher(Service):
    """A follower watches the leader, the leader everybody else. What it finds wakes those who act on it."""

    has_looked = False
    """Whether this replica may claim. A process that crashes and is started again finds its own dead self, whose run
    is still in the ledger as active; what is due must not be skipped on account of it. So the first look is at
    everybody, and while somebody is proven dead there are no claims until the leader, perhaps this replica, has
    settled what the dead one ran."""
    _gives_up_at: float | None = None

    async def step(self) -> float | None:
        replica = self.replica
        before = replica.evidence
        if not self.has_looked:
            replica.evidence = await self._first_look()
        elif replica.store.evidence_every is not None and (others := self._others()):
            replica.evidence = await replica.store.evidence(others)
        if replica.evidence.dead - before.dead or replica.evidence.gone - before.gone:
            replica.heart.wake()
            replica.janitor.wake()
        return replica.store.evidence_every

    async def _first_look(self) -> Evidence:
        replica, now = self.replica, self.replica.clock.steady()
        if not replica.heart.has_joined:
            return replica.evidence
        replica.janitor.watch(await replica.store.roster())
        others = replica.janitor.others
        evidence = await replica.store.evidence(others) if others else Evidence()
        if self._gives_up_at is None:
            self._gives_up_at = now + PATIENCE
        if not evidence.dead or now >= self._gives_up_at:
            self.has_looked = True
            replica.worker.wake()
        return evidence

    def _others(self) -> list[str]:
        replica = self.replica
        if replica.term() is not None:
            return replica.janitor.others
        holder = replica.leadership.lease.holder
        return [holder] if holder is not None and holder != replica.id else []
