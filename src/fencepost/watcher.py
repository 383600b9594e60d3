"""The watcher: looks for evidence that makes waiting for a TTL needless."""

from __future__ import annotations

from fencepost.service import Service


class Watcher(Service):
    """A follower watches the leader, the leader everybody else. What it finds wakes those who act on it."""

    async def step(self) -> float | None:
        replica = self.replica
        every = replica.store.evidence_every
        if every is None:
            return None
        others = self._others()
        before = replica.evidence
        if others:
            replica.evidence = await replica.store.evidence(others)
        if replica.evidence.dead - before.dead or replica.evidence.gone - before.gone:
            replica.heart.wake()
            replica.janitor.wake()
        return every

    def _others(self) -> list[str]:
        replica = self.replica
        if replica.term() is not None:
            return replica.janitor.others
        holder = replica.leadership.lease.holder
        return [holder] if holder is not None and holder != replica.id else []
