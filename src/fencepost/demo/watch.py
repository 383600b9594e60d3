"""What anybody can see from outside: the store, read through its interface, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fencepost.clock import SystemClock
from fencepost.model import FireRecord, ReplicaRecord, State
from fencepost.store.base import Evidence, FireQuery, Roster, Store

NOT_PLANNED = tuple(state for state in State if state is not State.PENDING)
ROWS = 60
"""Of the ledger, at each look: about 25 seconds of the demo, so that no change is overlooked."""
LINGER = 4.0
"""Seconds a replica that has gone is still shown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One replica."""

    name: str
    pid: int
    state: str
    """leads, alive, draining, overdue, dead or gone"""
    term: int
    beat_ago: float
    running: tuple[FireRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    now: datetime
    term: int = 0
    leader: Seen | None = None
    replicas: tuple[Seen, ...] = ()
    fires: tuple[FireRecord, ...] = ()
    """The newest first; none that is only planned."""


@dataclass
class Watch:
    store: Store
    paused: str | None = None
    """A job that is paused all the time."""
    counts: Counter[str] = field(default_factory=Counter)
    """Fires by final state so far, and retries."""
    picture: Picture | None = None
    news: deque[FireRecord] = field(default_factory=lambda: deque(maxlen=1000))
    """Fires that have changed since somebody took them from here, the oldest first."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _before: dict[str, FireRecord] = field(default_factory=dict)
    _beats: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By replica: its renewal count, and since when we have seen that."""
    _gone: dict[str, tuple[Seen, float]] = field(default_factory=dict)

    async def look(self) -> Picture:
        """One after the other: an older picture must not follow a newer one."""
        async with self._turn:
            return await self._look()

    async def _look(self) -> Picture:
        roster = await self.store.roster()
        evidence = await self.store.evidence([replica.id for replica in roster.replicas])
        fires = await self._fires()
        replicas = self._replicas(roster, evidence, fires)
        leader = next((each for each in replicas if each.state == "leads"), None)
        self._notice(fires)
        self.picture = Picture(roster.now, roster.leader.term, leader, replicas, fires)
        return self.picture

    async def _fires(self) -> tuple[FireRecord, ...]:
        """Neighbours that never started and share one fate are one row, where the first of them was due: that
        of the paused job must be asked for."""
        newest = await self.store.find_fires(FireQuery(states=NOT_PLANNED, limit=ROWS))
        if self.paused is None:
            return newest
        keys = {fire.key for fire in newest}
        paused = await self.store.find_fires(FireQuery(job_id=self.paused, states=(State.SKIPPED,), limit=1))
        return (*newest, *(fire for fire in paused if fire.key not in keys))

    def _replicas(self, roster: Roster, evidence: Evidence, fires: Sequence[FireRecord]) -> tuple[Seen, ...]:
        steady = SystemClock().steady()
        seen = []
        for replica in roster.replicas:
            renewals, since = self._beats.get(replica.id, (-1, 0.0))
            if renewals != replica.renewals:
                since = steady
            self._beats[replica.id] = (replica.renewals, since)
            running = tuple(f for f in fires if f.replica == replica.id and f.state is State.RUNNING)
            state = _state(replica, roster, evidence)
            seen.append(Seen(replica.host, replica.pid, state, roster.leader.term, steady - since, running))
        return self._with_gone(seen, steady)

    def _with_gone(self, seen: list[Seen], steady: float) -> tuple[Seen, ...]:
        """Those no longer on the roster stay visible for a moment."""
        here = {each.name for each in seen}
        for each in self.picture.replicas if self.picture else ():
            if each.name not in here and each.name not in self._gone:
                self._gone[each.name] = (Seen(each.name, each.pid, "gone", 0, 0.0), steady)
        self._gone = {name: gone for name, gone in self._gone.items() if steady - gone[1] < LINGER}
        seen += [gone for gone, _ in self._gone.values()]
        return tuple(sorted(seen, key=lambda each: (len(each.name), each.name)))

    def _notice(self, fires: Sequence[FireRecord]) -> None:
        for fire in reversed(fires):
            before = self._before.get(fire.key)
            if before is None or _mark(before) != _mark(fire):
                self.news.append(fire)
                self._count(before, fire)
        self._before = {fire.key: fire for fire in fires}

    def _count(self, before: FireRecord | None, fire: FireRecord) -> None:
        known = before.attempts if before else ()
        self.counts["retries"] += sum(each.outcome == "retry" for each in fire.attempts[len(known) :])
        if fire.state.final:
            counted = before.count if before and before.state.final else 0
            self.counts[fire.state.value] += fire.count - counted


def name_of(replica_id: str | None) -> str:
    """Identities are host-pid-chance, and the host is the name."""
    return (replica_id or "").partition("-")[0]


def _mark(fire: FireRecord) -> tuple[State, int, int]:
    return fire.state, fire.count, len(fire.attempts)


def _state(replica: ReplicaRecord, roster: Roster, evidence: Evidence) -> str:
    if replica.id in evidence.dead:
        return "dead"
    if replica.id in roster.overdue:
        return "overdue"
    if replica.draining:
        return "draining"
    return "leads" if roster.leader.holder == replica.id else "alive"
