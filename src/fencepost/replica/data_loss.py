"""The data-loss detector: what this replica has seen of the store, sent with every heartbeat. A store that knows less
than one of its replicas has lost acknowledged writes (`docs/decisions/0016-data-loss.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from fencepost.model import Era
from fencepost.model.replicas import STEPS_OF_A_PRESENCE
from fencepost.store.base import Claim, HeartbeatReply, Seen


class DataLossDetector:
    def __init__(self, doubtful_for: float) -> None:
        """`doubtful_for`: seconds for which nothing is claimed after a restart of the store's server is noticed."""
        self._doubtful_for = doubtful_for
        self.seen = Seen()
        self._era: Era | None = None
        self._claims_from = float("-inf")

    def note_steps(self, steps: int) -> None:
        """From the reply to a claim or an update."""
        if steps > self.seen.steps:
            self.seen = replace(self.seen, steps=steps)

    def note_claims(self, claims: Sequence[Claim]) -> None:
        """The claims carry the moment of the store's clock at which they were made."""
        moments = [claim.fire.started_at for claim in claims if claim.fire.started_at is not None]
        if moments:
            self.seen = replace(self.seen, latest=max([*moments, self.seen.latest or moments[0]]))

    def rejoin(self) -> None:
        """This replica was declared dead and joins again. The store may have counted steps whose replies were lost, and
        may fall back to that count: counting goes on above it, so that a loss is still noticed."""
        self.seen = replace(
            self.seen, steps=(self.seen.steps // STEPS_OF_A_PRESENCE + 1) * STEPS_OF_A_PRESENCE
        )

    def note_heartbeat(self, reply: HeartbeatReply, steady: float) -> bool:
        """Whether the store has lost data since the heartbeat before this one.

        After a restart of its server nothing is claimed for a while, measured by this replica's own clock, so that
        every live replica can report what it has seen first.
        """
        lease, era, before = reply.leader, reply.leader.era, self._era
        same = before is not None and (era.incarnation, era.server) == (before.incarnation, before.server)
        if era.standing == "settled":
            self._claims_from = float("-inf")
        elif not same:
            self._claims_from = steady + self._doubtful_for
        term = max(lease.term, self.seen.term) if same else lease.term
        latest = max(reply.now, self.seen.latest or reply.now) if same else reply.now
        if era.lost_through is not None:
            # The store may lose the record of this loss while its clock is behind. The next loss it records must
            # cover at least as much, and differ from this one.
            latest = max(latest, era.lost_through + timedelta(microseconds=1))
        self.seen = Seen(era.incarnation, term, max(reply.steps, self.seen.steps), era.server, latest)
        self._era = era
        return before is not None and not same and era.lost_through != before.lost_through

    def seconds_until_claims(self, steady: float) -> float:
        """Seconds until this replica may claim."""
        return max(0.0, self._claims_from - steady)
