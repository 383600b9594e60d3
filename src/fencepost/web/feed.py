"""Changes in the store as a stream of events for listeners. Every replica serves the same stream.

There is one feed per process. While it has listeners it polls the store for fires that are due and not final, fires
that fell due lately, changes of jobs, and the replicas. It sends what differs from the poll before. Polls are a second
apart; when this process's own replica did something, the next one follows at once. An event is the state of one fire,
replica or leadership *now*, as the store has it; steps in between may be left out, and an event may be sent twice.

The feed misses a fire that was due more than a few seconds ago, was in no earlier poll, and was decided by another
process between two polls, as when a backlog is closed after a downtime. The ledger has it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import FencepostError
from fencepost.insight.cluster import standing_of
from fencepost.model import FireRecord, JobEvent, State
from fencepost.model.triggers import iso
from fencepost.runs.events import Event
from fencepost.runs.recurring import RecurringErrors
from fencepost.scheduler.shutdown import Shutdown
from fencepost.store.base import FireQuery, Roster, Store
from fencepost.web.desk import Desk
from fencepost.web.listener import StreamEvent, StreamListener, shape_of
from fencepost.web.problems import Problem

log = logging.getLogger("fencepost")

POLL_EVERY = 1.0
SHORTEST = 0.1
"""Seconds between two polls, however much happens;"""
REST = 20
"""or this many times as long as the last poll took, up to `POLL_EVERY`: a busy ledger is polled less often."""
GATHER = 0.05
"""Seconds from the first local event to the poll: a short run starts and ends within, and needs only one poll."""
LINGER = 60.0
"""Seconds the feed goes on without listeners: a client that reconnects gets the events it missed."""
OVERLAP = timedelta(seconds=5)
"""How far before the last poll a poll begins: another process's write may become visible a little late."""
MOST_ROWS = 1_000
"""Rows of one poll. If more have changed, listeners get a `reset`, and their clients read everything again."""
RESET_EVERY = 10.0
"""Seconds between two such resets."""
MOST_BY_KEY = 50
KEPT = 2_000
LIVE = tuple(state for state in State if not state.final)


@dataclass(frozen=True, slots=True)
class Change:
    """A change to be sent as an event: see `StreamEvent`."""

    kind: str
    data: Mapping[str, Any]
    job_id: str | None = None
    subject: str | None = None
    record: FireRecord | JobEvent | None = None


@dataclass
class Glance:
    roster: Roster
    """Read first;"""
    at: datetime
    """and the store's time when all was read: a reading that began later has whatever this one has."""
    fires: list[FireRecord]
    jobs: tuple[JobEvent, ...]
    whole: bool
    """Whether it has every row: `MOST_ROWS` and `MOST_BY_KEY` cut nothing off."""


@dataclass
class LastPoll:
    """What the last poll read."""

    begun: datetime
    at: datetime
    fires: dict[str, FireRecord] = field(default_factory=dict)
    jobs: tuple[JobEvent, ...] = ()
    replicas: dict[str, str] = field(default_factory=dict)
    leader: tuple[str | None, int] = (None, 0)


