"""What this replica was told by the store: proof, should the store forget (`docs/decisions/0016-data-loss.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from fencepost.model import Era
from fencepost.store.base import Claim, Pulse, Seen

A_PRESENCE = 1 << 32
"""More steps than any presence counts."""


class Testimony:
    def __init__(self, doubtful_for: float) -> None:
        """`doubtful_for`: seconds for which nothing is claimed after a restart of the store's server is noticed."""
        self._doubtful_for = doubtful_for
        self.seen = Seen()
        self._era: Era | None = None
        self._claims_from = float("-inf")

    def told(self, steps: int) -> None:
        """By the reply to a claim or an update."""
        if steps > self.seen.steps:
            self.seen = replace(self.seen, steps=steps)

    def claimed(self, claims: Sequence[Claim]) -> None:
        """At some moment of the store's clock, which the claims tell."""
        moments = [claim.fire.started_at for claim in claims if claim.fire.started_at is not None]
        if moments:
            self.seen = replace(self.seen, latest=max([*moments, self.seen.latest or moments[0]]))

    def begin_again(self) -> None:
        """This replica was declared dead and joins anew. The store may have counted more steps for it than it was told
        of, and may go back to that: what is counted from now on is higher, so that it proves the loss."""
        self.seen = replace(self.seen, steps=(self.seen.steps // A_PRESENCE + 1) * A_PRESENCE)

    def learn(self, pulse: Pulse, steady: float) -> bool:
        """From the answer to a beat: whether the store has lost data since the one before.

        While there is doubt about an incarnation nothing is claimed in it for a while of this replica's own clock, so
        that every replica that can be heard of has been.
        """
        lease, era, before = pulse.leader, pulse.leader.era, self._era
        same = before is not None and (era.incarnation, era.server) == (before.incarnation, before.server)
        if era.standing == "settled":
            self._claims_from = float("-inf")
        elif not same:
            self._claims_from = steady + self._doubtful_for
        term = max(lease.term, self.seen.term) if same else lease.term
        latest = max(pulse.now, self.seen.latest or pulse.now) if same else pulse.now
        if era.lost_through is not None:
            # The store may forget that it noticed, while its clock is behind. What it notices next shall cover as much,
            # and differ from this.
            latest = max(latest, era.lost_through + timedelta(microseconds=1))
        self.seen = Seen(era.incarnation, term, max(pulse.steps, self.seen.steps), era.server, latest)
        self._era = era
        return before is not None and not same and era.lost_through != before.lost_through

    def wait(self, steady: float) -> float:
        """Seconds until this replica may claim."""
        return max(0.0, self._claims_from - steady)
