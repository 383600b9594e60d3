"""Real Celery workers, on Valkey and on RabbitMQ: what a killed worker and a cancel come to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fencepost import Scheduler
from fencepost.model import FireRecord, State
from tests.cluster.harness import Cluster, Mark
from tests.engines.places import CeleryPlace
from tests.engines.scene import APP, settings
from tests.servers import Server, ServerMissing, rabbitmq, valkey

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

BROKERS: dict[str, Callable[[], Server]] = {"valkey": valkey, "rabbitmq": rabbitmq}
PATIENCE = 120.0
LONG = 600.0


class Scene:
    """One replica, and one worker with two pool processes."""

    def __init__(self, cluster: Cluster, place: CeleryPlace, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.place = place
        self.scheduler = scheduler

    def send(self, job: str, seconds: float) -> str:
        self.cluster.wait_for(
            lambda: self.cluster.reader.ask(lambda store: store.jobs([job])), PATIENCE, "it is declared"
        )
        return self.scheduler.sync.trigger(job, args={"seconds": seconds}).key

    def handed_over(self, key: str) -> None:
        def remote() -> object:
            fire = self.cluster.reader.fire(key)
            return fire and fire.remote

        self.cluster.wait_for(remote, PATIENCE, f"{key} is handed over")

    def started(self, key: str) -> Mark:
        return self.cluster.wait_for(lambda: self.cluster.starts(key), PATIENCE, f"{key} starts")[-1]

    def ended(self, key: str) -> FireRecord:
        def final() -> FireRecord | None:
            fire = self.cluster.reader.fire(key)
            return fire if fire is not None and fire.state.final else None

        return self.cluster.wait_for(final, PATIENCE, f"{key} is final")


@contextmanager
def a_scene(broker: Server, folder: Path) -> Iterator[Scene]:
    with valkey() as store:
        env = {"FENCEPOST_STORE": store.url, "LOAD_STORE": store.url, "LOAD_LOG": str(folder / "runs.log")}
        place = CeleryPlace(broker, folder, env, 1, [("prefork", 2)])
        try:
            with Cluster(store.url, folder, env=place.replica_env, **settings(6.0)) as cluster:
                cluster.start(1, APP, seconds=PATIENCE)
                scheduler = Scheduler(store=store.url)
                try:
                    yield Scene(cluster, place, scheduler)
                finally:
                    asyncio.run(scheduler.stop())
        finally:
            place.close()


@pytest.fixture(params=BROKERS, scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    try:
        server = BROKERS[request.param]()
    except ServerMissing as reason:
        pytest.skip(str(reason))
    with server, a_scene(server, tmp_path_factory.mktemp("celery")) as scene:
        yield scene


def test_what_is_cancelled_while_it_waits_never_starts(scene: Scene) -> None:
    """There is no worker yet. The message stays in the queue: a worker that starts later does not know that it was
    revoked, and gets it."""
    waiting = scene.send("sleep_record", 0.1)
    scene.handed_over(waiting)
    scene.scheduler.sync.cancel(waiting)
    assert scene.ended(waiting).state is State.CANCELLED
    scene.place.tend()
    assert scene.ended(scene.send("sleep_record", 0.1)).state is State.SUCCEEDED
    assert not scene.cluster.starts(waiting)


def test_a_cancelled_body_that_does_not_listen_is_killed_with_its_pool_process(scene: Scene) -> None:
    scene.place.tend()
    beside, key = scene.send("sleep_record", LONG), scene.send("sleep_record", LONG)
    other, mark = scene.started(beside), scene.started(key)
    scene.scheduler.sync.cancel(key)
    assert scene.ended(key).state is State.CANCELLED
    assert not lives(mark.pid)
    assert lives(other.pid)
    assert (
        scene.ended(scene.send("sleep_record", 0.1)).state is State.SUCCEEDED
    )  # a new process took its place
    scene.scheduler.sync.cancel(beside)
    assert scene.ended(beside).state is State.CANCELLED


def test_a_run_whose_worker_is_killed_is_run_again_under_another_token(scene: Scene) -> None:
    """The broker delivers the message of the first attempt again, too: the gate refuses it."""
    scene.place.tend()
    again, lost = scene.send("sleep_rerun", 5.0), scene.send("sleep_record", 5.0)
    scene.started(again)
    scene.started(lost)
    scene.place.kill_all()
    scene.place.tend()
    fire = scene.ended(again)
    assert fire.state is State.SUCCEEDED
    assert [attempt.outcome for attempt in fire.attempts] == ["lost", "succeeded"]
    assert [mark.token for mark in scene.cluster.starts(again)] == [each.token for each in fire.attempts]
    assert scene.ended(lost).state is State.LOST
    assert len(scene.cluster.starts(lost)) == 1


def lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
