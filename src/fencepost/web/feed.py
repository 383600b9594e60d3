"""What changes in the store, for whoever listens: the same whichever replica serves it.

One feed per process, which looks while somebody listens: at what is due and not final, at what fell due lately, at
what was changed in jobs, at whoever takes part. What differs from the look before is told. Looks are a second apart,
and follow at once when this process's own replica did something. An event is the state of one fire, replica or
leadership *now*, as the store has it; steps in between may be left out, and telling one twice does no harm.

Not seen: a fire that was due more than a few seconds ago, was never seen waiting, and was decided by another process
between two looks, as when a backlog is closed after a downtime. The ledger has it.
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
from fencepost.insight.views.shapes import event_shape, fire_shape
from fencepost.model import FireRecord, JobEvent, State
from fencepost.model.triggers import iso
from fencepost.runs.events import Event
from fencepost.runs.recurring import RecurringErrors
from fencepost.scheduler.shutdown import Shutdown
from fencepost.store.base import FireQuery, Roster, Store
from fencepost.web.desk import Desk
from fencepost.web.listener import Listener, Told
from fencepost.web.problems import Problem

log = logging.getLogger("fencepost")

LOOK_EVERY = 1.0
SHORTEST = 0.1
"""Seconds between two looks, however much happens;"""
REST = 20
"""and so many times as long as the look took: a busy ledger is looked at less often."""
GATHER = 0.05
"""Seconds from the first news to the look: a short run starts and ends within, and is looked at once."""
LINGER = 60.0
"""Seconds the feed goes on without listeners: whoever comes back finds what was told meanwhile."""
OVERLAP = timedelta(seconds=5)
"""How far before the last look fires are looked for: another process's write may become visible a little late."""
MOST_ROWS = 1_000
"""Of one look. If more have changed since the last, listeners are told to read anew, every so many seconds:"""
RESET_EVERY = 10.0
MOST_BY_KEY = 50
KEPT = 2_000
LIVE = tuple(state for state in State if not state.final)


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be told: see `Told`."""

    kind: str
    data: Mapping[str, Any]
    job_id: str | None = None
    subject: str | None = None


@dataclass
class Glance:
    roster: Roster
    fires: list[FireRecord]
    jobs: tuple[JobEvent, ...]
    whole: bool
    """Whether nothing was left out for its number."""


@dataclass
class Memory:
    """What the last look saw."""

    at: datetime
    fires: dict[str, FireRecord] = field(default_factory=dict)
    jobs: tuple[JobEvent, ...] = ()
    replicas: dict[str, str] = field(default_factory=dict)
    leader: tuple[str | None, int] = (None, 0)


class Feed:
    def __init__(self, desk: Desk, shutdown: Shutdown) -> None:
        self._desk = desk
        self._shutdown = shutdown
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._memory: Memory | None = None
        self._kept: deque[Told] = deque(maxlen=KEPT)
        self._kept_since: datetime | None = None
        self._named: set[str] = set()
        """Keys that this process's replica told of."""
        self._lost = False
        self._errors = RecurringErrors(log)
        self._reset_at = -RESET_EVERY

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def looked_at(self) -> datetime | None:
        """The store's time of the last look."""
        return self._memory.at if self._memory else None

    async def join(self, listener: Listener, last_id: str | None) -> None:
        """Listen from now on, or from where a stream broke off."""
        self._listeners.add(listener)
        self._shutdown.watch(listener.end)
        self._begin()
        try:
            if self._memory is None:
                await self._first_look()
        except BaseException:
            self.leave(listener)
            raise
        assert self._memory is not None
        at = self._memory.at
        hello = Told(_id(at, 0), "hello", {"now": iso(at)}, at)
        if last_id is None:
            listener.put(hello)
        else:
            for told in self._since(last_id, at):
                if told.kind != "hello":
                    listener.put(told)
        if hello.id not in (told.id for told in self._kept):  # who comes back with it goes on from here
            self._kept.append(hello)

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self._shutdown.forget(listener.end)

    def heard(self, event: Event) -> None:
        """From the scheduler's own events, on the control thread: look now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, event.key)

    # --- looking --------------------------------------------------------------------------------------------

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
                rest = min(max(SHORTEST, REST * took), LOOK_EVERY)
                await asyncio.sleep(rest)
                await self._pause(LOOK_EVERY - rest)
                began = loop.time()
                await self._guarded_look()
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

    async def _first_look(self) -> None:
        """One for all who come at once: each with a look of its own would use up what the store's desk allows."""
        if self._first is None or self._first.done():
            self._first = asyncio.get_running_loop().create_task(self._look(), name="fencepost-first-look")
            self._first.add_done_callback(_retrieve)
        await asyncio.shield(self._first)

    async def _guarded_look(self) -> None:
        try:
            await self._look()
        except (FencepostError, Problem) as error:
            if not self._lost and self._memory is not None:
                self._lost = True
                self._tell(self._memory.at, [Change("store", {"answers": False, "detail": str(error)})])
        except Exception as error:
            self._errors.log("unexpected error while looking for changes; trying again", error)

    async def _look(self) -> None:
        memory = self._memory
        named, self._named = self._named, set()
        glance = await self._desk.look(lambda store: _glance(store, memory, named), who="feed")
        if self._memory is not memory:
            return  # two looked at once; the other was first
        changes: list[Change] = []
        if self._lost:
            self._lost = False
            changes.append(Change("store", {"answers": True}))
        self._memory = _remembered(glance)
        if memory is None:
            self._kept.clear()
            self._kept_since = glance.roster.now
            return
        if not glance.whole and self._may_reset():
            changes.append(Change("reset", {"reason": "more changed than is told"}))
        changes += _differences(memory, self._memory, glance)
        self._tell(glance.roster.now, changes)

    def _may_reset(self) -> bool:
        """A ledger that is always busier than this must not make everybody read all of it all the time."""
        now = asyncio.get_running_loop().time()
        if now < self._reset_at + RESET_EVERY:
            return False
        self._reset_at = now
        return True

    def _tell(self, at: datetime, changes: Iterable[Change]) -> None:
        for number, change in enumerate(changes, start=1):
            told = Told(_id(at, number), change.kind, change.data, at, change.job_id, change.subject)
            self._kept.append(told)
            for listener in self._listeners:
                listener.put(told)

    def _wake(self, key: str | None) -> None:
        if key is not None and len(self._named) < MOST_BY_KEY:
            self._named.add(key)
        if self._listeners:  # who comes back can wait for the next look
            self._woken.set()

    def _since(self, last_id: str, now: datetime) -> list[Told]:
        """What was told after that. Identifiers are times of the store, so one of another process can be placed, too,
        if this one has looked since before then; a little is told twice rather than left out."""
        ids = [told.id for told in self._kept]
        if last_id in ids:
            return list(self._kept)[ids.index(last_id) + 1 :]
        at = _moment(last_id)
        begun = self._kept[0].at if len(self._kept) == KEPT else self._kept_since
        if at is not None and begun is not None and begun <= at - OVERLAP and at <= now + OVERLAP:
            return [told for told in self._kept if told.at > at - OVERLAP]
        return [Told(_id(now, 0), "reset", {"reason": "too long ago, or told by another process"}, now)]


