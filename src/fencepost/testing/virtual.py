"""Your own scheduler in virtual time: a year of fires in seconds, with your real jobs.

    with virtual(scheduler, start=datetime(2026, 3, 28, tzinfo=UTC)) as time:
        time.advance(days=2)
        assert [fire.state for fire in time.fires("report")] == ["succeeded", "succeeded"]

Jobs run inline: coroutines share the virtual loop, where `asyncio.sleep` takes no real time; functions run to
their end while time stands still.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from fencepost.clock import seconds
from fencepost.host import InlineHost
from fencepost.model import FireRecord, State
from fencepost.replica import Identity, Replica
from fencepost.scheduler import Scheduler
from fencepost.store.base import FireQuery
from fencepost.store.memory import MemoryStore
from fencepost.testing.world import EPOCH, Process, World

T = TypeVar("T")

# Nothing fails here, so heartbeats can be rare; a virtual year would otherwise have three million of them.
PATIENT: dict[str, Any] = {
    "heartbeat": timedelta(hours=1),
    "leader_ttl": timedelta(hours=3),
    "run_ttl": timedelta(hours=3),
    "horizon": timedelta(hours=6),
}


class WorldClock:
    """The world's one true time as a `Clock`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall(self) -> datetime:
        return self._world.datetime()

    def steady(self) -> float:
        return self._world.now


class VirtualTime:
    """A replica of the scheduler in a world of its own."""

    def __init__(self, scheduler: Scheduler, start: datetime) -> None:
        self.scheduler = scheduler
        self.world = World(start)
        self.store = MemoryStore(WorldClock(self.world))
        self._process = Process(self.world, "virtual")
        self.replica: Replica | None = None

    @property
    def now(self) -> datetime:
        return self.world.datetime()

    def start(self) -> None:
        """Take part. Done by `virtual`; call it again after `stop` to see what a downtime does."""
        self.do(self._start())

    def stop(self) -> None:
        """Stop gracefully. Time can still be advanced: a downtime."""
        assert self.replica is not None
        self.do(self.replica.drain())
        self.replica = None

    def advance(self, amount: timedelta | None = None, **parts: float) -> None:
        """Let time pass: `advance(hours=25)`, `advance(timedelta(days=1))`."""
        self.world.run_until(self.world.now + seconds(amount or timedelta(**parts)))
        for error in self._process.errors:
            raise AssertionError(f"an unexpected error in the loops: {error}")

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine here, for instance `time.do(scheduler.trigger("report"))`."""
        return self._process.run_until_complete(work)

    def fires(self, job_id: str | None = None, state: State | str | None = None) -> list[FireRecord]:
        """The ledger, oldest first. Fires still to come are not in it."""
        states = (State(state),) if state else ()
        found = self.do(self.store.find_fires(FireQuery(job_id=job_id, states=states, limit=10**9)))
        return [fire for fire in reversed(found) if fire.due_at <= self.now]

    async def _start(self) -> None:
        settings = self.scheduler.settings
        self.scheduler.settings = replace(settings, **PATIENT)
        try:
            self.replica = self.scheduler.replica_on(
                self.store,
                WorldClock(self.world),
                InlineHost(),
                Identity("virtual", "virtual", 0),
                inline=True,
            )
        finally:
            self.scheduler.settings = settings
        self.replica.begin()
        await self.replica.ready()


@contextmanager
def virtual(scheduler: Scheduler, start: datetime = EPOCH) -> Iterator[VirtualTime]:
    time = VirtualTime(scheduler, start)
    time.start()
    try:
        yield time
    finally:
        if time.replica is not None:
            time.stop()
        scheduler.forget_replica()
