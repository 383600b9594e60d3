"""A channel of the simulated application, in some seeds: it fails now and then, and its process dies before a
delivery, or between a delivery and its mark. Drawn apart from the rest, so that other seeds keep their histories."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.errors import DeliveryFailed
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.model.watching import NotificationRule
from fencepost.replica.notifier import Subscription

if TYPE_CHECKING:
    from tests.protocol.sim.members import Member
    from tests.protocol.sim.simulation import Simulation

BY_HAND = 0.3
"""The share of seeds with a channel in which a person makes the rule while jobs run."""
POLL = 2.0


class Notices:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._chance = random.Random(f"{simulation.seed}:notices")
        self._on = simulation.focus.has("notices", self._chance.random())
        self._rules = random.Random(f"{simulation.seed}:rules")
        self._by_hand = self._on and self._rules.random() < BY_HAND

    def begin(self) -> None:
        if self._by_hand:
            simulation = self._simulation
            simulation.world.at(simulation.world.now + self._rules.uniform(0.0, 25.0), self._make_rule)

    def _make_rule(self) -> None:
        self._simulation.tell("admin", "makes a rule")
        rule = NotificationRule("pager", tuple(ALERTS), name="ours", by="admin")
        self._simulation.network.apply(None, "change_rule", ("ours", rule, "admin"))

    def subscriptions(self, member: Member) -> tuple[Subscription, ...]:
        if not self._on:
            return ()
        rules = () if self._by_hand else (NotificationRule("pager", tuple(ALERTS)),)
        return (Subscription(Pager(self, member), rules),)

    async def deliver(self, member: Member, notices: Sequence[Notice]) -> None:
        simulation, chance = self._simulation, self._chance
        fate = (
            "well"
            if simulation.calm
            else chance.choice(["well"] * 6 + ["fails", "dies before", "dies after"])
        )
        await asyncio.sleep(chance.uniform(0.0, 0.2))
        if fate == "fails":
            raise DeliveryFailed("drawn by the seed")
        if fate == "dies before":
            self._die(member, "killed before a delivery")
        for notice in notices:
            simulation.tell(member.name, "delivers", notice.cause, notice.job_id, notice.fire, notice.id)
            simulation.checker.notices.received(notice)
        if fate == "dies after":
            self._die(member, "killed between a delivery and its mark")

    def _die(self, member: Member, fault: str) -> None:
        if member.process.killed:
            return
        self._simulation.faults.happened[fault] += 1
        self._simulation.kill(member)
        self._simulation.faults.replace()


class Pager:
    name = "pager"
    causes: Causes = ALERTS

    def __init__(self, notices: Notices, member: Member) -> None:
        self._notices = notices
        self._member = member

    async def deliver(self, notices: Sequence[Notice]) -> None:
        await self._notices.deliver(self._member, notices)
        if self._member.process.killed:
            await asyncio.Event().wait()  # nothing more happens in a process that is dead
