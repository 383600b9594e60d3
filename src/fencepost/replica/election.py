"""Leadership: terms, a trust window, and what counts as having watched.

Not guaranteed: that only one replica believes it is the leader. A leader that was paused, or whose renewals are slow,
may act beside its successor. Nothing unsafe follows, because every write of a leader compares and sets:
plans on (version, cursor, until), sweeps on the term and the renewals it has seen, claims on the term. Leading
only decides who does the work of planning and sweeping, and where `execute_on="leader"` jobs run.

A term is trusted until `sent + 0.7 × TTL` on this replica's steady clock, counted from the moment the
request was *sent*: the store may have granted it at any time after that, so the lease lasts at least as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fencepost.model import Lease
from fencepost.store.base import Campaign, Evidence, Watched
from fencepost.store.rules.leadership import OBSERVED

TRUSTED = 0.7
"""The share of a TTL, counted from sending, during which its holder acts on it."""


def until_decided(silent: float, heartbeat: float, own_heartbeat: float) -> float:
    """Seconds until the next check of a replica that has been silent for so long: a heartbeat, as a rule; else when the
    observation is complete. The check after that asks for the decision. It leaves a quarter of a heartbeat in between:
    where the whole machine stood still, the others get the time to renew."""
    if not silent:
        return own_heartbeat
    return min(own_heartbeat, max(OBSERVED * heartbeat - silent, own_heartbeat / 4))


def took_over(before: Lease, campaign: Campaign) -> bool:
    """Whether a campaign that has won did so against a leader that was taken for dead. One that has resigned, or never
    was, leaves the lease to the next replica that asks."""
    watched = campaign.watched
    if before.holder is None or watched is None:
        return False
    return watched.gone or watched.seconds >= OBSERVED * before.heartbeat


@dataclass(frozen=True, slots=True)
class Silence:
    mark: object
    seconds: float
    at: float
    """When it was last checked."""
    interrupted: bool = False
    """A check has failed since."""


class Observation:
    """How long each thing has been seen unchanged, by this replica's steady clock, while the store answered.

    The time between two checks counts for a heartbeat at the most: a replica that was itself suspended has not
    watched, and must not declare all others dead when it wakes up. If a check in between has failed, it does not count
    at all; and if it was longer than a heartbeat, others may not have got through either, and the observation starts
    over.
    """

    def __init__(self, heartbeat: float) -> None:
        self._heartbeat = heartbeat
        self._seen: dict[str, Silence] = {}

    def observe(self, name: str, mark: object, steady: float) -> float:
        """Seconds for which `name` has carried this mark."""
        seen = Silence(mark, self._seconds(self._seen.get(name), mark, steady), steady)
        self._seen[name] = seen
        return seen.seconds

    def _seconds(self, before: Silence | None, mark: object, steady: float) -> float:
        if before is None or before.mark != mark:
            return 0.0
        passed = max(0.0, steady - before.at)
        if before.interrupted:
            return before.seconds if passed <= self._heartbeat else 0.0
        return before.seconds + min(passed, self._heartbeat)

    def forget_others(self, names: set[str]) -> None:
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}

    def interrupt(self) -> None:
        """A check has failed."""
        self._seen = {name: replace(seen, interrupted=True) for name, seen in self._seen.items()}


class Leadership:
    """What this replica knows of the leader, itself perhaps included."""

    def __init__(self, replica: str, ttl: float, heartbeat: float) -> None:
        self._replica = replica
        self._ttl = ttl
        self._observation = Observation(heartbeat)
        self.lease = Lease()
        self._trusted_until = float("-inf")
        self._watched: Watched | None = None
        self.renewed_at = float("-inf")
        """When this replica last saw the lease renewed, or change hands, on its steady clock."""

    def campaign(self, evidence: Evidence) -> Campaign:
        """What to ask for with the next heartbeat."""
        watched = self._watched
        if self.lease.holder in evidence.gone | evidence.dead:
            watched = Watched(self.lease.term, self.lease.renewals, 0.0, gone=True)
        return Campaign(self._ttl, watched)

    def learn(self, lease: Lease, sent: float, steady: float) -> None:
        if (lease.term, lease.renewals) != (self.lease.term, self.lease.renewals):
            self.renewed_at = steady
        self.lease = lease
        if lease.holder == self._replica:
            self._trusted_until = sent + TRUSTED * self._ttl
            self._watched = None
        else:
            self._trusted_until = float("-inf")
            seconds = self._observation.observe("leader", (lease.term, lease.renewals), steady)
            self._watched = Watched(lease.term, lease.renewals, seconds)

    @property
    def silent(self) -> float:
        """Seconds for which another leader was seen not to renew."""
        return self._watched.seconds if self._watched else 0.0

    def interrupt_observation(self) -> None:
        self._observation.interrupt()
        self._watched = None

    def term(self, steady: float) -> int | None:
        """The term this replica leads in, as far as it may trust that now."""
        return self.lease.term if steady < self._trusted_until else None
