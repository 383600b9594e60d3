"""The loops of a replica: their skeleton, outages of the store, and claims whose replies went astray."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from fencepost.errors import StoreUnavailable
from fencepost.model import Job, State, manual_key
from fencepost.model.retry import Retry
from fencepost.model.triggers import every
from fencepost.replica.engines import EngineLoop
from fencepost.replica.replica import Identity, Replica
from fencepost.replica.service import Service
from fencepost.runs.host import InlineHost
from fencepost.runs.recurring import RecurringErrors
from fencepost.runs.tasks import Registry
from fencepost.settings import Settings
from fencepost.store.base import ClaimRequest, NewFire, Settle
from fencepost.store.memory import MemoryStore
from fencepost.store.rules.fires import add_fire
from fencepost.testing.virtual import WorldClock
from fencepost.testing.world import EPOCH, Process, World
from tests.unit.apps.cluster import HEARTBEAT, TTL, Cluster

# The skeleton


class Scripted(Service):
    """Notes when it is called, and does what the script says."""

    def __init__(self, world, script=None, shortest=0.005):
        self.world = world
        self.process = Process(world)
        self.clock = WorldClock(world)
        self.outages = []
        self.told = []
        self.errors = RecurringErrors(logging.getLogger("fencepost"), lambda: world.now)
        super().__init__(self)  # it is its own replica as well
        self.shortest = shortest
        self.calls = []
        self.script = script or (lambda number: None)
        self.id = "scripted"
        self.task = self.process.create_task(self.run())

    async def step(self):
        self.calls.append(self.world.now)
        answer = self.script(len(self.calls))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def store_failed(self, error, asked_at, loop):
        self.outages.append(str(error))

    def store_served(self, loop):
        pass

    def backoff(self, failures):
        return 100.0 * failures

    def loop_degraded(self, name, error):
        self.told.append((self.world.now, "degraded", name, str(error)))

    def loop_recovered(self, name):
        self.told.append((self.world.now, "recovered", name))


def test_a_service_steps_when_it_asked_to_and_sleeps_otherwise():
    world = World()
    service = Scripted(world, lambda number: 2.0 if number < 4 else None)
    world.run_until(1000)
    assert service.calls == [0.0, 2.0, 4.0, 6.0]


def test_a_woken_service_steps_at_once_and_a_wake_during_its_step_is_not_lost():
    world = World()
    service = Scripted(world)
    world.at(50.0, service.wake)
    world.run_until(100)
    assert service.calls == [0.0, 50.0]

    async def step():
        service.calls.append(world.now)
        await asyncio.sleep(1)
        return None

    service.step = step
    world.at(200.0, service.wake)
    world.at(200.5, service.wake)
    world.run_until(300)
    assert service.calls == pytest.approx([0.0, 50.0, 200.0, 201.005])


def test_a_service_that_learns_of_something_sooner_steps_then_and_not_before():
    world = World()
    service = Scripted(world, lambda number: 60.0)

    def learn(seconds):
        return lambda: service.process.call_soon(service.step_in, seconds)

    world.at(10.0, learn(5.0))
    world.at(12.0, learn(30.0))
    world.at(20.0, learn(90.0))
    world.run_until(100)
    assert service.calls == pytest.approx([0.0, 15.0, 75.0])


def test_however_often_it_is_woken_a_service_keeps_its_shortest_interval():
    world = World()
    service = Scripted(world, shortest=0.1)
    for millisecond in range(1000):
        world.at(10 + millisecond / 1000, service.wake)
    world.run_until(20)
    within = [moment for moment in service.calls if moment >= 10]
    assert 9 <= len(within) <= 12
    assert all(later - earlier >= 0.0999 for earlier, later in pairwise(within))


def test_an_idle_service_wakes_up_once_for_each_step(monkeypatch):
    slept = []
    sleep = asyncio.sleep

    async def noted(seconds, *rest):
        slept.append(seconds)
        await sleep(seconds, *rest)

    monkeypatch.setattr(asyncio, "sleep", noted)
    world = World()
    service = Scripted(world, lambda number: 10.0)
    world.run_until(95)
    assert len(service.calls) == 10
    assert slept == []


def test_a_service_that_wants_its_turn_at_once_does_not_spin():
    world = World()
    service = Scripted(world, lambda number: 0.0, shortest=0.5)
    world.run_until(10)
    assert len(service.calls) <= 21


def test_a_store_that_does_not_answer_puts_a_service_off_longer_each_time_and_success_forgives():
    world = World()
    answers = {
        1: StoreUnavailable("down"),
        2: StoreUnavailable("still"),
        3: 10.0,
        4: StoreUnavailable("again"),
    }
    service = Scripted(world, answers.get)
    world.run_until(1000)
    assert service.calls == pytest.approx([0, 100, 300, 310, 410])
    assert service.outages == ["down", "still", "again"]


def test_an_unexpected_error_is_logged_and_does_not_end_a_service(caplog):
    world = World()
    service = Scripted(world, lambda number: ZeroDivisionError("oops") if number < 3 else None)
    world.run_until(1000)
    assert service.calls == pytest.approx([0, 100, 300])
    assert caplog.text.count("unexpected error in scripted; trying again") == 2
    assert caplog.text.count("Traceback") == 1
    assert not service.outages
    assert not service.told, "two errors in a row may happen"


def test_a_loop_that_keeps_failing_is_degraded_until_a_step_succeeds():
    world = World()
    answers = {
        1: ZeroDivisionError("one"),
        2: ZeroDivisionError("two"),
        3: StoreUnavailable("an outage says nothing about the loop"),
        4: ZeroDivisionError("three"),
        5: ZeroDivisionError("four"),
    }
    service = Scripted(world, answers.get)
    world.run_until(5000)
    assert service.told == [
        (pytest.approx(600), "degraded", "scripted", "three"),
        (pytest.approx(1500), "recovered", "scripted"),
    ]


def test_a_loop_that_fails_at_once_is_neither_tried_nor_logged_thousands_of_times(caplog):
    world = World()
    service = Scripted(world, lambda number: ZeroDivisionError(f"{number} times"), shortest=0.0)
    service.backoff = lambda failures: 2.0
    for moment in range(20_000):
        world.at(moment / 1000, service.wake)
    world.run_until(20)
    assert len(service.calls) <= 21
    assert caplog.text.count("Traceback") == 1
    assert (
        "unexpected error in scripted; trying again, 10 times so far: ZeroDivisionError: 10 times"
        in caplog.text
    )
    assert len(caplog.text) < 3_000


def test_a_loop_that_has_failed_can_be_stopped_at_once():
    world = World()
    service = Scripted(world, lambda number: ZeroDivisionError())
    world.at(0.5, service.stop)
    world.run_until(0.6)
    assert service.task.done()


def test_a_stopped_service_ends():
    world = World()
    service = Scripted(world)
    world.at(5, service.stop)
    world.run_until(6)
    assert service.task.done()
    assert service.calls == [0.0]


def idle_replica(**settings) -> Replica:
    clock = WorldClock(World())
    return Replica(
        store=MemoryStore(clock),
        clock=clock,
        settings=Settings(**settings),
        registry=Registry(),
        host=InlineHost(),
        identity=Identity("me", "me", 1),
        chance=random.Random(1),
    )


def test_an_idle_replica_backs_off_from_one_second_to_sixty():
    replica = idle_replica()
    for failures, longest in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (5000, 60)]:
        delays = [replica.backoff(failures) for _ in range(200)]
        assert 0.75 * longest <= min(delays)
        assert 0.95 * longest <= max(delays) <= longest


def test_a_replica_that_holds_claims_or_owes_an_answer_backs_off_by_half_a_heartbeat_at_the_most():
    replica = idle_replica()
    replica.runs._by_key["key"] = object()
    assert max(replica.backoff(failures) for failures in range(1, 100)) <= 5.0
    assert replica.backoff(1) <= 1.0
    replica.runs._by_key.clear()
    assert replica.backoff(20) > 40
    replica.settler.put(object(), lambda written, accepted: None)
    assert replica.backoff(20) <= 5.0


def test_so_does_one_whose_last_run_ended_within_a_ttl():
    """The store may lose that, and would take the replica for dead in the middle of the run."""
    replica = idle_replica()
    replica.runs._remember(Settle("key", 1, State.SUCCEEDED))
    assert replica.backoff(20) <= 5.0
    replica.runs._last_end -= 30
    assert replica.backoff(20) > 40


def test_nobody_backs_off_for_longer_than_two_terms_last():
    replica = idle_replica(leader_ttl=4, heartbeat=1)
    assert max(replica.backoff(failures) for failures in range(1, 100)) <= 8.0


# Outages


def job() -> Job:
    return Job("job", "body", every(seconds=10, anchor=EPOCH))


def test_a_store_that_is_down_at_the_start_is_waited_for():
    cluster = Cluster(remote=True)
    cluster.network.store_is_up = False
    member = cluster.add(job())
    cluster.run(15)
    assert not member.replica.is_ready
    assert len(member.told("store.degraded")) == 1
    cluster.network.store_is_up = True
    cluster.until(lambda: member.replica.is_ready, 2 * TTL + 2)
    assert len(member.told("store.recovered")) == 1
    cluster.run(60)
    assert len(member.told("store.degraded")) == 1
    assert len(cluster.starts) >= 5


def test_each_outage_is_told_once_and_its_end_once():
    cluster = Cluster(remote=True)
    member = cluster.add(job())
    cluster.run(5)
    assert not member.told("store.degraded")
    for outage in (1, 2):
        cluster.network.store_is_up = False
        cluster.run(40)
        assert len(member.told("store.degraded")) == outage
        cluster.network.store_is_up = True
        cluster.run(40)
        assert len(member.told("store.recovered")) == outage
    assert set(cluster.starts.values()) == {1}


def test_what_fell_due_in_an_outage_is_accounted_for_after_it():
    cluster = Cluster(remote=True)
    cluster.add(job())
    cluster.run(25)
    cluster.network.store_is_up = False
    cluster.run(100)
    cluster.network.store_is_up = True
    cluster.run(36)
    rows = cluster.fires("job")
    assert sum(fire.count for fire in rows) == 16
    assert all(fire.state.final for fire in rows)
    assert [(fire.state, fire.reason) for fire in rows if fire.state is not State.SUCCEEDED] == [
        (State.MISSED, "coalesced")
    ]


def test_a_run_goes_on_through_an_outage_shorter_than_its_ttl_and_its_result_is_accepted():
    async def body(fire):
        await asyncio.sleep(8)

    cluster = Cluster(remote=True)
    member = cluster.add(job(), body=body)
    cluster.add(job(), body=body)
    cluster.run(12)
    cluster.network.store_is_up = False
    cluster.run(4)
    cluster.network.store_is_up = True
    cluster.run(15)
    [first] = cluster.fires("job")[:1]
    assert (first.state, first.attempt) == (State.SUCCEEDED, 1)
    assert not member.told("fenced")


def test_the_dead_are_found_where_many_replies_are_lost():
    late = []
    for seed in range(20):
        cluster = Cluster(remote=True, leader_ttl=30.0, run_ttl=30.0, heartbeat=10.0, horizon=60.0)
        cluster.network.chance = random.Random(seed)
        members = [cluster.add(job()) for _ in range(3)]
        cluster.until(lambda members=members: all(m.replica.is_ready for m in members), 20)
        cluster.network.weather.lose_reply = 0.3
        cluster.run(100)
        killed = next(member for member in members if not member.leads)
        killed.process.kill()
        late.append(cluster.until(lambda cluster=cluster, id=killed.replica.id: is_gone(cluster, id), 600))
    assert max(late) < 4 * 30


def is_gone(cluster, id):
    return id not in {replica.id for replica in cluster.ask("roster").replicas}


@pytest.mark.parametrize("outage", [3.0, 8.0, 13.0, 60.0])
def test_an_outage_lets_no_replica_with_a_run_be_declared_dead(outage):
    async def body(fire):
        await asyncio.sleep(1000)

    for start in range(10):
        cluster = Cluster(remote=True)
        jobs = [Job(f"job{n}", "body", every(seconds=10, anchor=EPOCH)) for n in range(20)]
        members = [cluster.add(*jobs, body=body) for _ in range(4)]
        cluster.run(30 + start * HEARTBEAT / 10)
        busy = [member for member in members if member.replica.runs]
        assert len(cluster.starts) == 20
        assert len(busy) > 1
        cluster.network.store_is_up = False
        cluster.run(outage)
        cluster.network.store_is_up = True
        cluster.run(3 * TTL)
        assert not any(member.told("replica.expired") for member in busy)
        assert [fire.state for fire in cluster.fires()].count(State.RUNNING) == 20


# Claims


def claims_of(cluster):
    """The claims that reach the store from now on, as (when, how many fires)."""
    claims = []

    def note(process, name, args, reply):
        if name == "claim_fires":
            claims.append((cluster.world.now, len(reply.claims)))

    cluster.network.on_commit = note
    return claims


def test_no_run_is_followed_by_an_empty_claim():
    cluster = Cluster(remote=True)
    cluster.add(Job("job", "body", every(seconds=1)))
    cluster.run(30)
    claims = claims_of(cluster)
    cluster.run(30)
    assert sum(number for _, number in claims) >= 29
    assert (
        sum(1 for _, number in claims if not number) <= 6
    )  # the planner's, each time it has planned something


def test_the_reply_to_a_settle_says_when_its_retry_is_due():
    """Nothing else is due for an hour, and no claim follows the settle."""

    async def body(fire):
        if fire.attempt == 1:
            raise ValueError("not yet")

    cluster = Cluster(remote=True)
    retried = Job("job", "body", every(hours=1), retry=Retry(attempts=2, first=3, jitter=0))
    cluster.add(retried, body=body)
    cluster.run(10)
    claims = claims_of(cluster)
    cluster.ask("add_fire", NewFire(manual_key("job", "now"), "job"))
    cluster.run(10)
    assert [number for _, number in claims if number] == [1, 1]
    first, second = (when for when, number in claims if number)
    assert second - first == pytest.approx(3, abs=0.1)
    assert len(claims) <= 3


def test_a_full_replica_claims_again_as_soon_as_a_run_has_ended():
    async def body(fire):
        await asyncio.sleep(2)

    cluster = Cluster(remote=True, slots=1)
    cluster.add(*(Job(f"job{n}", "body", every(hours=1)) for n in range(3)), body=body)
    cluster.run(10)
    for n in range(3):
        cluster.ask("add_fire", NewFire(manual_key(f"job{n}", "now"), f"job{n}"))
    begun = cluster.world.now
    cluster.until(lambda: len(cluster.starts) == 3, 10)
    assert cluster.world.now - begun < 4.3


def test_a_claim_whose_reply_was_lost_is_repeated_under_its_number_and_starts_once():
    cluster = Cluster(remote=True)
    cluster.add(job())
    claims = []

    def lose_the_first(process, name, args, reply):
        if name == "claim_fires" and reply.claims:
            claims.append((args[0].number, [(claim.fire.key, claim.fire.token) for claim in reply.claims]))
            cluster.network.weather.lose_reply = 1.0 if len(claims) == 1 else 0.0

    cluster.network.on_commit = lose_the_first
    cluster.run(19)
    assert len(claims) == 2
    assert claims[0] == claims[1]
    [fire] = cluster.fires("job")
    assert (fire.state, fire.token, fire.attempt) == (State.SUCCEEDED, 1, 1)
    assert cluster.starts == {fire.key: 1}


def test_a_claim_whose_reply_comes_too_late_is_given_back_and_never_started():
    seen = []

    async def body(fire):
        seen.append((fire.key, fire.token, cluster.world.now))

    cluster = Cluster(remote=True)
    member = cluster.add(job(), body=body)

    def lose_for_a_while(process, name, args, reply):
        if name == "claim_fires" and reply.claims and not cluster.network.weather.lose_reply and not lost:
            lost.append(reply.claims[0].fire.token)
            cluster.network.weather.lose_reply = 1.0
            cluster.world.at(cluster.world.now + 0.75 * TTL, fair)

    def fair():
        cluster.network.weather.lose_reply = 0.0

    lost = []
    cluster.network.on_commit = lose_for_a_while
    cluster.run(19.9)
    [fire] = cluster.fires("job")
    assert lost == [1]
    assert [(key, token) for key, token, _ in seen] == [(fire.key, 2)]
    assert [each.outcome for each in fire.attempts] == ["given back", "succeeded"]
    assert fire.attempt == 1  # the one given back had never started
    assert not member.told("given_back")


def test_a_claim_the_replica_never_heard_of_is_given_back_at_the_next_beat():
    cluster = Cluster(remote=True)
    member = cluster.add(Job("job", "body"))
    cluster.run(3)
    number = member.replica.worker.last_number
    add_fire(cluster.network.state, cluster.network.moment(), NewFire(manual_key("job", "x"), "job"))
    [claim] = cluster.ask("claim_fires", ClaimRequest("r0", number + 1, 10)).claims
    assert not cluster.ask("claim_fires", ClaimRequest("r0", number + 2, 10)).claims
    cluster.run(2.5 * HEARTBEAT + 2)
    assert not member.replica.runs
    cluster.run(HEARTBEAT)
    [fire] = cluster.fires("job")
    assert claim.fire.token == 1
    assert (fire.state, fire.token, fire.attempt) == (State.SUCCEEDED, 2, 1)
    assert cluster.starts == {fire.key: 1}


def test_a_fenced_run_is_told_and_its_result_is_refused():
    seen = []

    async def body(fire):
        try:
            while cluster.world.now < 100:
                await asyncio.sleep(0.5)
                seen.append((cluster.world.now, fire.fenced_out))
        except asyncio.CancelledError:
            seen.append("cancelled")
            return  # as if it had succeeded

    cluster = Cluster(remote=True)
    once = Job("job", "body", every(seconds=10, anchor=EPOCH, end=EPOCH + timedelta(seconds=10)))
    first = cluster.add(once, body=body)
    cluster.run(12)
    second = cluster.add(once, body=body)
    cluster.run(1)
    assert not any(fenced for _, fenced in seen)
    cluster.network.cut_off.add("r0")
    cut_at = cluster.world.now
    cluster.run(5 * HEARTBEAT + TTL)
    told = [moment for moment, fenced in seen if fenced]
    assert cut_at < told[0] <= cut_at + TTL  # told although the store is out of reach
    assert "cancelled" not in seen  # but not ended: nothing is confirmed
    [fire] = cluster.fires("job")
    assert (fire.state, fire.reason) == (State.LOST, "its replica died in mid-run")
    assert second.leads
    cluster.network.cut_off.clear()
    cluster.run(2 * TTL)
    assert seen[-1] == "cancelled"
    assert len(first.told("fenced")) == 1
    assert not first.told("succeeded")
    assert cluster.fires("job") == [fire]
    assert not first.replica.runs


def test_two_replicas_start_every_fire_once_on_a_bad_network():
    cluster = Cluster(remote=True)
    jobs = [Job(f"job{n}", "body", every(seconds=3, anchor=EPOCH)) for n in range(4)]
    for _ in range(2):
        cluster.add(*jobs)
    cluster.run(2)
    cluster.network.weather.lose_reply = 0.2
    cluster.network.weather.lose_request = 0.2
    cluster.run(120)
    cluster.network.weather.lose_reply = cluster.network.weather.lose_request = 0.0
    cluster.run(3 * TTL)
    assert max(cluster.starts.values()) == 1
    for job in jobs:
        rows = cluster.fires(job.id)
        assert sum(fire.count for fire in rows) == int(cluster.world.now // 3)
        assert {fire.key for fire in rows if fire.state is State.SUCCEEDED} == {
            key for key in cluster.starts if key.startswith(f"{job.id}@")
        }


def test_draining_claims_no_more_and_leaves_when_the_last_run_has_ended():
    ended = []

    async def body(fire):
        await asyncio.sleep(8)
        ended.append(cluster.world.now)

    cluster = Cluster(drain_timeout=30)
    member = cluster.add(job(), body=body)
    cluster.run(11)
    assert member.replica.runs
    drained = member.process.create_task(member.replica.drain())
    cluster.run(5)
    assert not drained.done()
    assert cluster.ask("roster").replicas[0].draining
    cluster.run(30)
    assert drained.done()
    assert ended == pytest.approx([18.0], abs=0.1)
    assert len(cluster.starts) == 1
    assert cluster.fires("job")[0].state is State.SUCCEEDED
    assert not cluster.ask("roster").replicas
    assert member.told("replica.draining")
    assert member.told("replica.left")


def test_evidence_is_acted_on_at_once_although_the_leader_renewed_after_the_last_look():
    """Otherwise its follower would learn the new count, and wait a whole heartbeat before asking again."""
    cluster = Cluster(remote=True, leader_ttl=60, run_ttl=60, heartbeat=20, horizon=200)
    cluster.network.evidence_every = 0.2
    leader = cluster.add()
    cluster.run(5)
    follower = cluster.add()
    cluster.network.is_dead = lambda name: name == "r0" and leader.process.killed
    cluster.run(18)  # the leader beat at 20, the follower looked at 5
    assert leader.leads
    leader.process.kill()
    cluster.run(1)
    assert follower.leads


def test_followers_learn_of_a_new_leader_at_once():
    """One that does not know the leader collects no evidence against it, and this one may die in the next moment."""
    cluster = Cluster(leader_ttl=60, run_ttl=60, heartbeat=20, horizon=200)
    members = []
    for _ in range(3):  # at different times, and so are their heartbeats
        members.append(cluster.add())
        cluster.run(2.3)
    leader, *followers = members
    assert leader.leads
    leader.process.kill()
    cluster.until(lambda: any(each.leads for each in followers), 90)
    cluster.run(0.1)
    holder = cluster.ask("roster").leader.holder
    assert [each.replica.leadership.lease.holder for each in followers] == [holder, holder]


def test_a_follower_that_sees_a_newer_term_asks_who_leads():
    cluster = Cluster(leader_ttl=60, run_ttl=60, heartbeat=20, horizon=200)
    _, follower = cluster.add(), cluster.add()
    cluster.run(5)
    beats, roster = follower.replica.heartbeat.sent_so_far, cluster.ask("roster")
    follower.replica.janitor.watch(roster)
    cluster.run(1)
    assert follower.replica.heartbeat.sent_so_far == beats
    newer = replace(roster, leader=replace(roster.leader, term=roster.leader.term + 1))
    follower.replica.janitor.watch(newer)
    cluster.run(1)
    assert follower.replica.heartbeat.sent_so_far == beats + 1


def test_planning_comes_to_an_end_although_fires_come_within_the_horizon_meanwhile():
    """A hundred fires a second, one every ten milliseconds: there is always one that is not planned yet."""
    cluster = Cluster(horizon=20)
    asked = []
    due_jobs = cluster.memory.due_jobs

    async def counted(*args):
        asked.append(cluster.world.now)
        return await due_jobs(*args)

    cluster.memory.due_jobs = counted
    spread = [EPOCH + timedelta(milliseconds=10 * n) for n in range(100)]
    cluster.add(*(Job(f"job{n:02}", "body", every(seconds=1, anchor=at)) for n, at in enumerate(spread)))
    cluster.run(60)
    assert len(asked) < 30, "two or three rounds every half horizon"
    assert len(cluster.starts) >= 5900
    assert not [fire for fire in cluster.fires() if fire.state in (State.MISSED, State.SKIPPED)]


def test_what_the_loop_of_an_engine_writes_is_proof_of_a_loss_as_well():
    """Otherwise a store that forgot it, an adoption for example, would seem to have lost nothing."""
    cluster = Cluster(remote=True)

    async def body(fire):
        await asyncio.sleep(100)

    member = cluster.add(job(), body=body)
    cluster.until(lambda: cluster.starts, 30)
    cluster.run(0.1)
    [fire] = [fire for fire in cluster.fires() if fire.state is State.RUNNING]
    loop = EngineLoop(member.replica, "fake", None)

    def stored():
        return cluster.network.state.replicas.rows["r0"].steps

    before = stored()
    member.process.create_task(loop._update([Settle(fire.key, fire.token, State.FAILED)]))
    cluster.run(0.1)
    assert member.replica.data_loss.seen.steps == stored() == before + 1
