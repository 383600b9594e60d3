"""The worker: claims due fires as far as there is room, and starts them. Claimed fires are never queued."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost.replica.election import TRUSTED
from fencepost.replica.rank import Ahead, NextClaim, moments_to_know, next_claim
from fencepost.replica.service import Service
from fencepost.runs.events import Event
from fencepost.store.base import Claimed, ClaimRequest

MOST_AT_ONCE = 500
IN_FLIGHT = 0.02
"""Seconds that a claim of another replica may take."""


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """A claim attempt whose outcome is not known yet. It is repeated under its number until it is."""

    request: ClaimRequest
    sent: float


class Worker(Service):
    last_number = 0
    """The last claim number used."""
    concluded = 0
    """The last claim number whose reply was dealt with, or which was given up."""
    _open: OpenAttempt | None = None
    _ahead: Ahead | None = None
    """What the last reply listed."""
    _next_claim: NextClaim | None = None
    _next_claim_at = 0.0
    """On the steady clock."""

    async def step(self) -> float | None:
        replica = self.replica
        if self._open is None and (doubtful := self._doubtful_for()):
            return doubtful
        attempt = self._open or self._next_attempt()
        if attempt is None:
            return None
        self._open = attempt
        reply = await replica.store.claim_fires(attempt.request)
        self._open = None
        if self._failures:
            # It was asked before, and may have claimed then. If the store has restarted since, its answer is empty, and
            # only the reply to a heartbeat lists those claims; and with no open attempt the next heartbeat may be far
            # off.
            replica.heartbeat.wake()
        replica.data_loss.note_steps(reply.steps)
        replica.data_loss.note_claims(reply.claims)
        self._take(attempt, reply)
        self._learn_who_asked(reply)
        known, self._ahead = self._ahead, None
        self.concluded = attempt.request.number
        if doubtful := self._doubtful_for():
            return doubtful  # it was sent before the restart, so its answer says nothing of what will be due
        for loop in replica.engines:
            loop.wake()
        if replica.runs.room() == 0:
            # What an engine runs takes no slot.
            waits = replica.term() is not None or replica.engines
            return (
                replica.settings.heartbeat.total_seconds() / (2 if replica.engines else 1) if waits else None
            )
        poll = replica.settings.horizon.total_seconds() / 2
        if reply.wake_in is None:
            return poll
        return min(poll, self._until_next_claim(attempt.request, reply, reply.wake_in, known))

    def _until_next_claim(
        self, request: ClaimRequest, reply: Claimed, wake_in: float, known: Ahead | None
    ) -> float:
        """Seconds until this replica asks again: by its rank, if the reply lists what is ahead. `known`: what was
        listed before."""
        if not reply.ahead:
            return wake_in
        replica = self.replica
        self._ahead = Ahead(reply.ahead, is_all=len(reply.ahead) < request.ahead)
        self._next_claim = next_claim(replica.id, replica.peers.trusted, wake_in, self._ahead, known)
        self._next_claim_at = replica.clock.steady() + self._next_claim.seconds
        return self._next_claim.seconds

    def _learn_who_asked(self, reply: Claimed) -> None:
        """What was still due in this replica's turn was not asked for by those before it."""
        planned, self._next_claim = self._next_claim, None
        if planned is None or self.replica.clock.steady() < self._next_claim_at:
            return
        if any(claim.fire.due_at <= planned.moment for claim in reply.claims):
            self.replica.peers.distrust(planned.before)

    def due_in(self, seconds: float, moment: datetime | None) -> None:
        """The reply to a settle names what is due next. If the last claim listed it, this replica asks by its rank. If
        it is due already, another replica is probably asking for it; or this settle has let it go, and none is."""
        if self._ahead is None or not self._ahead.has(moment):
            self.step_in(seconds)
        elif not seconds:
            self.step_in(IN_FLIGHT)

    def _doubtful_for(self) -> float:
        """Seconds for which this replica claims nothing: the store's server has restarted and may have lost writes."""
        return self.replica.data_loss.seconds_until_claims(self.replica.clock.steady())

    @property
    def is_asking(self) -> bool:
        """Whether an attempt is open, which may have claimed something."""
        return self._open is not None

    def give_up(self) -> None:
        """From now on nothing more is started; what an open attempt may have claimed is given back."""
        self._open = None
        self.concluded = self.last_number

    def _next_attempt(self) -> OpenAttempt | None:
        replica = self.replica
        room = min(replica.runs.room(), MOST_AT_ONCE)
        term = replica.term()
        ready = replica.is_ready and replica.watcher.has_checked
        if replica.draining or not ready or (room == 0 and term is None and not replica.engines):
            return None
        # Without free slots the leader still asks, for none: late fires must be decided by some replica.
        self.last_number += 1
        seen = replica.data_loss.seen
        ahead = moments_to_know(len(replica.peers.trusted))
        request = ClaimRequest(replica.id, self.last_number, room, term, seen.incarnation, seen.server, ahead)
        return OpenAttempt(request, replica.clock.steady())

    def _take(self, attempt: OpenAttempt, reply: Claimed) -> None:
        replica = self.replica
        for fire in reply.closed:
            number = reply.closed_now.get(fire.key, fire.count)
            replica.events.emit(Event(fire.state.value, replica.id, fire, count=number))
        start_before = attempt.sent + TRUSTED * replica.settings.run_ttl.total_seconds()
        if replica.draining or replica.clock.steady() >= start_before:
            # The store granted these at an unknown time in the past. They may expire, or be swept and run
            # elsewhere, before a body started here would be noticed: too late to start.
            replica.runs.return_unstarted(reply.claims)
            return
        replica.runs.start(reply.claims, start_before)
