"""The heartbeat: renews the presence and with it every claim, asks for leadership, and learns which claims the store
holds."""

from __future__ import annotations

from datetime import datetime

from fencepost.replica.election import TRUSTED, took_over, until_decided
from fencepost.replica.locks import log_lease
from fencepost.replica.service import Service
from fencepost.store.base import Campaign, HeartbeatReply, HeartbeatRequest

STEP = 1.0
"""Seconds by which the store's clock must differ from what was expected to have been stepped."""
MOST_LINGERING = 100
"""Bodies that go on after their runs have ended, as far as they are shown to others."""


class Heartbeat(Service):
    shortest = 0.05

    _number = 0
    _joining = True
    _lingering: tuple[str, ...] | None = ()
    """As last sent to the store; None: unknown, since that heartbeat failed."""
    _clocks: tuple[datetime, float] | None = None
    """The store's wall clock and this replica's steady one, as of the last heartbeat."""

    async def step(self) -> float:
        replica = self.replica
        settings = replica.settings
        sent = replica.clock.steady()
        self._number += 1
        lingering = replica.host.lingering[:MOST_LINGERING]
        request = HeartbeatRequest(
            replica=replica.id,
            number=self._number,
            ttl=settings.run_ttl.total_seconds(),
            heartbeat=settings.heartbeat.total_seconds(),
            host=replica.identity.host,
            pid=replica.identity.pid,
            version=replica.identity.version,
            claim_no=replica.worker.last_number,
            joining=self._joining,
            targets=replica.lanes if self._joining or replica.targets_changed else None,
            draining=replica.draining,
            lingering=lingering if self._joining or lingering != self._lingering else None,
            campaign=None if replica.draining else replica.leadership.campaign(replica.evidence),
            seen=replica.data_loss.seen,
        )
        replica.targets_changed = False
        try:
            reply = await replica.store.heartbeat(request)
        except Exception:
            replica.leadership.interrupt_observation()
            replica.janitor.interrupt_observation()
            replica.targets_changed = True
            self._lingering = None
            raise
        self._lingering = lingering
        replica.store_answered()
        self._learn(reply, request, sent)
        if replica.inspector.has_news:
            replica.inspector.wake()
        if request.targets is not None:
            replica.worker.wake()  # its last reply was for the tasks known before
        if not reply.known or replica.data_loss.has_unreported or self._should_lead(reply):
            return 0.0
        silent = replica.leadership.silent
        if silent:
            replica.janitor.wake()  # to watch the other replicas too: the next leader must know which are dead
        return until_decided(silent, reply.leader.heartbeat, settings.heartbeat.total_seconds())

    def _should_lead(self, reply: HeartbeatReply) -> bool:
        """There is evidence against the leader, but it renewed after this replica last checked: ask again now
        with what was just learned, rather than after a whole heartbeat."""
        evidence = self.replica.evidence
        return not self.replica.draining and reply.leader.holder in evidence.gone | evidence.dead

    @property
    def has_joined(self) -> bool:
        return not self._joining

    @property
    def sent_so_far(self) -> int:
        """A heartbeat with a higher number will be sent after now."""
        return self._number

    def _learn(self, reply: HeartbeatReply, request: HeartbeatRequest, sent: float) -> None:
        replica = self.replica
        replica.learn_era(reply, request.seen)
        if not reply.known and not self._joining:
            replica.emit("replica.expired", detail="this replica was declared dead; joining again")
            replica.data_loss.rejoin()
        elif reply.known and self._joining:
            replica.joined()
        self._joining = not reply.known
        self._notice_step(reply)
        self._learn_leader(reply, request.campaign, sent)
        trusted_until = sent + TRUSTED * replica.settings.run_ttl.total_seconds()
        if replica.peers.learn(reply.peers):
            replica.worker.wake()  # its turns are others now
            replica.janitor.wake()
        replica.runs.reconcile(reply.held, request.number, trusted_until, replica.worker.concluded)

    def _notice_step(self, reply: HeartbeatReply) -> None:
        """If the store's clock has stepped, what was far off may be due, and the calendars planned ahead may not
        reach far enough: all loops check again."""
        steady, before = self.replica.clock.steady(), self._clocks
        self._clocks = reply.now, steady
        if before is not None:
            passed = (reply.now - before[0]).total_seconds()
            if abs(passed - (steady - before[1])) > STEP:
                self.replica.wake_all()

    def _learn_leader(self, reply: HeartbeatReply, campaign: Campaign | None, sent: float) -> None:
        replica = self.replica
        before, trusted = replica.leadership.lease, replica.term() is not None
        silent_since = replica.leadership.renewed_at
        replica.leadership.learn(reply.leader, sent, replica.clock.steady())
        log_lease(replica.id, before, reply.leader, replica.draining)
        was, leads = before.holder == replica.id, reply.leader.holder == replica.id
        if leads and (not was or before.term != reply.leader.term):
            replica.emit("leader.elected", detail=f"term {reply.leader.term}")
            if campaign is not None and took_over(before, campaign):
                gap = f"{sent - silent_since:.1f} s after its last sign of life"
                replica.emit("leader.failover", detail=f"from {before.holder} to {replica.id}, {gap}")
        elif was and not leads:
            kind = "leader.resigned" if replica.draining else "leader.lost"
            replica.emit(kind, detail=f"term {before.term}")
        if not trusted and replica.term() is not None:
            # Newly elected, or trusted again after a silence in which the leader's loops went to sleep.
            replica.wake_all()
