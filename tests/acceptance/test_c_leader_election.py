"""Leader election for replicas (requirements C), on the service of examples/kubernetes and a real Valkey.

Devices live in this process and note who asked them, for which fire: what they saw depends on nobody's ledger.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fencepost import ConfigurationError, Scheduler, Settings, StoreUnavailable, every
from fencepost.cli import outcome
from fencepost.replica.replica import Identity
from fencepost.store.redis import RedisStore
from fencepost.testing.conformance import HandClock, Harness
from poller.devices import Poll
from tests.acceptance import poller_scenes as scenes
from tests.acceptance.pollers import QUICK, Pod, Pollers
from tests.servers import Proxy, clock, cut_before, valkey
from tests.web.serving import STARTING, eventually, service

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenes.Steady]:
    with scenes.steady(tmp_path_factory.mktemp("steady")) as scene:
        yield scene


@pytest.fixture(scope="module")
def deposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenes.Deposed]:
    with scenes.deposed(tmp_path_factory.mktemp("deposed")) as scene:
        yield scene


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenes.Outage]:
    with scenes.outage(tmp_path_factory.mktemp("outage")) as scene:
        yield scene


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenes.Scene]:
    with scenes.alone(tmp_path_factory.mktemp("alone")) as scene:
        yield scene


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenes.Rolling]:
    with scenes.rolling(tmp_path_factory.mktemp("rolling")) as scene:
        yield scene


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenes.Workers]:
    with scenes.workers(tmp_path_factory.mktemp("workers")) as scene:
        yield scene


# --- C1: two levels of locks ----------------------------------------------------------------------------


def test_c1_a_lease_for_the_leader_and_a_lock_per_job_and_scheduled_time(steady: scenes.Steady) -> None:
    """`scheduler:leader`, and `scheduler:job:<id>:<scheduled time>` for as long as the run lives, beyond any TTL."""
    lease = steady.redis.hgetall("scheduler:leader")
    assert lease["holder"] == steady.leader.status()["replica"]
    assert float(lease["ttl"]) == 2

    steady.pollers.fleet.seconds[1] = 2 * QUICK["run_ttl"]
    begun = time.monotonic()
    asked: Poll = eventually(
        lambda: next((poll for poll in steady.pollers.polls_after(begun) if poll.device == 1), None)
    )
    moment = asked.fire.removeprefix("poll-1@")
    key = f"scheduler:job:poll-1:{moment}"
    assert moment[19:] in (".000000Z", ".500000Z")  # no moment of execution: a grid that all replicas share
    assert asked.replica in steady.redis.get(key)
    while time.monotonic() < asked.at + 1.5 * QUICK["run_ttl"]:
        assert steady.redis.exists(key), "the lock went before the run"
        time.sleep(0.05)
    steady.pollers.fleet.seconds[1] = 0.0
    eventually(lambda: not steady.redis.exists(key))
    assert len(steady.pollers.polls_by_fire()[f"poll-1@{moment}"]) == 1
    assert {name.partition(":")[0] for name in steady.redis.scan_iter("*")} == {"scheduler", "poller"}


# --- C2: renewal ------------------------------------------------------------------------------------------


def test_c2_the_leader_renews_every_third_of_its_ttl_whatever_the_event_loop_does(valkey_url: str) -> None:
    """A job that blocks the event loop for two TTLs costs neither leadership nor a renewal."""
    ttl = 1.2
    scheduler = Scheduler(f"{valkey_url}?prefix=scheduler", leader_ttl=ttl, run_ttl=ttl, heartbeat=ttl / 3)
    blocked: list[float] = []

    @scheduler.task(id="block")
    async def block() -> None:
        blocked.append(time.monotonic())
        time.sleep(2 * ttl)  # on the event loop, on purpose
        blocked.append(time.monotonic())

    with service(scheduler) as client, Redis.from_url(valkey_url, decode_responses=True) as redis:
        eventually(lambda: client.get("/scheduler/status").json()["is_leader"])
        before = redis.hgetall("scheduler:leader")
        client.post("/api/v1/jobs/block/trigger", json={})
        eventually(lambda: len(blocked) == 2)
        after = redis.hgetall("scheduler:leader")
    assert (after["holder"], after["term"]) == (before["holder"], before["term"])
    assert int(after["renewals"]) - int(before["renewals"]) >= 4  # of six in two TTLs; a busy machine is late


def test_c2_who_could_not_renew_starts_nothing_and_wins_again_later(deposed: scenes.Deposed) -> None:
    """Renewing compares the owner: a leader that was stopped finds its term gone, runs nothing, stands again."""
    old = deposed.old.status()["replica"]
    between = [poll for poll in deposed.pollers.polls_after(deposed.woken) if poll.at < deposed.asleep]
    assert between
    # A body that had begun when it was stopped goes on, and is refused in the end. Nothing is started anew.
    anew = deposed.pollers.polls_due_after(deposed.stopped)
    assert [poll for poll in between if poll.replica == old and poll in anew] == []
    terms = _terms(deposed.old)
    assert terms[0] < _terms(deposed.new)[0] < terms[-1]
    eventually(lambda: [poll for poll in deposed.pollers.polls_after(deposed.asleep) if poll.replica == old])


# --- C3: one atomic step ----------------------------------------------------------------------------------


async def test_c3_leadership_claim_and_store_are_checked_in_one_step(valkey_url: str) -> None:
    """One request decides: the term is current, the fire is free, the store answers. Otherwise nothing starts."""
    hand = HandClock()
    with Proxy(valkey_url) as proxy:
        async with by_hand(proxy.url, hand) as harness:
            term = await harness.elect("a")
            await harness.join("b")
            await harness.define("poll", every(minutes=1), execute_on="leader")
            await harness.fall_due()
            assert await harness.claims("b", term=None) == []
            assert await harness.claims("b", term=term + 1) == []
            asked = proxy.requests
            (fire,) = await harness.claims("a", term=term)
            assert proxy.requests == asked + 1
            assert await harness.claims("a", term=term) == []  # it is claimed
            assert await harness.settle(fire)

            await harness.heartbeat("a", draining=True)
            assert (await harness.campaign("b")).holder == "b"
            await harness.fall_due()
            assert await harness.claims("a", term=term) == []  # it leads no more, whatever it believes
            proxy.rule(cut_before)
            with pytest.raises(StoreUnavailable):
                await harness.claims("b", term=term + 1)
            proxy.clear()
            assert len(await harness.claims("b", term=term + 1)) == 1  # what failed has claimed nothing


# --- C4: the store is lost ----------------------------------------------------------------------------------


def test_c4_a_store_that_is_down_at_start(tmp_path: Path) -> None:
    """The service comes up, serves, and starts no job; jobs begin when the store is there."""
    with valkey() as server, Pollers(server.url, tmp_path) as pollers:
        server.stop()
        (pod,) = pollers.spawn("poller-0")
        eventually(lambda: pod.status().get("reason") == "store_lost", STARTING)
        assert pod.client.get("/readings").json() == {"stale": True, "readings": {}}
        assert not pod.leads
        server.start()
        eventually(lambda: pollers.fleet.polls)


def test_c4_a_store_that_is_lost_later(outage: scenes.Outage) -> None:
    """Starts stop at once, and resume after the next election."""
    assert outage.started == []
    assert outage.pollers.polls_after(outage.restarted)
    assert sum(pod.leads for pod in outage.pollers.pods) == 1
    assert outage.pollers.polled_twice() == []


def test_c4_reconnecting_waits_from_one_second_to_sixty() -> None:
    """By the connections that arrive at a server which accepts and closes them: the waits between them double from 1 s,
    less a quarter at the most, left to chance. The last ones are too long to be waited for: they are computed."""
    longest = (1, 2, 4)
    with Refusing() as server, ExitStack() as stack:
        scheduler = Scheduler(f"redis://127.0.0.1:{server.port}/0")
        stack.enter_context(service(scheduler))
        arrived = eventually(lambda: len(server.arrived) > len(longest) and list(server.arrived), 30)
        waits = [later - earlier for earlier, later in pairwise(arrived)]
        for wait, most in zip(waits, longest, strict=False):
            assert 0.75 * most - EARLY <= wait, f"{waits}: it came too soon"
            assert wait <= most + LATE, f"{waits}: it came too late"
        replica = scheduler.replica
        assert replica is not None
        replica.chance = random.Random(1)
        for failures, most in enumerate((1, 2, 4, 8, 16, 32, 60, 60, 60), start=1):
            assert 0.75 * most <= replica.backoff(failures) <= most


EARLY, LATE = 0.1, 0.7
"""Seconds: an attempt is noted when its connection is accepted, which may take longer for one than for the next; and a
busy machine is late, but by less than doubles any wait."""


class Refusing:
    """A server that closes each connection as soon as it has noted it."""

    def __init__(self) -> None:
        self.arrived: list[float] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def __enter__(self) -> Refusing:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                self.arrived.append(time.monotonic())
                connection.close()


# --- C5: ownership ------------------------------------------------------------------------------------------


def test_c5_two_workers_of_one_pod_are_two_owners(workers: scenes.Workers) -> None:
    """The name is POD_NAME, else HOSTNAME, plus what differs with every process."""
    assert {replica["host"] for replica in workers.replicas} == {"poller-0"}
    assert all(replica["replica"].startswith("poller-0-") for replica in workers.replicas)
    assert len({replica["replica"] for replica in workers.replicas}) == 2


def test_c5_without_a_pod_name_the_host_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two starts in one process differ as well."""
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setenv("HOSTNAME", "node-7")
    one, two = Identity.here(), Identity.here()
    assert one.host == two.host == "node-7"
    assert one.id.startswith(f"node-7-{os.getpid()}-")
    assert one.id != two.id


