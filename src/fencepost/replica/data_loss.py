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
        self.has_unreported = False
        """Whether something was seen of an earlier run of the store's server that no heartbeat has reported."""
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

    def note_heartbeat(self, reply: HeartbeatReply, reported: Seen, steady: float) -> bool:
        """Whether the store has lost data since the heartbeat before this one. `reported`: what this one said was seen.

        After a restart of its server nothing is claimed for a while, measured by this replica's own clock, so that
        every live replica can report what it has seen first.
        """
        era, before = reply.leader.era, self._era
        same = before is not None and (era.incarnation, era.server) == (before.incarnation, before.server)
        if era.standing == "settled":
            self._claims_from = float("-inf")
        elif not same:
            self._claims_from = steady + self._doubtful_for
        self._era = era
        is_of_seen = (era.incarnation, era.server) == (self.seen.incarnation, self.seen.server)
        self.has_unreported = not is_of_seen and self.seen != reported
        if self.has_unreported:
            self._report_again(reply)
        else:
            self._learn(reply, is_of_seen)
        return before is not None and not same and era.lost_through != before.lost_through

    def _learn(self, reply: HeartbeatReply, is_of_seen: bool) -> None:
        """`is_of_seen`: the reply is of the run of the server that was seen last."""
        lease, era = reply.leader, reply.leader.era
        term = max(lease.term, self.seen.term) if is_of_seen else lease.term
        latest = max(reply.now, self.seen.latest or reply.now) if is_of_seen else reply.now
        if era.lost_through is not None:
            # The store may lose the record of this loss while its clock is behind. The next loss it records must
            # cover at least as much, and differ from this one.
            latest = max(latest, era.lost_through + timedelta(microseconds=1))
        self.seen = Seen(era.incarnation, term, max(reply.steps, self.seen.steps), era.server, latest)

    def _report_again(self, reply: HeartbeatReply) -> None:
        """A heartbeat is composed before it finds its server, and that may be another one by then: one that Sentinels
        have promoted, or the next start of the same. What the old one granted in between is in no heartbeat yet, and
        the next must report it as seen of the old one.

        The heartbeat itself was counted. If the new server had all the steps that were seen, it would have counted
        more than those; if not, its count must not make up for a step that it lacks.
        """
        if reply.steps == self.seen.steps:
            self.seen = replace(self.seen, steps=reply.steps + 1)

    def seconds_until_claims(self, steady: float) -> float:
        """Seconds until this replica may claim."""
        return max(0.0, self._claims_from - steady)
