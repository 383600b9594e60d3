"""What this replica was told by the store: proof, should the store forget (`docs/decisions/0016-data-loss.md`)."""

from __future__ import annotations

from datetime import datetime

from fencepost.model import Lease
from fencepost.store.base import Seen


class Testimony:
    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self.seen = Seen()
        self._incarnation: int | None = None
        self._lost_through: datetime | None = None
        self._claims_from = float("-inf")

    def told(self, steps: int) -> None:
        """By the reply to a claim or an update."""
        if steps > self.seen.steps:
            self.seen = Seen(self.seen.incarnation, self.seen.term, steps)

    def learn(self, lease: Lease, steps: int, steady: float) -> bool:
        """From the answer to a beat: whether the store has lost data since the one before.

        While there is doubt about an incarnation nothing is claimed in it for one TTL of this replica's own
        clock, so that everybody who can be heard of has been.
        """
        era, first = lease.era, self._incarnation is None
        if era.standing == "settled":
            self._claims_from = float("-inf")
        elif era.incarnation != self._incarnation:
            self._claims_from = steady + self._ttl
        lost = not first and era.lost_through != self._lost_through
        self._incarnation, self._lost_through = era.incarnation, era.lost_through
        newer = era.incarnation > self.seen.incarnation
        term = lease.term if newer else max(lease.term, self.seen.term)
        self.seen = Seen(era.incarnation, term, max(steps, self.seen.steps))
        return lost

    def wait(self, steady: float) -> float:
        """Seconds until this replica may claim."""
        return max(0.0, self._claims_from - steady)
