"""The watcher: collects evidence of dead replicas, so that their TTL need not be waited for."""

from __future__ import annotations

from fencepost.replica.service import Service
from fencepost.store.base import Evidence

PATIENCE = 2.0
"""Seconds for which a replica that has joined claims nothing on account of dead ones."""


class Watcher(Service):
    """A follower watches the leader, the leader all other replicas. New evidence wakes the loops that act on it.

    Where evidence costs a question to the server, one leader that says twice a second that it is there is cheaper than
    many followers that ask: they ask when it falls silent.
    """

    has_checked = False
    """Whether this replica may claim. A process that is started again after a crash finds the replica it was before,
    whose run is still active in the ledger; a due fire must not be skipped because of that run. So the first check
    covers all replicas, and while one of them is proven dead this replica claims nothing until the leader (perhaps
    this replica) has settled the runs of the dead one."""
    _gives_up_at: float | None = None

    async def step(self) -> float | None:
        replica = self.replica
        before = replica.evidence
        if not self.has_checked:
            replica.evidence = await self._first_check()
        elif replica.term() is not None and replica.store.assure_every is not None:
            if replica.janitor.others:
                await replica.store.assure(replica.id)
            return replica.store.assure_every
        elif replica.store.evidence_every is not None and (others := self._others()):
            replica.evidence = await replica.store.evidence(others)
        if new := (replica.evidence.dead - before.dead) | (replica.evidence.gone - before.gone):
            replica.peers.distrust(new)
            replica.worker.wake()
            replica.heartbeat.wake()
            replica.janitor.wake()
        return replica.store.evidence_every

    async def _first_check(self) -> Evidence:
        replica, now = self.replica, self.replica.clock.steady()
        if not replica.heartbeat.has_joined:
            return replica.evidence
        replica.janitor.watch(await replica.store.roster())
        others = replica.janitor.others
        evidence = await replica.store.evidence(others) if others else Evidence()
        if self._gives_up_at is None:
            self._gives_up_at = now + PATIENCE
        if not evidence.dead or now >= self._gives_up_at:
            self.has_checked = True
            replica.worker.wake()
        return evidence

    def _others(self) -> list[str]:
        replica = self.replica
        if replica.term() is not None:
            return replica.janitor.others if replica.store.proves_death else []
        holder = replica.leadership.lease.holder
        return [holder] if holder is not None and holder != replica.id else []
