"""The replicas of a simulation: each in a process of its own, with wrong clocks, running one release."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from fencepost.replica.replica import Identity, Replica
from fencepost.runs.engines import Engine
from fencepost.runs.fire import Fire
from fencepost.runs.host import InlineHost
from fencepost.runs.tasks import Registry, Task
from fencepost.settings import Settings
from fencepost.testing.world import Process
from tests.protocol.network import Network, remote_store
from tests.protocol.sim.draw import Release
from tests.protocol.sim.notices import POLL, Notices


@dataclass(eq=False)
class Member:
    process: Process
    release: Release
    wall_offset: float
    steady_offset: float
    drift: float
    replica: Replica = field(init=False)
    stopping: bool = False
    ill_until: float = 0.0
    """Until then it may rightly be declared dead: paused, cut off, or just back."""

    @property
    def name(self) -> str:
        return self.process.name

    def wall(self) -> datetime:
        return self.process.world.datetime(self.wall_offset)

    def steady(self) -> float:
        return self.process.world.now * (1 + self.drift) + self.steady_offset


Perform = Callable[[Member, Fire], Awaitable[None]]


def draw_member(chance: random.Random, process: Process, release: Release) -> Member:
    return Member(
        process,
        release,
        wall_offset=chance.choice([0.0, chance.uniform(-600, 600)]),
        steady_offset=chance.uniform(0, 1e6),
        drift=chance.uniform(-0.001, 0.001),
    )


def equip(
    member: Member,
    network: Network,
    settings: Settings,
    chance: random.Random,
    perform: Perform,
    engines: Mapping[str, Engine],
    notices: Notices,
) -> None:
    """Give it its replica."""
    registry = Registry()
    for name in member.release.tasks:

        async def body(fire: Fire, longest: float, fails: float) -> None:
            await perform(member, fire)

        if member.release.origin is None:
            body.__module__ = "unknown"  # nobody can say where its code is
        registry.add(Task.of(body, name))
    member.replica = Replica(
        store=remote_store(network, member.process),
        clock=member,
        settings=replace(settings, revision=member.release.revision, origin=member.release.origin),
        registry=registry,
        host=InlineHost(),
        identity=Identity(member.name, member.name, 1),
        jobs=list(member.release.jobs.values()),
        chance=chance,
        engines=engines,
        notify=notices.subscriptions(member),
        inline=True,
    )
    for loop in member.replica.engines:
        loop.longest_between_sends = 8.0
    if member.replica.notifier is not None:
        member.replica.notifier.poll = POLL  # hints get lost here