async def test_c5_only_the_owner_renews_releases_and_reports(valkey_url: str) -> None:
    """Each of the three compares owner and token in the store, in the step that writes."""
    hand = HandClock()
    async with by_hand(valkey_url, hand) as harness:
        term = await harness.elect("a")
        fire = await harness.running("poll", name="b", after_crash="rerun")
        await harness.heartbeat("b", draining=True)  # leaves, and releases no lease but its own
        assert (await harness.store.roster()).leader.holder == "a"
        await harness.bury("a", term, "b")
        (again,) = await harness.claims("a")
        assert (again.key, again.token) == (fire.key, fire.token + 1)
        assert not await harness.settle(fire)
        renewals = (await harness.store.roster()).leader.renewals
        await harness.join("c")
        assert (await harness.campaign("c")).renewals == renewals
        assert await harness.settle(again)


# --- C6: failover -------------------------------------------------------------------------------------------


def test_c6_without_evidence_the_ttl_counts(deposed: scenes.Deposed) -> None:
    """A leader that is merely stopped may wake up: it is replaced when its TTL is over, and not later."""
    assert deposed.failover <= scenes.TTL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_c6_killed_or_stopped_gracefully_it_is_replaced_much_faster(
    number: signal.Signals, rolling: scenes.Rolling
) -> None:
    """With a TTL of half a minute: after `kill -9` its connection is seen to be gone; after SIGTERM it hands over."""
    assert rolling.failovers[number] < 3.0
    assert "leader.resigned" in rolling.stopped.told()


