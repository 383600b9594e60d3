"""What a replica logs of an outage of its store: one line when it begins, one when it is over."""

from __future__ import annotations

from fencepost.errors import StoreUnavailable
from fencepost.replica.outage import Outage

GONE = StoreUnavailable("no space left")


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.log: list[str] = []
        self.outage = Outage(
            lambda: self.now,
            10.0,
            begins=lambda why: self.log.append(why),
            ends=lambda: self.log.append("over"),
        )

    def heartbeat(self) -> bool:
        was_lost = self.outage.answered()
        self.outage.log_end()
        return was_lost

    def fails(self, loop: str) -> None:
        self.outage.failed(GONE, self.now, loop)


def test_one_that_ends() -> None:
    scene = Scene()
    for loop in ("worker", "heartbeat", "worker"):
        scene.now += 1
        scene.fails(loop)
    scene.now += 1
    assert scene.heartbeat()
    assert scene.log == ["no space left"], "the worker has not been served"
    assert not scene.outage.is_on
    scene.outage.served("worker")
    scene.outage.served("heartbeat")
    assert scene.log == ["no space left", "over"]
    assert not scene.heartbeat()


def test_a_store_that_answers_heartbeats_and_nothing_else_is_logged_once() -> None:
    scene = Scene()
    for _ in range(20):
        scene.now += 1
        scene.fails("settler")
        scene.now += 1
        scene.heartbeat()
    assert scene.log == ["no space left"]


def test_a_loop_that_fails_now_and_then_is_logged_twice_at_the_most() -> None:
    scene = Scene()
    for _ in range(20):
        scene.now += 1
        scene.fails("worker")
        scene.now += 1
        scene.heartbeat()
        scene.outage.served("worker")
    assert scene.log == ["no space left", "over", "no space left"]
    scene.now += 10
    scene.heartbeat()
    assert scene.log[-1] == "over"
    scene.now += 10
    scene.fails("worker")
    scene.outage.answered()
    scene.outage.served("worker")
    assert scene.log[-2:] == ["no space left", "over"], "another outage, much later"


def test_a_request_that_was_sent_before_the_end_belongs_to_it() -> None:
    scene = Scene()
    scene.fails("heartbeat")
    sent, scene.now = scene.now, scene.now + 1
    scene.heartbeat()
    scene.outage.failed(GONE, sent, "worker")
    assert not scene.outage.is_on
