"""Who may be declared dead, and who may act as the leader."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from fencepost.model import FireRecord
from tests.protocol.checker.books import Attempt, Books
from tests.protocol.checker.judge import Judge, Step
from tests.protocol.network import Request

TOLERANCE = 0.997


class Presence(Judge):
    lost_with_the_store: ClassVar = ("_renewed", "_numbers")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._numbers: dict[tuple[str, str], int] = defaultdict(int)
        self._renewed: dict[str, tuple[float, float]] = {}
        """By replica: when the store last heard from it, by the true time and by the store's clock."""
        self._taken_away: set[Attempt] = set()
        """Runs whose replica was told that they are not its own any more."""
        self._given_back: set[Attempt] = set()
        """Those of them that came back when the store lost the state in which that was so. Their replica knows
        nothing of it, and has no reason to hurry back."""

    def _heartbeat(self, step: Step) -> None:
        if step.reply.known:
            self._heard(step, step.args[0].number)

    def _claim_fires(self, step: Step) -> None:
        request, lease = step.args[0], self.books.state.leader
        known = step.replica in self.books.state.replicas.rows  # and its row can be read
        if known and (request.incarnation, request.server) == (lease.era.incarnation, lease.era.server):
            self._heard(step, request.number)
        if (lease.holder, lease.term) == (request.replica, request.term):
            return
        claimed = [claim.fire for claim in step.reply.claims if self._is_new(claim.fire)]
        for fire in (*claimed, *step.reply.closed):
            if self.books.job(fire.job_id).job.execute_on == "leader":
                text = (
                    f"{fire.key} is decided for {request.replica}, which does not lead in term {request.term}"
                )
                self.books.violation("C3", text)

    def _is_new(self, fire: FireRecord) -> bool:
        return self.books.current.get(fire.key) != fire.token

    def _heard(self, step: Step, number: int) -> None:
        """Only what is new renews: a delayed message from the past is no sign of life."""
        if number > self._numbers[step.replica, step.name]:
            self._numbers[step.replica, step.name] = number
            self._renewed[step.replica] = self.books.now(), self.books.moment().steady

    def delivered(self, request: Request) -> None:
        if request.name == "update_claims":
            pairs = zip(request.args[1], request.reply.accepted, strict=True)
            self._taken_away |= {(update.key, update.token) for update, accepted in pairs if not accepted}
        elif request.name == "heartbeat":
            held = {(claim.key, claim.token) for claim in request.reply.held}
            self._taken_away |= {
                attempt
                for attempt, body in self.books.bodies.items()
                if body.process == request.process.name
                and request.sent > body.started
                and attempt not in held
            }

    def restored(self, snapshot: dict[str, Any]) -> None:
        super().restored(snapshot)
        self._given_back |= self._taken_away

    def _sweep(self, step: Step) -> None:
        if step.reply is None:
            return
        lease = self.books.state.leader
        if (lease.holder, lease.term) != step.args[:2]:
            self.books.violation("L4", f"{step.args[0]} sweeps, but does not lead in term {step.args[1]}")
        for replica in step.reply.expired:
            if replica not in self.books.dead:
                self._judge_expiry(replica, step)
        healthy = step.healthy()
        for fire in step.reply.settled:
            if fire.replica in healthy and (fire.key, fire.attempts[-1].token) not in self._given_back:
                self.books.violation("L-healthy", f"{fire.key} lost although {fire.replica} is well")

    def _judge_expiry(self, replica: str, step: Step) -> None:
        """Two witnesses. If the store's clock says that the TTL is over, somebody must have seen no renewal for
        one and a half heartbeats of true time; if it does not, for one and a half TTLs."""
        heard, clock = self._renewed.get(replica, (0.0, 0.0))
        silence = self.books.now() - heard
        expired = self.books.moment().steady - clock >= self.books.ttl * TOLERANCE
        needed = 1.5 * (self.books.heartbeat if expired else self.books.ttl)
        if silence < needed * TOLERANCE:
            self.books.violation("L-healthy", f"{replica} expired {silence:.1f} s after renewing")
        if silence < self.books.ttl:
            fires = [fire for fire in step.reply.settled if fire.replica == replica]
            self.books.excused |= {(fire.key, fire.attempts[-1].token) for fire in fires}
