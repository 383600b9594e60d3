"""The janitor: the leader declares dead what two witnesses agree on, and forgets what is old."""

from __future__ import annotations

from fencepost.election import Observation
from fencepost.events import Event
from fencepost.service import Service
from fencepost.store.base import Suspect, Swept

PRUNE_EVERY = 3600.0


class Janitor(Service):
    shortest = 0.3

    _observation: Observation | None = None
    _suspects: tuple[Suspect, ...] = ()
    others: list[str] = []  # noqa: RUF012 (replaced, never changed)
    """The other replicas, as of the last sweep."""
    _pruned_at: float | None = None

    async def step(self) -> float | None:
        replica = self.replica
        heartbeat = replica.settings.heartbeat.total_seconds()
        term = replica.term()
        if term is None:
            self._start_over()
            return None
        if self._observation is None:
            self._observation = Observation(heartbeat)
        try:
            swept = await replica.store.sweep(replica.id, term, self._suspected())
        except Exception:
            # While the store did not answer nobody could renew: silence proves nothing.
            self._start_over()
            raise
        if swept is None:
            self._start_over()
            return None
        self._watch(swept, self._observation)
        for fire in swept.settled:
            replica.events.emit(Event("lost" if fire.state.final else "retrying", replica.id, fire))
        for dead in swept.expired:
            replica.tell("replica.expired", detail=dead)
        if swept.settled:
            replica.worker.wake()
        if swept.expired:
            replica.watcher.wake()
        await self._prune()
        # Who has not renewed since the last look is watched more closely. As a rule everybody has.
        return heartbeat / 2 if any(suspect.seconds for suspect in self._suspects) else heartbeat

    def _suspected(self) -> list[Suspect]:
        proven = self.replica.evidence.dead
        watched = [suspect for suspect in self._suspects if suspect.replica not in proven]
        return [*watched, *(Suspect(dead, 0, 0.0, dead=True) for dead in sorted(proven))]

    def _watch(self, swept: Swept, observation: Observation) -> None:
        now = self.replica.clock.steady()
        others = [other for other in swept.roster.replicas if other.id != self.replica.id]
        observation.forget_others({other.id for other in others})
        self.others = [other.id for other in others]
        self._suspects = tuple(
            Suspect(other.id, other.renewals, observation.look(other.id, other.renewals, now))
            for other in others
        )

    def _start_over(self) -> None:
        self._observation = None
        self._suspects = ()

    async def _prune(self) -> None:
        now = self.replica.clock.steady()
        if self._pruned_at is not None and now - self._pruned_at < PRUNE_EVERY:
            return
        await self.replica.store.prune(self.replica.settings.retention.total_seconds())
        self._pruned_at = now