# --- C7: logs and metrics -----------------------------------------------------------------------------------


def test_c7_executed_and_skipped_with_the_reason(steady: scenes.Steady) -> None:
    """In the log of who ran it, and in its metrics; lock operations are counted and timed."""
    steady.pollers.fleet.seconds[4] = 3 * scenes.INTERVAL
    name = 'fencepost_runs_total{job_name="poll-4",outcome="skipped"}'
    metrics = eventually(lambda: (found := steady.leader.metrics()).get(name) and found)
    steady.pollers.fleet.seconds[4] = 0.0
    assert metrics['fencepost_skips_total{reason="overlap"}'] >= 1
    assert metrics['fencepost_runs_total{job_name="poll-5",outcome="succeeded"}'] >= 1
    assert metrics['fencepost_claims_total{result="claimed"}'] >= 1
    assert metrics['fencepost_store_operation_duration_seconds_count{operation="heartbeat"}'] >= 1
    assert metrics["fencepost_leader"] == 1
    assert steady.follower.metrics()["fencepost_leader"] == 0
    skipped = eventually(
        lambda: [e for e in _events(steady.leader, "run.skipped") if e["job_id"] == "poll-4"]
    )
    assert skipped[0]["reason"] == "overlap"
    executed = [event["job_id"] for event in _events(steady.leader, "run.succeeded")]
    assert "poll-5" in executed


def test_c7_leadership_won_and_lost_and_the_failover(deposed: scenes.Deposed) -> None:
    """Won at info, lost at warning; and counted."""
    for pod in (deposed.old, deposed.new):
        assert {event["level"] for event in _events(pod, "leader.elected")} == {"info"}
        assert {event["replica"] for event in _events(pod, "leader.elected")} == {pod.status()["replica"]}
    assert {event["level"] for event in _events(deposed.old, "leader.lost")} == {"warning"}
    old, new = deposed.old.status()["replica"], deposed.new.status()["replica"]
    [failover] = _events(deposed.new, "leader.failover")
    assert f"from {old} to {new}, " in failover["message"]
    assert re.search(r"[0-9.]+ s after its last sign of life", failover["message"])
    assert deposed.old.metrics()["fencepost_lease_lost_total"] >= 1