async def _glance(store: Store, memory: Memory | None, named: set[str]) -> Glance:
    roster = await store.roster()
    until = roster.now + datetime.resolution
    since = min(memory.at, roster.now) if memory else roster.now
    recent = await store.find_fires(FireQuery(since=since - OVERLAP, until=until, limit=MOST_ROWS))
    live = await store.find_fires(FireQuery(states=LIVE, until=until, limit=MOST_ROWS))
    found = {fire.key: fire for fire in (*recent, *live)}
    known = [key for key, fire in memory.fires.items() if not fire.state.final] if memory else []
    wanted = [key for key in dict.fromkeys((*named, *known)) if key not in found]
    if wanted:
        some = FireQuery(keys=tuple(wanted[:MOST_BY_KEY]), limit=MOST_BY_KEY)
        found |= {fire.key: fire for fire in await store.find_fires(some)}
    # Newest first: where there is no room for all of the overlap, what fell due since the last look still is.
    reaches = len(recent) < MOST_ROWS or recent[-1].due_at < since
    whole = reaches and len(live) < MOST_ROWS and len(wanted) <= MOST_BY_KEY
    jobs = await store.history_since(since - OVERLAP)
    return Glance(roster, sorted(found.values(), key=lambda fire: fire.due_at), jobs, whole)


def _remembered(glance: Glance) -> Memory:
    roster = glance.roster
    return Memory(
        roster.now,
        {fire.key: fire for fire in glance.fires},
        glance.jobs,
        {replica.id: standing_of(replica, roster) for replica in roster.replicas},
        (roster.leader.holder, roster.leader.term),
    )


def _differences(before: Memory, after: Memory, glance: Glance) -> Iterable[Change]:
    for event in glance.jobs:
        if event not in before.jobs:
            yield Change("job", {"job_id": event.job_id, **event_shape(event)}, event.job_id)
    for fire in glance.fires:
        if before.fires.get(fire.key) != fire:
            progress = None if fire.progress is None else dict(fire.progress)
            yield Change("fire", {**fire_shape(fire), "progress": progress}, fire.job_id, fire.key)
    for id in sorted(before.replicas.keys() | after.replicas.keys()):
        state = after.replicas.get(id, "gone")
        if before.replicas.get(id, "gone") != state:
            yield Change("replica", {"replica": id, "state": state}, subject=id)
    if before.leader != after.leader:
        yield Change("leader", {"replica": after.leader[0], "term": after.leader[1]}, subject="")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Who waited for it has its error. If all have gone, nobody needs it."""
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
