"""System C with APScheduler: the variant of examples/kubernetes that guards a `BlockingScheduler`, as processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fencepost import Settings
from fencepost.cli import outcome
from poller.devices import Fleet, Poll
from tests.acceptance import manifests
from tests.acceptance.pollers import EXAMPLE
from tests.servers import valkey
from tests.web.serving import STARTING, ServerProcess, eventually, served, server_process

TTL = 6.0
SETTINGS: dict[str, Any] = {"leader_ttl": TTL, "run_ttl": TTL, "heartbeat": TTL / 3, "horizon": 2 * TTL}
INTERVAL = 0.5
LEASE = "scheduler:leader"
[DEPLOYMENT] = manifests.read(EXAMPLE / "manifests-apscheduler")
[CONTAINER] = DEPLOYMENT["spec"]["template"]["spec"]["containers"]


class Guarded:
    """Three replicas of `python -m poller.guarded` and the devices, which note who asked, for which fire."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.url, self.fleet = url, Fleet(failing=0.0)
        self.redis: Any = stack.enter_context(Redis.from_url(url, decode_responses=True))
        env = {
            "PYTHONPATH": str(EXAMPLE),
            "POLLER_VALKEY": url,
            "POLLER_DEVICES_URL": stack.enter_context(served(self.fleet.app)),
            "POLLER_DEVICES": "3",
            "POLLER_INTERVAL": str(INTERVAL),
            "POLLER_RETRY_FIRST": "0.1",
        }
        self.pods: dict[str, ServerProcess] = {}
        command = CONTAINER["command"][2:]  # as the manifest has it, with our Python
        for name in ("poller-0", "poller-1", "poller-2"):
            (folder / name).mkdir()
            own = {**env, "POD_NAME": name}
            self.pods[name] = stack.enter_context(server_process(command, folder / name, own, **SETTINGS))

    @property
    def leader(self) -> str:
        """Its pod; empty: nobody leads."""
        holder = self.redis.hget(LEASE, "holder") or ""
        return next((name for name in self.pods if holder.startswith(f"{name}-")), "")

    def polls_after(self, moment: float) -> list[Poll]:
        return [poll for poll in list(self.fleet.polls) if poll.at > moment]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    with valkey() as server, ExitStack() as stack:
        running = Guarded(server.url, tmp_path, stack)
        eventually(lambda: len(running.fleet.polls) > 5, STARTING)
        yield running


@pytest.mark.cluster
def test_c_apscheduler_only_the_leader_polls_and_each_fire_once(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    """C1, C3, C5, C11: the document's keys, a shared grid, owners that are pods, retries; the leader alone polls. Then
    it is killed: another leads within the TTL, and what is on record is clean. The last two leave gracefully."""
    leader = guarded.leader
    assert {poll.replica.rpartition("-")[0].rpartition("-")[0] for poll in list(guarded.fleet.polls)} == {
        leader
    }
    assert all(poll.fire.endswith((".000000Z", ".500000Z")) for poll in list(guarded.fleet.polls))

    guarded.fleet.to_fail[2] = 2
    eventually(lambda: _attempts(guarded) == [False, False, True])

    begun = time.monotonic()
    os.kill(guarded.pods.pop(leader).popen.pid, signal.SIGKILL)
    successor = eventually(lambda: guarded.leader, TTL)
    eventually(lambda: [p for p in guarded.polls_after(begun) if p.replica.startswith(successor)], 2 * TTL)

    for pod in guarded.pods.values():
        pod.terminate()
    for pod in guarded.pods.values():
        assert pod.ended() == 0, pod.told()
    assert guarded.redis.hget(LEASE, "holder") in (None, ""), "leadership was handed back"
    polled = [poll.fire for poll in guarded.fleet.polls if poll.device != 2]
    assert len(polled) == len(set(polled)), "a device was asked twice for one fire"
    assert outcome(["audit", "--store", f"{guarded.url}?prefix=scheduler", "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)
    assert (audit["doubled"], audit["unaccounted"]) == ([], [])
    assert audit["ran"] > 5


def _attempts(guarded: Guarded) -> list[bool]:
    """Of the fire that device 2 failed."""
    polls = [poll for poll in list(guarded.fleet.polls) if poll.device == 2]
    failed = next((poll.fire for poll in polls if not poll.answered), None)
    return [poll.answered for poll in polls if poll.fire == failed]


def test_c_apscheduler_the_manifest_fits_kubernetes_and_its_own_settings() -> None:
    manifests.fits_the_schema(DEPLOYMENT)
    manifests.nobody_runs_as_root_or_writes_where_they_should_not([DEPLOYMENT])
    env = {each["name"]: each["value"] for each in CONTAINER["env"] if "value" in each}
    settings = Settings.load(env=env)
    assert settings.warnings() == []
    grace = DEPLOYMENT["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert settings.grace_period.total_seconds() == grace