def test_c7_lock_operations_are_logged_at_debug(valkey_url: str, tmp_path: Path) -> None:
    """Acquired, renewed, refused, lost and released: the leader's lease and the lock of each run."""
    with Pollers(valkey_url, tmp_path, log_level="debug") as pollers:
        pods = pollers.start("poller-0", "poller-1")
        leader = pollers.leader()
        (follower,) = (pod for pod in pods if pod is not leader)
        for pod, operation in (
            (leader, "acquired leader, term"),
            (leader, "renewed leader, term"),
            (leader, "acquired poll-1@"),
            (leader, "released poll-1@"),
            (follower, "refused leader: "),
        ):
            eventually(partial(_said_at_debug, pod, operation), STARTING)
        leader.send(signal.SIGSTOP)
        eventually(lambda: follower.leads, STARTING)
        leader.send(signal.SIGCONT)
        eventually(partial(_said_at_debug, leader, "lost leader, term"), STARTING)


def _said_at_debug(pod: Pod, operation: str) -> bool:
    lines = [json.loads(line) for line in pod.told().splitlines() if line.startswith("{")]
    return any(
        line["logger"] == "fencepost.locks"
        and line["level"] == "debug"
        and line["message"].startswith(operation)
        for line in lines
    )


# --- C8: settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"FENCEPOST_LEADER_TTL": "15s"}, "raise leader_ttl to 20s, or lower heartbeat to 7500ms"),
        ({"FENCEPOST_RUN_TTL": "15s"}, "raise run_ttl to 20s, or lower heartbeat to 7500ms"),
        (
            {"FENCEPOST_HORIZON": "40s"},
            "raise horizon to 1m, lower leader_ttl to 20s, or leave horizon unset",
        ),
        ({"FENCEPOST_HEARTBEAT": "10ms"}, "raise it to 50ms or more"),
    ],
)
def test_c8_ttls_and_heartbeat_are_checked_against_each_other(wrong: dict[str, str], remedy: str) -> None:
    """The message names the remedy. The documented values fit."""
    fitting = {"FENCEPOST_LEADER_TTL": "60s", "FENCEPOST_RUN_TTL": "60s", "FENCEPOST_HEARTBEAT": "15s"}
    assert Settings.load(env=fitting).leader_ttl.total_seconds() == 60
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(env=wrong)
    assert remedy in str(refused.value)


def test_c8_the_service_does_not_start_with_settings_that_contradict(valkey_url: str, tmp_path: Path) -> None:
    """It ends at once, and says why."""
    with Pollers(valkey_url, tmp_path, leader_ttl=1, heartbeat=1) as pollers:
        (pod,) = pollers.spawn("poller-0")
        assert pod.process.ended(STARTING) != 0
        assert "leader_ttl (1s) must be at least twice heartbeat" in pod.told()


# --- C9: clocks ---------------------------------------------------------------------------------------------


def test_c9_wrong_clocks_split_nothing(valkey_url: str, tmp_path: Path) -> None:
    """An hour fast, an hour slow, and one that jumps by a day while it leads: one leader, every fire once, on time."""
    with ExitStack() as stack:
        clocks = [stack.enter_context(clock()) for _ in range(2)]
        pollers = stack.enter_context(Pollers(valkey_url, tmp_path, leader_ttl=2, run_ttl=2, horizon=4))
        for preloaded, hours, name in zip(clocks, (1, -1), ("fast", "slow"), strict=True):
            if preloaded is None:
                pytest.skip("no C compiler (cc)")
            preloaded.set(hours * 3600)
            pollers.spawn(name, env=preloaded.env)
        pollers.all_ready()
        fast, slow = (pod.metrics()["fencepost_clock_skew_seconds"] for pod in pollers.pods)
        assert (round(fast / 60), round(slow / 60)) == (60, -60)  # the clocks are wrong indeed
        eventually(lambda: len(pollers.fleet.polls) > 5)
        leader = pollers.leader()
        term = leader.status()["leader"]["term"]
        jumping = clocks[pollers.pods.index(leader)]
        assert jumping is not None
        jumping.set(jumping.offset + 86_400)
        jumped = time.monotonic()
        eventually(lambda: time.monotonic() > jumped + 3)  # more than the TTL
        assert [pod.leads for pod in pollers.pods] == [pod is leader for pod in pollers.pods]
        assert leader.status()["leader"]["term"] == term
        eventually(lambda: len(leader.status()["replicas"]) == 2)
        assert not any("replica.expired" in pod.told() for pod in pollers.pods)
        polls = pollers.polls_after(jumped)
        assert len(polls) >= 6
        today = time.strftime("@%Y-%m-%dT%H:", time.gmtime())  # by the clock that Valkey has
        assert any(today in poll.fire for poll in polls)
        assert pollers.polled_twice() == []


