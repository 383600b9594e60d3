"""What is done to the polling service, once for all the requirements that look at it. Each scene has its own Valkey."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redis import Redis

from poller.devices import Poll
from tests.acceptance.pollers import UVICORN, Pod, Pollers
from tests.servers import valkey
from tests.web.serving import STARTING, eventually

INTERVAL = 0.5
"""Seconds between two fires of a device."""
TTL, HEARTBEAT = 6.0, 2.0
"""Seconds, of a leader that is stopped: long enough that a busy machine is late by less than a heartbeat."""
LEASE = "scheduler:leader"
LASTING: dict[str, Any] = {"appendonly": True, "appendfsync": "always"}
"""A Valkey that forgets nothing when it is killed."""


@dataclass
class Scene:
    url: str
    """Of Valkey."""
    pollers: Pollers


@dataclass
class Steady(Scene):
    redis: Any
    leader: Pod
    follower: Pod


@contextmanager
def steady(folder: Path) -> Iterator[Steady]:
    """Two replicas that nobody harms. Each test has devices of its own to play with."""
    with (
        valkey() as server,
        Redis.from_url(server.url, decode_responses=True) as redis,
        Pollers(server.url, folder, devices=5, leader_ttl=2, horizon=4) as pollers,
    ):
        pods = pollers.start("poller-0", "poller-1")
        leader = pollers.leader()
        (follower,) = (pod for pod in pods if pod is not leader)
        eventually(lambda: len(pollers.fleet.polls) > 5)
        eventually(lambda: all(len(pod.status()["replicas"]) == 2 for pod in pods))
        yield Steady(server.url, pollers, redis, leader, follower)


@dataclass
class Deposed(Scene):
    old: Pod
    new: Pod
    stopped: str
    """When the old leader was."""
    failover: float
    """Seconds until the new one led."""
    woken: float
    asleep: float
    """When the old one went on, and when the new one was stopped in its turn."""


@contextmanager
def deposed(folder: Path) -> Iterator[Deposed]:
    """A leader is stopped, loses its term to the other one, wakes up, and wins again when the other is stopped."""
    settings: dict[str, Any] = {
        "leader_ttl": TTL,
        "run_ttl": TTL,
        "heartbeat": HEARTBEAT,
        "horizon": 2 * TTL,
    }
    with (
        valkey() as server,
        Redis.from_url(server.url, decode_responses=True) as redis,
        Pollers(server.url, folder, **settings) as pollers,
    ):
        pods = pollers.start("poller-0", "poller-1")
        old = pollers.leader()
        (new,) = (pod for pod in pods if pod is not old)
        eventually(lambda: pollers.fleet.polls)
        in_mid_heartbeat(redis)
        begun, stopped = time.monotonic(), named_now()
        old.send(signal.SIGSTOP)
        holder = redis.hget(LEASE, "holder")
        eventually(lambda: redis.hget(LEASE, "holder") != holder, 2 * TTL)
        led = time.monotonic()
        eventually(lambda: new.leads)
        eventually(lambda: pollers.polls_after(led))
        woken = time.monotonic()
        old.send(signal.SIGCONT)
        eventually(lambda: "leader.lost" in old.told())
        eventually(lambda: len(pollers.polls_after(woken)) > 5)
        asleep = time.monotonic()
        new.send(signal.SIGSTOP)
        eventually(lambda: old.leads, 2 * TTL)
        new.send(signal.SIGCONT)
        yield Deposed(server.url, pollers, old, new, stopped, led - begun, woken, asleep)


def in_mid_heartbeat(redis: Any) -> None:
    """The lease has been renewed a while ago, and will not be for another while: as it is at most moments."""
    before = redis.hget(LEASE, "renewals")
    eventually(lambda: redis.hget(LEASE, "renewals") != before, 2 * HEARTBEAT)
    time.sleep(HEARTBEAT / 2)


@dataclass
class Outage(Scene):
    readings: Any
    """What the service answered while Valkey was down."""
    never_asked: Any
    """What a replica answered then whose readings nobody had asked for before."""
    answers: dict[str, int]
    """And with which status."""
    status: dict[str, Any]
    started: list[Poll]
    """Before its end, of fires that fell due in it."""
    restarted: float


@contextmanager
def outage(folder: Path) -> Iterator[Outage]:
    """Valkey is killed while two replicas work, and comes back."""
    with valkey(**LASTING) as server, Pollers(server.url, folder) as pollers:
        pods = pollers.start("poller-0", "poller-1")
        eventually(lambda: len(pods[0].client.get("/readings").json()["readings"]) == 3)
        seen = time.monotonic()
        eventually(
            lambda: len(pollers.polls_after(seen)) > 12
        )  # two seconds: the other one has looked as well
        server.kill()
        killed = named_now()
        eventually(lambda: all(pod.status()["reason"] == "store_lost" and not pod.leads for pod in pods))
        time.sleep(2 * INTERVAL)  # in which two fires of every device fall due
        asked = {
            path: pods[0].client.get(path)
            for path in ("/readings", "/ready", "/livez", "/metrics", "/readyz")
        }
        never_asked = pods[1].client.get("/readings").json()
        started = pollers.polls_due_after(killed)
        status = pods[0].status()
        server.start()
        restarted = time.monotonic()
        eventually(lambda: pollers.polls_after(restarted))
        answers = {path: answer.status_code for path, answer in asked.items()}
        readings = asked["/readings"].json()
        yield Outage(server.url, pollers, readings, never_asked, answers, status, started, restarted)


@contextmanager
def alone(folder: Path) -> Iterator[Scene]:
    """One replica, which is killed, and starts again under the same name."""
    with valkey() as server, Pollers(server.url, folder) as pollers:
        (pod,) = pollers.start("poller-0")
        eventually(lambda: len(pollers.fleet.polls) > 5)
        killed = time.monotonic()
        pod.send(signal.SIGKILL)
        pollers.start("poller-0")
        eventually(lambda: len(pollers.polls_after(killed)) > 5)
        yield Scene(server.url, pollers)


@dataclass
class Rolling(Scene):
    failovers: dict[signal.Signals, float]
    """Seconds from the signal to the next leader."""
    stopped: Pod


@contextmanager
def rolling(folder: Path) -> Iterator[Rolling]:
    """Of three replicas with a TTL of half a minute, the leader is killed, and the next one stopped gracefully."""
    long = {"leader_ttl": 30, "run_ttl": 30, "heartbeat": 10, "horizon": 60}
    with valkey() as server, Pollers(server.url, folder, **long) as pollers:
        pods = pollers.start("poller-0", "poller-1", "poller-2")
        failovers = {}
        for number in (signal.SIGKILL, signal.SIGTERM):
            leader = pollers.leader(pods)
            pods.remove(leader)
            eventually(lambda: len(pollers.fleet.polls) > 5)
            time.sleep(0.7)  # the others have seen its session
            begun = time.monotonic()
            leader.send(number)
            pollers.leader(pods)
            failovers[number] = time.monotonic() - begun
        ended = time.monotonic()
        # What ran in the killed one is in its own way for the rest of the TTL: the others' polls come one by one.
        eventually(lambda: len(pollers.polls_after(ended)) > 5, STARTING)
        yield Rolling(server.url, pollers, failovers, stopped=leader)


@dataclass
class Workers(Scene):
    replicas: list[dict[str, Any]]
    """As the status listed them."""


@contextmanager
def workers(folder: Path) -> Iterator[Workers]:
    """Two workers in one pod share the work. One is killed; the server starts another."""
    with valkey() as server, Pollers(server.url, folder, execute_on="any", slots=1) as pollers:
        pollers.fleet.seconds = dict.fromkeys((1, 2, 3), INTERVAL / 2)  # more than one of them has time for
        (pod,) = pollers.spawn("poller-0", command=(*UVICORN, "--workers", "2"))
        eventually(lambda: len(pod.status().get("replicas", ())) == 2, STARTING)
        replicas = pod.status()["replicas"]
        eventually(lambda: len({poll.replica for poll in list(pollers.fleet.polls)}) == 2)
        killed = time.monotonic()
        os.kill(replicas[0]["pid"], signal.SIGKILL)
        eventually(lambda: len(pollers.polls_after(killed)) > 5)
        yield Workers(server.url, pollers, replicas)


def named_now() -> str:
    """As fires are named."""
    return datetime.now(UTC).isoformat()