class Feed:
    def __init__(self, desk: Desk, shutdown: Shutdown) -> None:
        self._desk = desk
        self._shutdown = shutdown
        self._listeners: set[StreamListener] = set()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._memory: LastPoll | None = None
        self._kept: deque[StreamEvent] = deque(maxlen=KEPT)
        self._kept_since: datetime | None = None
        self._named: set[str] = set()
        """Keys of fires in the events of this process's replica since the last poll."""
        self._lost = False
        self._errors = RecurringErrors(log)
        self._reset_at = -RESET_EVERY

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def polled_at(self) -> datetime | None:
        """The store's time of the last poll."""
        return self._memory.at if self._memory else None

    async def join(self, listener: StreamListener, last_id: str | None) -> None:
        """Listen from now on, or from where a stream broke off."""
        self._listeners.add(listener)
        self._shutdown.watch(listener.end)
        self._begin()
        try:
            if self._memory is None:
                await self._first_poll()
        except BaseException:
            self.leave(listener)
            raise
        assert self._memory is not None
        at = self._memory.at
        hello = StreamEvent(_id(at, 0), "hello", {"now": iso(at)}, at)
        if last_id is None:
            listener.put(hello)
        else:
            for event in self._since(last_id, at):
                if event.kind != "hello":
                    listener.put(event)
        if hello.id not in (event.id for event in self._kept):  # a reconnect with this id goes on from here
            self._kept.append(hello)

    def leave(self, listener: StreamListener) -> None:
        self._listeners.discard(listener)
        self._shutdown.forget(listener.end)

    def heard(self, event: Event) -> None:
        """Called with the scheduler's own events, on the control thread: poll now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, event.key)

    # --- polling --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._memory = None
            self._task = self._loop.create_task(self._run(), name="fencepost-feed")
            self._shutdown.watch(self._end)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        last_heard, took = loop.time(), 0.0
        try:
            while self._listeners or loop.time() < last_heard + LINGER:
                if self._listeners:
                    last_heard = loop.time()
                rest = min(max(SHORTEST, REST * took), POLL_EVERY)
                await asyncio.sleep(rest)
                await self._pause(POLL_EVERY - rest)
                began = loop.time()
                await self._guarded_poll()
                took = loop.time() - began
        finally:
            self._loop = self._memory = None
            self._shutdown.forget(self._end)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
                await asyncio.sleep(GATHER)
        except TimeoutError:
            pass
        self._woken.clear()

    async def _first_poll(self) -> None:
        """Shared by all clients that join at once: a poll for each would use up the requests that the desk allows."""
        if self._first is None or self._first.done():
            self._first = asyncio.get_running_loop().create_task(self._poll(), name="fencepost-first-look")
            self._first.add_done_callback(_retrieve)
        await asyncio.shield(self._first)

    async def _guarded_poll(self) -> None:
        try:
            await self._poll()
        except (FencepostError, Problem) as error:
            if not self._lost and self._memory is not None:
                self._lost = True
                self._publish(self._memory.at, [Change("store", {"answers": False, "detail": str(error)})])
        except Exception as error:
            self._errors.log("unexpected error while looking for changes; trying again", error)

    async def _poll(self) -> None:
        memory = self._memory
        named, self._named = self._named, set()
        glance = await self._desk.read(lambda store: _glance(store, memory, named), who="feed")
        if self._memory is not memory:
            return  # two polls ran at once; the other finished first
        changes: list[Change] = []
        if self._lost:
            self._lost = False
            changes.append(Change("store", {"answers": True}))
        self._memory = _remembered(glance)
        if memory is None:
            self._kept.clear()
            self._kept_since = glance.at
            return
        if not glance.whole and self._may_reset():
            changes.append(Change("reset", {"reason": "more changed than is told"}))
        changes += _differences(memory, self._memory, glance)
        self._publish(glance.at, changes)

    def _may_reset(self) -> bool:
        """On a ledger that is always this busy, clients must not read everything all the time."""
        now = asyncio.get_running_loop().time()
        if now < self._reset_at + RESET_EVERY:
            return False
        self._reset_at = now
        return True

    def _publish(self, at: datetime, changes: Iterable[Change]) -> None:
        for number, change in enumerate(changes, start=1):
            about = (change.job_id, change.subject, change.record)
            event = StreamEvent(_id(at, number), change.kind, change.data, at, *about)
            self._kept.append(event)
            for listener in self._listeners:
                listener.put(event)

    def _wake(self, key: str | None) -> None:
        if key is not None and len(self._named) < MOST_BY_KEY:
            self._named.add(key)
        if self._listeners:  # a client that reconnects can wait for the next poll
            self._woken.set()

    def _since(self, last_id: str, now: datetime) -> list[StreamEvent]:
        """The events after `last_id`. Ids are times of the store, so an id from another process can be placed, too, if
        this feed was polling by then; some events are sent twice rather than left out."""
        ids = [event.id for event in self._kept]
        if last_id in ids:
            return list(self._kept)[ids.index(last_id) + 1 :]
        at = _moment(last_id)
        begun = self._kept[0].at if len(self._kept) == KEPT else self._kept_since
        if at is not None and begun is not None and begun <= at - OVERLAP and at <= now + OVERLAP:
            return [event for event in self._kept if event.at > at - OVERLAP]
        return [
            StreamEvent(_id(now, 0), "reset", {"reason": "too long ago, or told by another process"}, now)
        ]


async def _glance(store: Store, memory: LastPoll | None, named: set[str]) -> Glance:
    roster = await store.roster()
    until = roster.now + datetime.resolution
    since = min(memory.begun, roster.now) if memory else roster.now
    recent = await store.find_fires(FireQuery(since=since - OVERLAP, until=until, limit=MOST_ROWS))
    live = await store.find_fires(FireQuery(states=LIVE, until=until, limit=MOST_ROWS))
    found = {fire.key: fire for fire in (*recent, *live)}
    known = [key for key, fire in memory.fires.items() if not fire.state.final] if memory else []
    wanted = [key for key in dict.fromkeys((*named, *known)) if key not in found]
    if wanted:
        some = FireQuery(keys=tuple(wanted[:MOST_BY_KEY]), limit=MOST_BY_KEY)
        found |= {fire.key: fire for fire in await store.find_fires(some)}
    # Newest first: where there is no room for all of the overlap, what fell due since the last poll still has.
    reaches = len(recent) < MOST_ROWS or recent[-1].due_at < since
    whole = reaches and len(live) < MOST_ROWS and len(wanted) <= MOST_BY_KEY
    jobs = await store.history_since(since - OVERLAP)
    fires, at = sorted(found.values(), key=lambda fire: fire.due_at), (await store.roster()).now
    return Glance(roster, at, fires, jobs, whole)


def _remembered(glance: Glance) -> LastPoll:
    roster = glance.roster
    return LastPoll(
        roster.now,
        glance.at,
        {fire.key: fire for fire in glance.fires},
        glance.jobs,
        {replica.id: standing_of(replica, roster) for replica in roster.replicas},
        (roster.leader.holder, roster.leader.term),
    )


def _differences(before: LastPoll, after: LastPoll, glance: Glance) -> Iterable[Change]:
    for event in glance.jobs:
        if event not in before.jobs:
            yield Change("job", shape_of(event), event.job_id, record=event)
    for fire in glance.fires:
        if before.fires.get(fire.key) != fire:
            yield Change("fire", shape_of(fire), fire.job_id, fire.key, fire)
    for id in sorted(before.replicas.keys() | after.replicas.keys()):
        state = after.replicas.get(id, "gone")
        if before.replicas.get(id, "gone") != state:
            yield Change("replica", {"replica": id, "state": state}, subject=id)
    if before.leader != after.leader:
        yield Change("leader", {"replica": after.leader[0], "term": after.leader[1]}, subject="")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Marks the error as retrieved, for asyncio. The clients that waited for the poll have received it."""
    if not task.cancelled():
        task.exception()


def _id(at: datetime, number: int) -> str:
    return f"{iso(at)}~{number}"


def _moment(id: str) -> datetime | None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z~\d{1,4}", id):
        return None
    try:
        return datetime.fromisoformat(id.partition("~")[0])
    except ValueError:
        return None
