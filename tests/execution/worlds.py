"""Replicas of real schedulers in virtual time, over any store.

A store that does I/O takes its steps on an event loop and a thread of its own, while virtual time stands still; so a
step takes no time, and one store object serves all replicas of the world.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from fencepost import Event, Scheduler
from fencepost.model import FireRecord
from fencepost.replica.replica import Identity, Replica
from fencepost.runs.host import InlineHost
from fencepost.store.base import FireQuery, Notices, Store
from fencepost.store.waiting import Waiters
from fencepost.testing.virtual import WorldClock
from fencepost.testing.world import Process, World

T = TypeVar("T")

TTL, HEARTBEAT = 6.0, 2.0


@dataclass
class Member:
    """One replica, in a process of its own."""

    world: Replicas
    process: Process
    scheduler: Scheduler
    replica: Replica
    events: list[Event] = field(default_factory=list)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.process.run_until_complete(work)

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        """The graceful way."""
        self.do(self.replica.drain())

    def told(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


class Replicas:
    def __init__(self, make: Callable[[WorldClock], Store]) -> None:
        self.world = World()
        self._real = make(WorldClock(self.world))
        self._aside = Aside()
        self._aside.ask(self._real.open())
        self.store = unhurried(self._real, self._aside)
        self.members: list[Member] = []

    def close(self) -> None:
        self._aside.ask(self._real.close())
        self._aside.close()

    def start(self, declare: Callable[[Scheduler], None], **settings: Any) -> Member:
        """One more replica, with the jobs that `declare` gives it."""
        scheduler = Scheduler(
            store=self.store, **{"leader_ttl": TTL, "run_ttl": TTL, "heartbeat": HEARTBEAT, **settings}
        )
        declare(scheduler)
        name = f"r{len(self.members)}"
        process = Process(self.world, name)
        identity = Identity(name, name, len(self.members))
        replica = scheduler.lifecycle.replica_on(
            self.store, WorldClock(self.world), InlineHost(), identity, inline=True
        )
        member = Member(self, process, scheduler, replica)
        scheduler.events.subscribe(member.events.append)
        self.members.append(member)
        process.call_soon(replica.begin)
        member.do(replica.ready())
        return member

    # --- time ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.world.datetime()

    def advance(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)
        for member in self.members:
            assert not member.process.errors

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> float:
        """How long it takes; fails after so many virtual seconds."""
        begun = self.world.now
        while not condition():
            assert self.world.now < begun + seconds, f"not within {seconds} virtual seconds"
            self.advance(0.25)
        return self.world.now - begun

    # --- the ledger -----------------------------------------------------------------------------------------

    def fires(self, job_id: str | None = None) -> list[FireRecord]:
        """Up to now, oldest first."""
        found = self._aside.ask(self._real.find_fires(FireQuery(job_id=job_id, limit=10_000)))
        return [fire for fire in reversed(found) if fire.due_at <= self.now]

    def fire(self, key: str) -> FireRecord:
        [found] = self._aside.ask(self._real.find_fires(FireQuery(key=key)))
        return found

    def states(self, job_id: str) -> list[str]:
        """What became of each, as `missed: misfire` or `skipped: overlap × 3`."""
        return [
            f"{fire.state}{f': {fire.reason}' if fire.reason else ''}{f' × {fire.count}' if fire.count > 1 else ''}"
            for fire in self.fires(job_id)
        ]


class Aside:
    """An event loop on a thread of its own, asked from where another loop is running."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


def unhurried(real: Store, aside: Aside) -> Store:
    """The store in a world whose time stands still while it takes a step."""
    hints = Waiters()

    def method(name: str, of: Store | Notices = real) -> Callable[..., Any]:
        async def call(self: object, *args: Any, **kwargs: Any) -> Any:
            answer = aside.ask(getattr(of, name)(*args, **kwargs))
            if name in HINTING:
                hints.wake()
            return answer

        return call

    async def nothing(self: Store) -> None:
        return None

    async def wait(self: Store, seconds: float) -> bool:
        return await hints.wait(seconds)

    methods: dict[str, Any] = {name: method(name) for name in sorted(Store.__abstractmethods__)}
    notices = {name: method(name, real.notices) for name in Notices.__abstractmethods__}
    methods |= {"open": nothing, "close": nothing, "wait": wait}
    methods["notices"] = type("UnhurriedNotices", (Notices,), notices)()
    methods |= {
        name: getattr(real, name)
        for name in ("shared", "remembers_empty_claims", "may_lose_writes", "unreadable")
    }
    made: Store = type("Unhurried", (Store,), methods)()
    return made


HINTING = ("add_fire", "cancel_fire", "change_job", "put_jobs", "leave", "update_claims")
"""Steps after which somebody may have something to do."""
