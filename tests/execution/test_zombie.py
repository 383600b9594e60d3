"""A process that is stopped between its start and its effect, taken for dead, and goes on: the effect happens once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster.harness import Cluster, Process
from tests.servers.postgresql import PostgresServer

pytestmark = pytest.mark.cluster

ZOMBIE = Path(__file__).parent / "apps" / "zombie.py"
ROOT = Path(__file__).parents[2]
TTL, HEARTBEAT = 1.5, 0.4


class Scene:
    """Two replicas; the one that started the job is stopped, and the other takes its place."""

    def __init__(self, cluster: Cluster, effect: str, wait: str) -> None:
        self.cluster = cluster
        self.effect = effect
        self.wait = wait

    def play(self) -> tuple[int, int]:
        """The tokens of the zombie and of the other, when all is over."""
        cluster = self.cluster
        [zombie] = cluster.start(1, ZOMBIE)
        cluster.wait_for(lambda: cluster.reader.ask(lambda store: store.jobs(["pay"])), 15, "it is declared")
        self.key = cluster.trigger("pay")
        first = cluster.wait_for(
            lambda: self.told("started" if self.wait == "before" else "inside"), 15, "it waits"
        )
        [other] = cluster.start(1, ZOMBIE)
        self.stop(zombie)
        stopped = time.monotonic()
        second = cluster.wait_for(lambda: self.told("paid"), 20, "the other has paid")
        cluster.sleep_until(time.time() + 2 * TTL - (time.monotonic() - stopped))
        cluster.wait_for(self.is_final, 15, "the other has settled it")
        cluster.resume(zombie)
        (cluster.folder / "go").touch()
        cluster.wait_for(lambda: self.told("fenced"), 15, "the zombie learns it")
        assert zombie.alive
        assert other.alive
        return first, second

    def stop(self, zombie: Process) -> None:
        self.cluster.stop(zombie)

    def told(self, what: str) -> int:
        """The token for which this was noted; 0: it was not."""
        log = self.cluster.log.read_text() if self.cluster.log.exists() else ""
        return next((int(line.split()[1]) for line in log.splitlines() if line.split()[0] == what), 0)

    def refused(self, how: tuple[str, ...]) -> int:
        """The token whose effect was refused in one of these ways."""
        return self.cluster.wait_for(lambda: max(map(self.told, how)), 10, f"{how} is noted")

    def is_final(self) -> bool:
        fire = self.cluster.reader.fire(self.key)
        return fire is not None and fire.state.final

    def payments(self) -> list[int]:
        connection: Any
        if self.effect.startswith("postgresql"):
            connection = psycopg.connect(self.effect)
        else:
            connection = sqlite3.connect(self.effect)
        with closing(connection):
            return [row[0] for row in connection.execute("select token from payments").fetchall()]


@pytest.fixture
def elsewhere(postgres_server: PostgresServer) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


def a_scene(store: str, effect: str, tmp_path: Path, wait: str = "before") -> Scene:
    env = {"EFFECT": effect, "WAIT": wait, "PYTHONPATH": str(ROOT)}
    cluster = Cluster(store, tmp_path, env=env, leader_ttl=TTL, run_ttl=TTL, heartbeat=HEARTBEAT)
    connection: Any = psycopg.connect(effect) if effect.startswith("postgresql") else sqlite3.connect(effect)
    with closing(connection):
        connection.execute("create table payments (token bigint)")
        connection.commit()
    return Scene(cluster, effect, wait)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("where", ["home", "elsewhere"])
def test_the_effect_of_a_zombie_and_of_its_successor_happens_once(
    kind: str, where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        store = f"sqlite:///{tmp_path}/store.db"
        effect = f"{tmp_path}/{'store' if where == 'home' else 'app'}.db"
    else:
        store = request.getfixturevalue("postgres_url")
        effect = store if where == "home" else request.getfixturevalue("elsewhere")
    scene = a_scene(store, effect, tmp_path)
    with scene.cluster:
        zombie, other = scene.play()
        judge(scene, zombie, other)
        refused = ("FencedOut",) if where == "home" else ("FencedOut", "EffectCommitted")
        assert scene.refused(refused) == zombie


def test_a_process_stopped_inside_its_transaction_keeps_nobody_waiting(
    postgres_url: str, tmp_path: Path
) -> None:
    """Nor does the store: the run is taken from it, and another commits the effect while it is stopped."""
    scene = a_scene(postgres_url, postgres_url, tmp_path, wait="inside")
    with scene.cluster:
        zombie, other = scene.play()
        judge(scene, zombie, other)
        assert scene.refused(("FencedOut",)) == zombie


def judge(scene: Scene, zombie: int, other: int) -> None:
    assert other > zombie
    assert scene.payments() == [other]
    fire = scene.cluster.reader.fire(scene.key)
    assert fire is not None
    assert (fire.state, fire.token) == ("succeeded", other)
    assert [(attempt.token, attempt.outcome) for attempt in fire.attempts] == [
        (zombie, "lost"),
        (other, "succeeded"),
    ]
    assert scene.told("fenced") == zombie, "its settle was refused, and it was told so"
