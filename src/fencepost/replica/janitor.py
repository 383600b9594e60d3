"""The janitor: the leader declares replicas dead on which two witnesses agree, and prunes the ledger."""

from __future__ import annotations

from fencepost.model import ReplicaRecord
from fencepost.replica.election import Observation, until_decided
from fencepost.replica.service import Service
from fencepost.runs.events import Event
from fencepost.store.base import Roster, Suspect

PRUNE_EVERY = 3600.0
ALONE = 3
"""Heartbeats between two checks of a leader without other replicas. One that joins wakes it: by a hint, or as a peer in
the reply to the leader's next heartbeat."""


class Janitor(Service):
    shortest = 0.3

    _observation: Observation | None = None
    _silent: tuple[tuple[ReplicaRecord, float], ...] = ()
    """The other replicas as they were last seen, and for how many seconds each was seen not to renew."""
    _pruned_at: float | None = None

    async def step(self) -> float | None:
        replica = self.replica
        term = replica.term()
        try:
            if term is None:
                if replica.leadership.silent:
                    self.watch(await replica.store.roster())
                return None
            swept = await replica.store.sweep(replica.id, term, self._suspected())
        except Exception:
            self.interrupt_observation()
            raise
        if swept is None:
            return None
        self.watch(swept.roster)
        for fire in swept.settled:
            replica.events.emit(Event("lost" if fire.state.final else "retrying", replica.id, fire))
        for dead in swept.expired:
            replica.emit("replica.expired", detail=dead)
        if swept.settled:
            replica.worker.wake()
        if swept.expired:
            replica.watcher.wake()
        await self._prune()
        heartbeat = replica.settings.heartbeat.total_seconds()
        checks = (until_decided(silent, other.heartbeat, heartbeat) for other, silent in self._silent)
        return min(checks, default=ALONE * heartbeat)

    @property
    def others(self) -> list[str]:
        """The other replicas, as of the last check."""
        return [other.id for other, _ in self._silent]

    def watch(self, roster: Roster) -> None:
        """Note which replicas have renewed. A follower does so too: when it has joined, and while the leader is silent.
        Once elected it already knows which replicas are dead."""
        if self._observation is None:
            self._observation = Observation(self.replica.settings.heartbeat.total_seconds())
        observe, now = self._observation.observe, self.replica.clock.steady()
        others = [other for other in roster.replicas if other.id != self.replica.id]
        self._observation.forget_others({other.id for other in others})
        # A replica that was declared dead and has joined again counts its renewals from zero.
        marks = {other.id: (other.joined_at, other.renewals) for other in others}
        if not marks.keys() <= set(self.others):
            self.replica.watcher.wake()  # evidence against a newcomer may have been reported before it was known
        self._silent = tuple((other, observe(other.id, marks[other.id], now)) for other in others)
        if roster.leader.term > self.replica.leadership.lease.term:
            self.replica.heartbeat.wake()  # to learn who leads: evidence is collected against a known leader only

    def interrupt_observation(self) -> None:
        """No replica can renew while the store does not answer: that silence proves nothing."""
        if self._observation is not None:
            self._observation.interrupt()
        self._silent = tuple((other, 0.0) for other, _ in self._silent)

    def _suspected(self) -> list[Suspect]:
        proven = self.replica.evidence.dead
        watched = [
            Suspect(other.id, other.renewals, silent)
            for other, silent in self._silent
            if other.id not in proven
        ]
        return [*watched, *(Suspect(dead, 0, 0.0, dead=True) for dead in sorted(proven))]

    async def _prune(self) -> None:
        now = self.replica.clock.steady()
        if self._pruned_at is not None and now - self._pruned_at < PRUNE_EVERY:
            return
        await self.replica.store.prune(self.replica.settings.retention.total_seconds())
        self._pruned_at = now