# --- C10: the web API without the store -----------------------------------------------------------------------


def test_c10_the_web_api_keeps_serving_while_the_store_is_down(outage: scenes.Outage) -> None:
    """Its own routes with the last data they had, the probes of Kubernetes, status and metrics."""
    assert outage.answers == {"/readings": 200, "/ready": 200, "/livez": 200, "/metrics": 200, "/readyz": 503}
    assert outage.readings["stale"]
    assert len(outage.readings["readings"]) == 3
    assert outage.never_asked["stale"]
    assert len(outage.never_asked["readings"]) == 3, (
        "a replica that was never asked has the cluster's last readings"
    )
    assert outage.status["store_answers"] is False
    pod = outage.pollers.pods[0]
    eventually(lambda: not pod.client.get("/readings").json()["stale"])


# --- C11: retry -----------------------------------------------------------------------------------------------


def test_c11_a_poll_that_fails_is_repeated_with_backoff_and_jitter(steady: scenes.Steady) -> None:
    """Each wait is twice as long, half of it left to chance: two devices that fail together come back apart."""
    fleet = steady.pollers.fleet
    fleet.to_fail.update({2: 3, 3: 3})

    def four_attempts(device: int) -> list[Poll] | None:
        polls = steady.pollers.polls_by_fire().values()
        return next((each for each in polls if each[0].device == device and len(each) == 4), None)

    attempts = [eventually(partial(four_attempts, device)) for device in (2, 3)]
    decided = [_waits_decided(steady, polls[0].fire) for polls in attempts]
    for polls, waits in zip(attempts, decided, strict=True):
        assert [poll.answered for poll in polls] == [False, False, False, True]
        assert [poll.token - polls[0].token for poll in polls] == [0, 1, 2, 3]
        for wait, longest in zip(waits, (0.2, 0.4, 0.8), strict=True):
            assert longest / 2 <= wait <= longest
        for wait, (earlier, later) in zip(waits, pairwise(polls), strict=True):
            assert later.at - earlier.at >= wait - 0.05, "the device was asked again before its time"
    one, other = decided
    assert one != other, "they come back together"


def _waits_decided(steady: scenes.Steady, fire: str) -> list[float]:
    """Seconds after each failed attempt, as the log of the leader has them."""

    def waits() -> list[float] | None:
        retried = [each for each in _events(steady.leader, "run.retrying") if each["fire"] == fire]
        return [each["retry_in_seconds"] for each in retried] if len(retried) == 3 else None

    found: list[float] = eventually(waits)
    return found


# --- C12: status -----------------------------------------------------------------------------------------------


def test_c12_the_status_says_who_leads_and_who_takes_part(steady: scenes.Steady) -> None:
    """`GET /scheduler/status` on any replica tells of itself, and the same of the cluster."""
    one, other = steady.leader.status(), steady.follower.status()
    assert (one["is_leader"], other["is_leader"]) == (True, False)
    assert one["replica"] != other["replica"]
    for status in (one, other):
        assert status["ready"]
        assert status["store_answers"]
        assert status["leader"]["replica"] == one["replica"]
        assert {replica["replica"] for replica in status["replicas"]} == {one["replica"], other["replica"]}
        assert sum(status["jobs"].values()) == 5


# --- C13: one and several replicas -----------------------------------------------------------------------------


@pytest.mark.parametrize("scene", ["alone", "rolling", "workers"])
def test_c13_no_fire_runs_twice(
    scene: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """One replica, three of which one leads, two that share the work; some killed, some stopped. The devices saw each
    fire once at the most, and the audit finds each one once."""
    found: scenes.Scene = request.getfixturevalue(scene)
    assert found.pollers.polled_twice() == []
    assert outcome(["audit", "--store", f"{found.url}?prefix=scheduler", "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)
    assert (audit["doubled"], audit["unaccounted"]) == ([], [])
    assert audit["ran"] > 5


# --- helpers ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def by_hand(url: str, hand: HandClock) -> AsyncIterator[Harness]:
    """The store that the service uses, with a clock that we set."""
    store = RedisStore(f"{url}?prefix=scheduler", clock=hand)
    await store.open()
    try:
        yield Harness.with_clock(store, hand)
    finally:
        await store.close()


def _terms(pod: Pod) -> list[int]:
    """In which it was elected."""
    return [int(event["message"].rpartition(" ")[2]) for event in _events(pod, "leader.elected")]


def _events(pod: Pod, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in pod.told().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == kind]
