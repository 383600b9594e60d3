"""How many commands replicas send while nothing is due, by the intervals of their loops."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from fencepost.model import Job
from fencepost.model.triggers import every
from fencepost.settings import Settings
from fencepost.testing.world import EPOCH, Process
from tests.unit.apps.cluster import Cluster

SETTLED = 3600.0
"""Until what is declared is checked seldom."""
MINUTES = 60


@pytest.fixture
def sent() -> Counter[str]:
    return Counter()


def idle_cluster(sent: Counter[str], replicas: int) -> Cluster:
    """With the default settings, and 950 jobs of which none is due."""
    defaults = Settings()
    cluster = Cluster(
        remote=True,
        **{name: getattr(defaults, name) for name in ("leader_ttl", "run_ttl", "heartbeat", "horizon")},
    )
    never = every(days=300, anchor=EPOCH + timedelta(days=1))
    for _ in range(replicas):
        cluster.add(*(Job(f"job{number}", "body", never) for number in range(950)))
        cluster.run(20)

    def count(process: Process, name: str) -> float:
        sent[process.name] += 1
        return 0.0

    cluster.run(SETTLED)
    cluster.network.on_send = count
    cluster.run(60 * MINUTES)
    return cluster


def test_a_replica_alone_sends_twelve_commands_a_minute_at_the_most(sent: Counter[str]) -> None:
    idle_cluster(sent, 1)
    assert sent["r0"] <= 12 * MINUTES


def test_a_follower_sends_twelve_commands_a_minute_at_the_most(sent: Counter[str]) -> None:
    cluster = idle_cluster(sent, 3)
    assert cluster.leader is not None
    del sent[cluster.leader.process.name]
    assert max(sent.values()) <= 12 * MINUTES


def test_a_leader_that_was_alone_learns_of_a_replica_although_no_hint_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next heartbeat names it, if both know the same tasks: it need not wait for its next check."""

    async def unheard(process: Process, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return False

    cluster = Cluster(remote=True)
    monkeypatch.setattr(cluster.network, "wait", unheard)
    leader = cluster.add(Job("job", "body", every(days=300, anchor=EPOCH + timedelta(days=1))))
    checks = sweeps_of(cluster)
    cluster.until(lambda: len(checks) > 3, 60)
    other = cluster.add(Job("job", "body", every(days=300, anchor=EPOCH + timedelta(days=1))))
    heartbeat = cluster.settings.heartbeat.total_seconds()
    cluster.until(lambda: leader.replica.janitor.others == [other.replica.id], 1.5 * heartbeat)


def sweeps_of(cluster: Cluster) -> list[float]:
    """When each was sent."""
    sent: list[float] = []

    def note(process: Process, name: str) -> float:
        if name == "sweep":
            sent.append(cluster.world.now)
        return 0.0

    cluster.network.on_send = note
    return sent
