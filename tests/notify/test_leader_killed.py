"""Every kind of rule, in virtual time, with the leader killed at many moments: each cause arrives, under one id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost.model import Job
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.model.triggers import every
from fencepost.model.watching import NotificationRule
from fencepost.replica.notifier import POLL, Subscription
from fencepost.store.outbox import OutboxQuery
from fencepost.testing.world import EPOCH
from tests.unit.apps.cluster import Cluster, Member

KILLS = [
    29.9,
    31.0,
    *(pytest.param(at, marks=pytest.mark.slow) for at in (5.0, 30.1, 47.0, 60.2, 75.0, 100.1)),
]
"""When the leader dies: before, while and after causes arise."""


@dataclass(eq=False)
class Board:
    name: str = "board"
    causes: Causes = ALERTS
    batches: list[list[Notice]] = field(default_factory=list)
    when: list[float] = field(default_factory=list)
    scene: Scene | None = None

    async def deliver(self, notices: Sequence[Notice]) -> None:
        assert self.scene is not None
        self.batches.append(list(notices))
        self.when.append(self.scene.cluster.world.now)

    @property
    def told(self) -> list[str]:
        """Causes, once per id."""
        return list({each.id: each.cause for batch in self.batches for each in batch}.values())


class Scene:
    """Two replicas and a job that is due every ten seconds. It fails from second 25 to 95."""

    def __init__(self, *on: str, pool: str = "any", **rule: Any) -> None:
        self.cluster, self.board = Cluster(), Board()
        self.board.scene = self
        self._rule = NotificationRule("board", on, **rule)
        self._job = Job("job", "body", every(seconds=10, anchor=EPOCH), execute_on=pool)
        for _ in range(2):
            self.add()

    def add(self) -> Member:
        notify = [Subscription(self.board, (self._rule,))]
        member = self.cluster.add(self._job, body=self._body, notify=notify)
        assert member.replica.notifier is not None
        member.replica.notifier.poll = POLL
        return member

    async def _body(self, fire: Any) -> None:
        if 25 < self.cluster.world.now < 95:
            raise ValueError("no rows")

    def play(self, kill_at: float, until: float = 300.0) -> list[str]:
        """A leader dies then, and a new replica comes; what was told."""
        self.cluster.run(kill_at)
        self.cluster.until(lambda: self.cluster.leader is not None, 30)
        assert self.cluster.leader is not None
        self.cluster.leader.process.kill()
        self.add()
        self.cluster.run(until - self.cluster.world.now)
        return self.board.told


@pytest.mark.parametrize("kill_at", KILLS)
@pytest.mark.parametrize(
    ("on", "told"),
    [
        (("failed", "recovered"), ["failed", "recovered"]),
        (("failed_in_a_row:3", "recovered"), ["failed_in_a_row", "recovered"]),
        (("no_success:40", "recovered"), ["no_success", "recovered"]),
        (("recovered",), ["recovered"]),
    ],
)
def test_an_episode_is_told_once_and_so_is_its_end(
    kill_at: float, on: tuple[str, ...], told: list[str]
) -> None:
    assert Scene(*on).play(kill_at) == told


@pytest.mark.parametrize("kill_at", KILLS)
def test_a_fire_that_waits_is_late_once(kill_at: float) -> None:
    """No replica is in its pool."""
    assert Scene("late:20", pool="gpu").play(kill_at) == ["late"]


@pytest.mark.parametrize("kill_at", KILLS)
def test_quiet_hours_outlive_the_leader(kill_at: float) -> None:
    """The world begins at noon."""
    scene = Scene("failed", "recovered", quiet="12:00-12:03 UTC")
    assert scene.play(kill_at) == ["failed", "recovered"]
    assert all(180 <= when < 200 for when in scene.board.when)


@pytest.mark.parametrize("kill_at", KILLS)
def test_a_digest_outlives_the_leader(kill_at: float) -> None:
    scene = Scene("failed", "recovered", digest=120.0)
    assert scene.play(kill_at) == ["failed", "recovered"]
    assert [[each.cause for each in batch] for batch in scene.board.batches] == [["failed", "recovered"]]
    assert 150 <= scene.board.when[0] < 170


def test_a_rule_made_by_hand_is_applied_by_a_leader_elsewhere() -> None:
    scene = Scene("lost")
    made = NotificationRule("board", ("failed",), name="ours", by="ada")
    scene.cluster.run(20)
    assert scene.cluster.ask("change_rule", "ours", made, "ada")
    assert scene.play(30.05 - 20) == ["failed"]
    assert scene.cluster.ask("outbox", OutboxQuery()).rules[-1] == made


def test_a_rule_that_is_new_holds_for_what_ends_before_the_leader_has_walked() -> None:
    """The leader is dead when the rule is stored, and the job was declared long before."""
    scene = Scene("lost")
    cluster = scene.cluster
    cluster.run(29)
    leader = cluster.leader
    assert leader is not None
    leader.process.kill()
    assert cluster.ask("change_rule", "ours", NotificationRule("board", ("failed",), name="ours"), "ada")
    cluster.run(1.5)
    assert [each.state.value for each in cluster.fires("job")][-1] == "failed"
    assert not any(member.leads for member in cluster.members if member is not leader)
    scene.add()
    cluster.run(60)
    assert [each.fire for each in scene.board.batches[0]] == ["job@2026-11-15T12:00:30.000000Z"]
    assert scene.board.told == ["failed"]
