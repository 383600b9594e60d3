"""Several replicas in one virtual world, over one store: the memory store, or a network that can fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.model import FireRecord, Job
from fencepost.replica.notifier import Subscription
from fencepost.replica.replica import Identity, Replica
from fencepost.runs.events import Event
from fencepost.runs.host import InlineHost
from fencepost.runs.tasks import Registry, Task
from fencepost.settings import Settings
from fencepost.store.base import FireQuery, Notices, Store
from fencepost.store.memory import MemoryStore
from fencepost.testing.virtual import WorldClock
from fencepost.testing.world import Process, World
from tests.protocol.network import Network, remote_store

TTL, HEARTBEAT, HORIZON = 6.0, 2.0, 20.0


@dataclass
class Member:
    process: Process
    replica: Replica
    events: list[tuple[float, Event]] = field(default_factory=list)

    def told(self, kind: str) -> list[float]:
        """When it told events of this kind."""
        return [when for when, event in self.events if event.kind == kind]

    @property
    def leads(self) -> bool:
        return self.replica.term() is not None


class Cluster:
    def __init__(self, remote: bool = False, **settings: Any) -> None:
        self.world = World()
        self.network = Network(self.world, random.Random(1))
        self.memory = MemoryStore(WorldClock(self.world))
        self.remote = remote
        chosen = {"leader_ttl": TTL, "run_ttl": TTL, "heartbeat": HEARTBEAT, "horizon": HORIZON}
        self.settings = Settings(**{**chosen, **settings})
        self.starts: Counter[str] = Counter()
        self.started_at: dict[str, float] = {}
        self.members: list[Member] = []

    def add(self, *jobs: Job, body: Any = None, notify: Sequence[Subscription] = ()) -> Member:
        """Start one more replica. Its task `body` counts the starts, then calls the one given."""
        name = f"r{len(self.members)}"
        process = Process(self.world, name)
        store: Store = remote_store(self.network, process) if self.remote else self.memory

        async def counted(fire: Any) -> None:
            self.starts[fire.key] += 1
            self.started_at.setdefault(fire.key, self.world.now)
            if body is not None:
                await body(fire)

        registry = Registry()
        registry.add(Task.of(counted, "body"))
        replica = Replica(
            store=store,
            clock=WorldClock(self.world),
            settings=self.settings,
            registry=registry,
            host=InlineHost(),
            identity=Identity(name, name, len(self.members)),
            jobs=jobs,
            chance=random.Random(name),
            notify=notify,
            inline=bool(notify),
        )
        member = Member(process, replica)
        replica.events.subscribe(lambda event: member.events.append((self.world.now, event)))
        self.members.append(member)
        process.call_soon(replica.begin)
        return member

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)
        for member in self.members:
            assert not member.process.errors

    def until(self, condition: Any, seconds: float, step: float = 0.01) -> float:
        """How long it takes until the condition holds; fails after so many seconds."""
        begun = self.world.now
        while not condition():
            assert self.world.now < begun + seconds, f"not within {seconds} virtual seconds"
            self.run(step)
        return self.world.now - begun

    def ask(self, name: str, *args: Any) -> Any:
        """Let the store itself take a step, whatever the network is like."""
        if self.remote:
            return self.network.apply(None, name, args)
        owner = self.memory.notices if name in Notices.__abstractmethods__ else self.memory
        question = getattr(owner, name)(*args)
        try:
            question.send(None)
        except StopIteration as answer:
            return answer.value
        raise AssertionError("a memory store never waits")

    def fires(self, job_id: str | None = None) -> list[FireRecord]:
        """The ledger up to now, oldest first."""
        found: Sequence[FireRecord] = self.ask("find_fires", FireQuery(job_id=job_id, limit=1_000_000))
        return [fire for fire in reversed(found) if fire.due_at <= self.world.datetime()]

    @property
    def leader(self) -> Member | None:
        [*leading] = [m for m in self.members if not m.process.killed and m.leads]
        return leading[0] if len(leading) == 1 else None
