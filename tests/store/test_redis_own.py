"""What is particular to the Redis store: its two paths, its keys, and a server that restarts, forgets or refuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from redis import Redis

from fencepost.clock import Moment
from fencepost.errors import ConfigurationError, StoreCorrupt, StoreUnavailable
from fencepost.model import Job, State
from fencepost.model.triggers import every
from fencepost.store.base import (
    Campaign,
    ClaimRequest,
    FireQuery,
    HeartbeatRequest,
    NewFire,
    PutJob,
    Report,
    Seen,
    Settle,
    Suspect,
    Update,
    Watched,
)
from fencepost.store.codec import micros
from fencepost.store.redis import RedisStore, scripts
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.rest import RedisWork, claim_left
from fencepost.store.redis.scripts import Script
from fencepost.store.redis.values import place_of
from fencepost.store.rules import presence
from fencepost.store.urls import store_from_url
from fencepost.testing.conformance import HandClock, Harness, StoreConformance, job_of
from tests.cluster.harness import Cluster, Mark
from tests.protocol.comparison import Comparison, Mismatch
from tests.servers import Proxy, RedisServer, clock, cut_after, cut_before, half_open, valkey
from tests.servers.ports import Port
from tests.store.test_redis_topologies import until

P = "fencepost:default"
ALONE_IN_A_PAUSE = StoreConformance.test_what_falls_due_alone_in_a_pause_with_an_end_is_skipped
IN_PART = StoreConformance.test_a_backlog_that_is_planned_in_part_is_not_due
TAB = "\t"


@contextlib.asynccontextmanager
async def opened(url: str, **how: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(url, **how)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def by_hand(url: str) -> AsyncIterator[tuple[Harness, RedisStore]]:
    """A store whose time stands still."""
    clock = HandClock()
    async with opened(url, clock=clock, incarnation=0) as store:
        yield Harness.with_clock(store, clock), store


@pytest.fixture
def client(valkey_url: str) -> Any:
    with Redis.from_url(valkey_url, decode_responses=True) as client:
        yield client


async def join(store: RedisStore, name: str = "a", number: int = 1, **fields: Any) -> Any:
    request = HeartbeatRequest(
        name, number, 30.0, 10.0, joining=True, targets=("work",), campaign=Campaign(30.0)
    )
    return await store.heartbeat(replace(request, **fields))


# --- two paths, one behaviour -----------------------------------------------------------------------------


class TestPaths:
    STEPS = ("beat", "sweep", "plan", "claim", "update")

    @pytest.mark.slow
    async def test_the_comparison_takes_both(self, valkey_url: str, client: Any) -> None:
        async def count(seed: int) -> Any:
            async with by_hand(valkey_url) as (harness, store):
                await Comparison(harness, seed).run(200)
                return store.paths

        taken: Any = await count(50)
        for seed in (61, 65, 69, 73, 76):
            client.flushall()
            taken += await count(seed)
        for step in self.STEPS:
            assert taken[f"fast {step}"] > 10, taken
            assert taken[f"general {step}"] > 10, taken

    @pytest.mark.parametrize("seed", [60, 61])
    async def test_the_careful_path_alone_is_enough(self, valkey_url: str, seed: int) -> None:
        async with by_hand(valkey_url) as (harness, store):
            store.fast = False
            await Comparison(harness, seed).run(120)
            assert not any(store.paths[f"fast {step}"] for step in self.STEPS)

    @pytest.mark.parametrize(
        ("script", "condition", "without"),
        [
            pytest.param("CLAIM", "hot[4] == '0' and", "", marks=pytest.mark.rare),
            ("CLAIM", "hot[8] == '1' and", ""),
            pytest.param("CLAIM", "'tail', id .. '@' .. second", "'tail', ''", marks=pytest.mark.rare),
            pytest.param(
                "CLAIM",
                "skipped, last = skip(id, head[1], more), more[#more]",
                "skipped = skip(id, head[1], more)",
                marks=pytest.mark.rare,
            ),
            ("CLAIM", "and now - at <= tonumber(hot[6])", ""),
            pytest.param("CLAIM", "plain and claimed + promised < room", "plain", marks=pytest.mark.rare),
            ("SETTLE", "hot[2] == '1' and", ""),
            ("PLAN", "and hot[3] == cursor", ""),
            ("HEARTBEAT", "tonumber(number) <= tonumber(me[2]) or", ""),
            ("SWEEP", "or redis.call('ZCOUNT', p .. ':unknown', '-inf', whole(now)) > 0", ""),
        ],
    )
    @pytest.mark.mutants
    @pytest.mark.timeout(300)
    async def test_a_condition_left_out_is_noticed(
        self, valkey_url: str, client: Any, monkeypatch: Any, script: str, condition: str, without: str
    ) -> None:
        original = getattr(scripts, script)
        assert condition in original.text
        broken = Script(original.name, original.text.replace(condition, without))
        monkeypatch.setattr(scripts, script, broken)

        async def compare_many() -> None:
            for seed in range(40, 240):
                client.flushall()
                async with by_hand(valkey_url) as (harness, _):
                    await Comparison(harness, seed).run(200)

        with pytest.raises(Mismatch):
            await compare_many()

    @pytest.mark.parametrize(
        ("script", "condition", "without", "rule", "given"),
        [
            ("CLAIM", "from <= at and ", "", ALONE_IN_A_PAUSE, (70, 65)),
            ("CLAIM", "from <= at and from <= now and ", "", ALONE_IN_A_PAUSE, (70, 90)),
            ("SETTLE", "== token", "~= nil", StoreConformance.test_a_wrong_token_is_refused, ()),
            ("PLAN", "and tonumber(following) > now", "", IN_PART, ()),
        ],
    )
    async def test_a_condition_that_chance_seldom_meets(
        self,
        valkey_url: str,
        monkeypatch: Any,
        script: str,
        condition: str,
        without: str,
        rule: Any,
        given: Any,
    ) -> None:
        original = getattr(scripts, script)
        assert condition in original.text
        monkeypatch.setattr(scripts, script, Script(original.name, original.text.replace(condition, without)))
        async with by_hand(valkey_url) as (harness, _):
            with pytest.raises(AssertionError):
                await rule(StoreConformance(), harness, *given)

    @pytest.mark.parametrize("seed", [70, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (71, 73))])
    async def test_all_indexes_agree_with_the_rows(self, valkey_url: str, client: Any, seed: int) -> None:
        async with by_hand(valkey_url) as (harness, _):
            comparison = Comparison(harness, seed)
            await comparison.run(250)
            assert list(contradictions(client, comparison)) == []


def contradictions(client: Any, comparison: Comparison) -> Any:
    """Where what is kept twice differs."""
    model = comparison.model
    looks = {}
    for group in client.hgetall(f"{P}:first"):
        jobs = client.zrange(f"{P}:look:{group}", 0, -1, withscores=True)
        looks.update(dict(jobs))
        kind, target = group.split(":", 1)
        first = f"{jobs[0][0]}{' ' if jobs[1:] else TAB}{target}"
        if client.zscore(f"{P}:look:{kind}", first) != jobs[0][1]:
            yield f"what is first of {group}"
    if looks != {id: micros(when) for id in model.jobs.rows if (when := model.jobs.decisions.when(id))}:
        yield f"looks at {looks}"
    priorities = ("", *client.smembers(f"{P}:priorities"))
    firsts = sum(client.zcard(f"{P}:look:{kind}{each}") for kind in ("any", "leader") for each in priorities)
    if firsts != client.hlen(f"{P}:first"):
        yield "there are more firsts than groups"
    places: dict[str, set[str]] = {"job": set(), "fire": set()}
    for kind, found in places.items():
        found |= {key.removeprefix(f"{P}:{kind}:") for key in client.scan_iter(f"{P}:{kind}:*")}
    held = set().union(*(client.smembers(key) for key in client.scan_iter(f"{P}:held:*")))
    if held != places["job"]:
        yield f"held {held}, running {places['job']}"
    ahead = {place_of(fire) for fire in model.fires.rows.values() if fire.state is State.PENDING}
    if client.smembers(f"{P}:others") != places["fire"] - ahead:
        yield "others"
    for id in model.jobs.rows:
        rows = sum(1 for found in places.values() for place in found if place.startswith(f"{id}:"))
        if int(client.hget(f"{P}:hot:{id}", "rows")) != rows:
            yield f"rows of {id}"
    for fire in model.fires.rows.values():
        minute = int(fire.due_at.timestamp()) // 60
        if not client.sismember(f"{P}:minute:{minute}", fire.job_id):
            yield f"{fire.key} is in no minute"
    known = [target for replica in model.replicas.rows.values() for target in replica.targets]
    if client.hgetall(f"{P}:knowers") != {name: str(known.count(name)) for name in known}:
        yield "knowers"
    if set(client.zrange(f"{P}:unknown", 0, -1)) != model.targets.rows.keys() - set(known):
        yield "unknown"


# --- what others may look at ------------------------------------------------------------------------------


class TestKeys:
    async def test_the_leader_and_what_runs_have_keys_of_their_own(
        self, valkey_url: str, client: Any
    ) -> None:
        async with by_hand(valkey_url) as (harness, _):
            await harness.elect("a")
            fire = await harness.running("job")
            key = f"{P}:job:job:{fire.key.partition('@')[2]}"
            assert client.hget(f"{P}:leader", "holder") == "a"
            assert client.exists(key)
            await harness.settle(fire)
            assert not client.exists(key)

    async def test_the_url_may_give_a_prefix(self, valkey_url: str, client: Any) -> None:
        async with opened(f"{valkey_url}?prefix=scheduler") as store:
            await join(store)
        assert client.hget("scheduler:leader", "holder") == "a"
        assert not list(client.scan_iter("fencepost*"))

    async def test_namespaces_are_apart(self, valkey_url: str) -> None:
        async with opened(valkey_url, namespace="one") as one, opened(valkey_url, namespace="two") as two:
            await join(one)
            assert (await two.roster()).replicas == ()

    async def test_history_that_is_pruned_leaves_nothing(self, valkey_url: str, client: Any) -> None:
        async with by_hand(valkey_url) as (harness, store):
            await harness.join("a")
            await harness.define("job", every(seconds=1))
            for n in range(3):
                await harness.trigger("job", f"m{n}")
            for _ in range(150):
                await harness.plan(2.0)
                await harness.advance(1)
                for fire in await harness.claims("a"):
                    await harness.settle(fire)
            assert await store.prune(10_000) == 0
            assert client.zcard(f"{P}:done:job") > 100
            await harness.advance(1000)
            assert await store.prune(0) > 100
            for key in ("done:job", "manual", "stretches"):
                assert not client.exists(f"{P}:{key}"), key
            assert len(list(client.scan_iter(f"{P}:minute:*"))) <= 1  # of what is planned

    @pytest.mark.slow
    async def test_a_fire_costs_about_two_hundred_bytes(self, valkey_url: str, client: Any) -> None:
        async with by_hand(valkey_url) as (harness, _):
            await harness.join("web-1-4711-deadbeef")
            for n in range(200):
                await harness.define(f"job{n:05}", every(seconds=1))

            async def settle_all(seconds: int) -> int:
                settled = 0
                for _ in range(seconds):
                    await harness.plan(30.0)
                    await harness.advance(1)
                    claims = await harness.claims("web-1-4711-deadbeef", room=500)
                    updates = [Settle(fire.key, fire.token, State.SUCCEEDED) for fire in claims]
                    await harness.store.update_claims("web-1-4711-deadbeef", updates)
                    settled += len(claims)
                return settled

            await settle_all(2)
            before = client.info("memory")["used_memory"]
            settled = await settle_all(40)
            assert settled == 8000
            assert (client.info("memory")["used_memory"] - before) / settled < 260


# --- several at once --------------------------------------------------------------------------------------


class TestRaces:
    @pytest.mark.parametrize("fast", [True, False])
    async def test_each_fire_is_claimed_once(self, valkey_url: str, fast: bool) -> None:
        """By three replicas that ask at the same moment, each over a connection of its own."""
        clock = HandClock()
        async with contextlib.AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(opened(valkey_url, clock=clock, incarnation=0))
                for _ in range(3)
            ]
            first = Harness.with_clock(stores[0], clock)
            for n, store in enumerate(stores):
                store.fast = fast
                await join(store, f"r{n}", campaign=None)
            await stores[0].put_jobs([PutJob(job_of(f"job{n}", every(minutes=1))) for n in range(30)])
            await first.plan()
            await clock.advance(60)

            async def claim_all(n: int) -> list[str]:
                found: list[str] = []
                for number in range(1, 40):
                    reply = await stores[n].claim_fires(ClaimRequest(f"r{n}", number, 3))
                    found += [claim.fire.key for claim in reply.claims]
                    updates = [Settle(c.fire.key, c.fire.token, State.SUCCEEDED) for c in reply.claims]
                    assert all((await stores[n].update_claims(f"r{n}", updates)).accepted)
                return found

            claimed = [key for found in await asyncio.gather(*map(claim_all, range(3))) for key in found]
            assert len(claimed) == len(set(claimed)) == 30

    async def test_a_step_that_was_overtaken_is_taken_again(self, valkey_url: str) -> None:
        async with by_hand(valkey_url) as (harness, store):
            await harness.define("job", every(minutes=1))
            adding = [harness.trigger("job", f"m{n}") for n in range(20)]
            assert {added.outcome for added in await asyncio.gather(*adding)} == {"added"}
            assert len(await store.find_fires(FireQuery(job_id="job", states=(State.PENDING,)))) == 20

    @pytest.mark.parametrize("goes", ["leaves", "is swept"])
    async def test_what_is_claimed_while_its_replica_goes_runs_elsewhere(
        self, valkey_url: str, client: Any, monkeypatch: pytest.MonkeyPatch, goes: str
    ) -> None:
        """A claim was under way when the replica stopped: the second half of it, for what a script leaves."""
        claiming, has_read, claimed = threading.Event(), threading.Event(), threading.Event()

        def slow_claim(rows: RedisWork, *args: Any) -> Any:
            claiming.set()
            assert has_read.wait(10)
            return claim_left(rows, *args)

        def slow_end(rows: RedisWork, at: Moment) -> None:
            if goes == "leaves":
                presence.leave(rows, at, "a")
            else:
                assert presence.sweep(rows, at, "b", 1, [Suspect("a", 0, 0.0, dead=True)])
            has_read.set()
            assert claimed.wait(10)

        monkeypatch.setattr("fencepost.store.redis.store.claim_left", slow_claim)
        async with opened(valkey_url, incarnation=0) as store:
            for name in ("b", "a"):
                server = (await join(store, name)).leader.era.server
            ask = ClaimRequest("b", 1, 1, server=server)
            await store.claim_fires(ask)  # the first in a history takes the general path
            await store.put_jobs([PutJob(Job("job", "work", None, after_crash="rerun"))])
            await store.add_fire(NewFire("job!once", "job"))
            asking = asyncio.create_task(store.claim_fires(replace(ask, replica="a")))
            assert await asyncio.to_thread(claiming.wait, 10)
            ending = asyncio.create_task(store._write(slow_end))  # type: ignore[arg-type]
            await asking
            claimed.set()
            await ending
            assert [replica.id for replica in (await store.roster()).replicas] == ["b"]
            reply = await store.claim_fires(replace(ask, number=2))
            assert [claim.fire.key for claim in reply.claims] == ["job!once"]
            assert not client.keys(f"{P}:held:a")

    async def test_a_task_that_a_replica_comes_to_know_is_not_called_unknown(self, valkey_url: str) -> None:
        has_read, joined = threading.Event(), threading.Event()

        def slow_sweep(rows: RedisWork, at: Moment) -> None:
            assert presence.sweep(rows, at, "b", 1, [])
            has_read.set()
            assert joined.wait(10)

        async with opened(valkey_url) as store:
            await join(store, "b", targets=())
            await store.put_jobs([PutJob(Job("job", "work", None))])
            sweeping = asyncio.create_task(store._write(slow_sweep))  # type: ignore[arg-type]
            assert await asyncio.to_thread(has_read.wait, 10)
            await join(store, "a")
            joined.set()
            await sweeping
            [job] = await store.jobs()
            assert job.unknown_since is None

    async def test_progress_in_the_same_batch_comes_first(self, valkey_url: str) -> None:
        async with by_hand(valkey_url) as (harness, store):
            fire = await harness.running("job")
            updates: list[Update] = [
                Report(fire.key, fire.token, saves=True, checkpoint=[1]),
                Settle(fire.key, fire.token, State.FAILED),
            ]
            assert (await store.update_claims("a", updates)).accepted == (True, True)
            assert (await harness.fire(fire.key)).checkpoint == [1]


# --- replies that are lost --------------------------------------------------------------------------------


class TestUnknownOutcomes:
    @pytest.fixture
    def proxy(self, valkey_url: str) -> Any:
        with Proxy(valkey_url) as proxy:
            yield proxy

    async def ready(self, url: str, clock: HandClock, stack: contextlib.AsyncExitStack) -> RedisStore:
        store = await stack.enter_async_context(opened(url, clock=clock, incarnation=0))
        await join(store)
        await store.put_jobs(
            [PutJob(job_of("job", every(minutes=1))), PutJob(job_of("other", every(minutes=1)))]
        )
        await Harness.with_clock(store, clock).plan()
        await clock.advance(60)
        return store

    async def test_a_claim_is_answered_again(self, proxy: Proxy) -> None:
        clock = HandClock()
        async with contextlib.AsyncExitStack() as stack:
            store = await self.ready(proxy.url, clock, stack)
            lost = proxy.rule(cut_after, match=scripts.CLAIM.sha.encode(), times=1)
            with pytest.raises(StoreUnavailable):
                await store.claim_fires(ClaimRequest("a", 1, 10))
            again = await store.claim_fires(ClaimRequest("a", 1, 10))
            assert lost.done == 1
            assert sorted(claim.fire.job_id for claim in again.claims) == ["job", "other"]
            assert (await store.claim_fires(ClaimRequest("a", 2, 10))).claims == ()

    async def test_a_settlement_is_accepted_again(self, proxy: Proxy) -> None:
        clock = HandClock()
        async with contextlib.AsyncExitStack() as stack:
            store = await self.ready(proxy.url, clock, stack)
            claims = (await store.claim_fires(ClaimRequest("a", 1, 10))).claims
            updates = [Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED) for claim in claims]
            proxy.rule(cut_after, match=scripts.SETTLE.sha.encode(), times=1)
            with pytest.raises(StoreUnavailable):
                await store.update_claims("a", updates)
            assert (await store.update_claims("a", updates)).accepted == (True, True)

    @pytest.mark.parametrize("script", [scripts.COMMIT, scripts.BEGIN])
    @pytest.mark.parametrize("action", [cut_after, cut_before])
    async def test_a_careful_step_can_be_repeated(self, proxy: Proxy, script: Script, action: Any) -> None:
        clock = HandClock()
        async with contextlib.AsyncExitStack() as stack:
            store = await self.ready(proxy.url, clock, stack)
            harness = Harness.with_clock(store, clock)
            proxy.rule(action, match=script.sha.encode(), times=1)
            with pytest.raises(StoreUnavailable):
                await harness.trigger("job")
            assert (await harness.trigger("job")).outcome in ("added", "exists")
            assert len(await store.find_fires(FireQuery(job_id="job", states=(State.PENDING,), limit=9))) >= 1

    async def test_a_server_that_hangs_is_unavailable(self, proxy: Proxy) -> None:
        clock = HandClock()
        async with contextlib.AsyncExitStack() as stack:
            store = await self.ready(proxy.url, clock, stack)
            store._link.timeout = 0.3
            proxy.rule(half_open, match=b"", times=1)
            with pytest.raises(StoreUnavailable):
                await store.claim_fires(ClaimRequest("a", 1, 10))
            assert len((await store.claim_fires(ClaimRequest("a", 1, 10))).claims) == 2


# --- sessions and hints -----------------------------------------------------------------------------------


class TestSessions:
    async def test_a_leader_whose_session_ended_is_gone(self, valkey_url: str) -> None:
        async with opened(valkey_url) as store, opened(valkey_url) as dying:
            await join(dying, "leader")
            await join(store, "follower")
            assert await self.gone(store, looks=3) == frozenset()
            await dying.close()
            assert await self.gone(store, looks=20) == {"leader"}
            lease = (await store.roster()).leader
            request = HeartbeatRequest(
                "follower",
                2,
                30.0,
                10.0,
                campaign=Campaign(30.0, Watched(lease.term, lease.renewals, 0, True)),
            )
            assert (await store.heartbeat(request)).leader.holder == "follower"

    async def test_a_leader_that_died_before_others_saw_it_is_gone(self, valkey_url: str) -> None:
        async with opened(valkey_url) as store, opened(valkey_url) as dying:
            await join(dying, "leader")
            await dying.close()
            await join(store, "follower")
            assert await self.gone(store, looks=20) == {"leader"}

    async def test_a_leader_that_may_not_subscribe_is_not_gone(self, valkey_url: str, client: Any) -> None:
        async with opened(valkey_url) as store, opened(valkey_url) as deaf:
            deaf._subscription._keys = Keys("elsewhere")
            await join(deaf, "leader")
            await join(store, "follower")
            assert client.pubsub_numsub(f"{P}:alive:leader") == [(f"{P}:alive:leader", 0)]
            assert await self.gone(store, looks=5) == frozenset()

    async def test_a_session_is_noted_again_after_a_restart_of_the_server(self) -> None:
        with valkey(appendonly=True, appendfsync="always") as server:
            async with opened(server.url) as dying:
                await join(dying, "leader")
                server.restart()
                await until(lambda: self.is_noted(dying))
            async with opened(server.url) as store:
                await join(store, "follower")
                assert await self.gone(store, looks=20) == {"leader"}

    async def is_noted(self, store: RedisStore) -> bool:
        with contextlib.suppress(StoreUnavailable):
            self.beats += 1
            await store.heartbeat(HeartbeatRequest("leader", self.beats, 30.0, 10.0, campaign=Campaign(30.0)))
            session = await store._link.ask("HGET", f"{P}:replica:leader", "session")
            return bool(session == store._beacons.server_run)
        return False

    beats = 1

    async def gone(self, store: RedisStore, looks: int) -> frozenset[str]:
        for _ in range(looks):
            found = await store.evidence(["leader"])
            assert not found.dead
            if found.gone:
                return found.gone
            await asyncio.sleep(0.05)
        return frozenset()

    async def test_only_the_leader_is_asked_about(self, valkey_url: str, client: Any) -> None:
        async with opened(valkey_url) as store:
            await join(store, "leader")
            before = client.info("commandstats").get("cmdstat_pubsub|numsub", {"calls": 0})["calls"]
            await store.evidence(["someone", "else"])
            assert client.info("commandstats").get("cmdstat_pubsub|numsub", {"calls": 0})["calls"] == before

    async def test_after_a_restart_nobody_is_gone_who_was_not_seen(self) -> None:
        with valkey() as server:
            async with opened(server.url) as store, opened(server.url) as other:
                await join(other, "leader")
                await join(store, "follower")
                await self.gone(store, looks=2)
                server.restart()
                await other._subscription.close()
                for _ in range(5):
                    with contextlib.suppress(StoreUnavailable):
                        assert (await store.evidence(["leader"])).gone == frozenset()

    async def test_a_hint_reaches_other_processes(self, valkey_url: str) -> None:
        async with opened(valkey_url) as store, opened(valkey_url) as other:
            assert await other.wait(0.2) is False
            waiting = asyncio.create_task(other.wait(5))
            await store.put_jobs([PutJob(Job("job", "work", every(hours=1)))])
            assert await waiting

    async def test_an_interrupted_subscription_hints_that_something_was_missed(
        self, valkey_url: str, client: Any
    ) -> None:
        async with opened(valkey_url) as store:
            assert await store.wait(0.2) is False
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            assert await store.wait(5)


# --- a server that restarts, forgets, refuses -------------------------------------------------------------


class TestLosses:
    async def one_run(self, store: RedisStore) -> Any:
        """A job that has run once; its fire."""
        await store.put_jobs([PutJob(Job("job", "work", every(seconds=1)))])
        harness = Harness(store, asyncio.sleep)
        number = 0
        while True:
            number += 1
            await harness.plan(5.0)
            era = (await store.roster()).leader.era
            reply = await store.claim_fires(ClaimRequest("a", number, 1, None, era.incarnation, era.server))
            if reply.claims:
                return reply.claims[0].fire
            await asyncio.sleep(0.05)

    async def test_a_new_store_outranks_one_that_nobody_remembers(self, valkey_url: str, client: Any) -> None:
        async with opened(valkey_url) as store:
            await join(store)
            assert (await self.one_run(store)).token > 365 << 40  # the days since 2025 began

    async def test_a_restart_that_loses_everything_is_noticed(self, caplog: Any) -> None:
        with valkey() as server:
            async with opened(server.url) as store:
                before = (await join(store)).leader
                fire = await self.one_run(store)
                server.restart(keep_data=False)
                with caplog.at_level(logging.ERROR), contextlib.suppress(StoreUnavailable):
                    await store.roster()
                reply = await join(
                    store, number=2, seen=Seen(before.era.incarnation, before.term, 9, before.era.server)
                )
                assert "has lost its data" in caplog.text
                assert reply.leader.era.standing == "lost"
                assert reply.leader.era.incarnation > before.era.incarnation
                assert (await store.jobs()) == ()
                request = ClaimRequest("a", 1, 1, None, before.era.incarnation, before.era.server)
                assert (await store.claim_fires(request)).claims == ()
                assert not (
                    await store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
                ).accepted[0]
                assert (await self.one_run(store)).token > fire.token

    async def test_a_loss_is_declared_once(self, caplog: Any) -> None:
        with valkey() as server:
            async with opened(server.url) as store, opened(server.url) as other:
                await join(store)
                await join(other, "b")
                server.restart(keep_data=False)
                for each in (store, other):
                    with contextlib.suppress(StoreUnavailable):
                        await each.roster()
                eras = [(await each.roster()).leader.era for each in (store, other)]
                assert eras[0] == eras[1]
                assert eras[0].standing == "lost"

    async def test_a_store_emptied_under_way_is_noticed(self, valkey_url: str, client: Any) -> None:
        async with opened(valkey_url) as store:
            await join(store)
            client.flushall()
            assert (await join(store, number=2)).leader.era.standing == "lost"

    @pytest.mark.parametrize(("fsync", "standing"), [("always", "settled"), ("everysec", "restarted")])
    async def test_a_restart_is_doubted_unless_nothing_can_be_lost(self, fsync: str, standing: str) -> None:
        with valkey(appendonly=True, appendfsync=fsync) as server:
            async with opened(server.url) as store:
                before = (await join(store)).leader.era
                server.restart()
                with contextlib.suppress(StoreUnavailable):
                    await store.roster()
                era = (await store.roster()).leader.era
                assert era.standing == standing
                assert era.incarnation == before.incarnation + (standing == "restarted")

    async def test_an_end_is_not_counted_while_it_is_doubtful_what_was_lost(
        self, valkey_url: str, client: Any
    ) -> None:
        """It would make up for a step that is missing."""
        async with by_hand(valkey_url) as (harness, _):
            fire = await harness.running()
            client.hset(f"{P}:leader", "standing", "restarted")
            first = (await harness.heartbeat("a")).steps
            assert await harness.settle(fire)
            assert (await harness.heartbeat("a")).steps == first + 1

    async def test_scripts_that_were_forgotten_are_sent_again(self, valkey_url: str, client: Any) -> None:
        async with opened(valkey_url) as store:
            await join(store)
            client.script_flush()
            assert (await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0))).known


class TestServers:
    async def test_a_server_that_is_down_is_unavailable(self) -> None:
        with valkey() as server:
            server.stop()
            with pytest.raises(StoreUnavailable, match=str(server.port)):
                await RedisStore(server.url).open()

    async def test_it_comes_back(self) -> None:
        with valkey(appendonly=True, appendfsync="always") as server:
            async with opened(server.url) as store:
                await join(store)
                server.stop()
                with pytest.raises(StoreUnavailable):
                    await store.roster()
                server.start()
                assert [replica.id for replica in (await store.roster()).replicas] == ["a"]

    async def test_a_wrong_password_is_a_mistake_of_configuration(self) -> None:
        with valkey(requirepass="right") as server:
            with pytest.raises(ConfigurationError, match="password") as error:
                await RedisStore(server.url.replace("right", "wrong-secret")).open()
            assert "secret" not in str(error.value)
            async with opened(server.url) as store:
                await store.roster()

    async def test_a_replica_is_refused(self, valkey_server: RedisServer) -> None:
        primary = f"{valkey_server.host} {valkey_server.port}"
        with valkey(replicaof=primary) as server, pytest.raises(ConfigurationError, match="primary"):
            await RedisStore(server.url).open()

    async def test_a_cluster_is_refused(self) -> None:
        bus = Port()  # by default ten thousand above its own, where outgoing connections are
        cluster: Any = {"cluster_enabled": True, "cluster_port": bus.number}
        with valkey(**cluster) as server, pytest.raises(ConfigurationError, match="cluster"):
            await RedisStore(server.url).open()
        bus.release()

    async def test_eviction_is_refused(self) -> None:
        evicting: Any = {"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"}
        with valkey(**evicting) as server, pytest.raises(ConfigurationError, match="noeviction"):
            await RedisStore(server.url).open()

    async def test_a_newer_schema_is_refused(self, valkey_url: str, client: Any) -> None:
        async with opened(valkey_url):
            client.hset(f"{P}:meta", "schema", 99)
        with pytest.raises(ConfigurationError, match="upgrade"):
            await RedisStore(valkey_url).open()

    async def test_keys_of_another_application_are_not_touched(self, valkey_url: str, client: Any) -> None:
        client.set(f"{P}:leader", "mine")
        with pytest.raises(StoreCorrupt, match="another application"):
            await RedisStore(valkey_url).open()
        assert client.get(f"{P}:leader") == "mine"

    @pytest.mark.parametrize(
        ("config", "promise"),
        [
            ({"appendonly": True, "appendfsync": "always"}, "exactly once"),
            ({"appendonly": True, "appendfsync": "everysec"}, "the last second"),
            ({"save": "60 1000"}, "since the last one"),
            ({}, "a restart loses everything"),
            ({"maxmemory": "50mb"}, "nothing of ours is evicted"),
        ],
    )
    async def test_one_line_says_which_promise_holds(self, caplog: Any, config: Any, promise: str) -> None:
        with valkey(**config) as server, caplog.at_level(logging.INFO, "fencepost"):
            async with opened(server.url) as store:
                await store.roster()
            assert [promise in record.getMessage() for record in caplog.records] == [True]

    async def test_a_server_that_does_not_tell_its_configuration_is_unknown(
        self, valkey_url: str, client: Any, caplog: Any
    ) -> None:
        client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
        try:
            with caplog.at_level(logging.INFO, "fencepost"):
                async with opened(valkey_url.replace("redis://", "redis://app:pw@")):
                    pass
        finally:
            client.execute_command("ACL", "DELUSER", "app")
        assert "no append-only file" in caplog.text

    def test_without_the_package_the_remedy_is_named(self) -> None:
        code = (
            "import sys; sys.modules['redis'] = None\n"
            "from fencepost.store.urls import store_from_url\n"
            "try: store_from_url('redis://localhost')\n"
            "except Exception as error: print(type(error).__name__, error)"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert told.startswith("ConfigurationError")
        assert "pip install 'fencepost[redis]'" in told

    @pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
    def test_urls(self, scheme: str) -> None:
        assert isinstance(store_from_url(f"{scheme}://localhost/0"), RedisStore)


def sent_within(url: str, seconds: float) -> list[int]:
    """How many commands each connection sends in this time, by MONITOR. A script is one, whatever it calls."""
    at = urlsplit(url)
    heard, deadline = b"", time.monotonic() + seconds
    with socket.create_connection((at.hostname, at.port)) as connection:
        connection.sendall(b"MONITOR\r\n")
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            with contextlib.suppress(TimeoutError):
                heard += connection.recv(65536)
    senders = re.findall(rb"^\+[0-9.]+ \[\d+ ([0-9.:]+)\]", heard, re.MULTILINE)  # instead of an address: lua
    return list(Counter(senders).values())


# --- real processes ---------------------------------------------------------------------------------------


@pytest.mark.cluster
class TestProcesses:
    SHORT: ClassVar[dict[str, Any]] = {"leader_ttl": 1.5, "run_ttl": 1.5, "heartbeat": 0.5}
    LONG: ClassVar[dict[str, Any]] = {"leader_ttl": 60, "run_ttl": 60, "heartbeat": 20}

    @pytest.mark.timely
    def test_kill_9_of_the_leader_is_noticed_whatever_the_ttl(self, valkey_url: str, tmp_path: Path) -> None:
        with Cluster(valkey_url, tmp_path, execute_on="leader", **self.LONG) as cluster:
            cluster.start(3)
            leader = cluster.leader()
            time.sleep(0.7)  # the others have seen its session
            key = cluster.trigger("long")
            cluster.wait_for(lambda: cluster.starts(key), 20, "the leader runs it")
            killed = time.monotonic()
            cluster.kill(leader)
            assert cluster.leader() is not leader
            assert time.monotonic() - killed < 1.0
            run = cluster.reader.fire(key)
            assert run is not None
            assert run.state is State.RUNNING, "a session that is gone proves nothing about a run"

    def test_kill_9_of_a_leader_that_has_just_been_elected(self, valkey_url: str, tmp_path: Path) -> None:
        """No other replica has had the time to see that it leads. Without evidence this would take 60 s each."""
        with Cluster(valkey_url, tmp_path, **self.LONG) as cluster:
            cluster.start(4)
            for _ in range(3):
                leader = cluster.leader()
                cluster.kill(leader)
                assert cluster.leader(10) is not leader

    @pytest.mark.slow
    def test_idle_followers_send_little(self, valkey_url: str, tmp_path: Path) -> None:
        """Twelve commands a minute with a heartbeat of 10 s are two per heartbeat."""
        calm: dict[str, Any] = {"leader_ttl": 3, "run_ttl": 3, "heartbeat": 1}
        with Cluster(
            valkey_url, tmp_path, jobs=20, period=3600.0, anchor=time.time() + 1800, **calm
        ) as cluster:
            cluster.start(3)
            cluster.wait_for(lambda: sorted(sent_within(valkey_url, 10))[1] <= 25, 60, "two send little")
            cluster.kill(cluster.leader())
            cluster.wait_for(lambda: sorted(sent_within(valkey_url, 10))[0] <= 25, 60, "the last one, too")

    def test_replies_that_are_lost_double_and_lose_nothing(self, valkey_url: str, tmp_path: Path) -> None:
        with (
            Proxy(valkey_url) as proxy,
            Cluster(proxy.url, tmp_path, jobs=20, period=1.0, **self.SHORT) as cluster,
        ):
            cluster.start(3)
            claims = proxy.rule(cut_after, match=scripts.CLAIM.sha.encode(), every=3)
            settles = proxy.rule(cut_after, match=scripts.SETTLE.sha.encode(), every=5)
            cluster.wait_for(lambda: claims.done > 6 and settles.done > 1, 30, "replies are lost")
            proxy.clear()
            verdict = cluster.finish()
            assert [*verdict.doubled, *verdict.unaccounted, *verdict.lost_unexplained] == [], verdict

    def test_a_restart_that_loses_everything_stops_nothing_for_long(self, tmp_path: Path) -> None:
        with valkey() as server, Cluster(server.url, tmp_path, jobs=5, period=0.5, **self.SHORT) as cluster:
            cluster.start(2)
            cluster.wait_for(lambda: len(cluster.marks()) > 20, 20, "fires run")
            server.restart(keep_data=False)
            restarted = time.time()
            before = {mark.key: mark.token for mark in cluster.marks()}
            cluster.wait_for(lambda: self.started_after(cluster, restarted + 1), 8, "scheduling resumes")
            later = [mark for mark in self.started_after(cluster, restarted + 1)]
            assert not before.keys() & {mark.key for mark in later}
            assert min(mark.token for mark in later) > max(before.values())
            assert any("has lost its data" in process.told() for process in cluster.processes)

    def started_after(self, cluster: Cluster, wall: float) -> list[Mark]:
        return [mark for mark in cluster.marks() if mark.what == "start" and mark.wall > wall]

    def test_an_outage_loses_no_healthy_run(self, tmp_path: Path) -> None:
        with (
            valkey(appendonly=True, appendfsync="always") as server,
            Cluster(server.url, tmp_path, long=5.0, **self.SHORT) as cluster,
        ):
            cluster.start(2)
            key = cluster.trigger("long")
            cluster.wait_for(lambda: cluster.starts(key), 20, "it starts")
            server.kill()
            time.sleep(3.0)  # two TTLs
            server.start()
            cluster.wait_for(lambda: self.settled(cluster, key), 20, "it is settled")
            assert len(cluster.starts(key)) == 1
            run = cluster.reader.fire(key)
            assert run is not None
            assert run.state is State.SUCCEEDED

    def settled(self, cluster: Cluster, key: str) -> bool:
        run = cluster.reader.fire(key)
        return run is not None and run.state.final

    def test_a_clock_that_steps_harms_no_run_and_stops_nothing(self, tmp_path: Path) -> None:
        """Forward by a minute, then back by ten: what was due in a stretch that comes twice ran the first time."""
        with ExitStack() as stack:
            preloaded = stack.enter_context(clock())
            if preloaded is None:
                pytest.skip("no C compiler (cc)")
            server = stack.enter_context(valkey(env=preloaded.env))
            cluster = stack.enter_context(
                Cluster(server.url, tmp_path, jobs=3, period=0.5, long=5.0, **self.SHORT)
            )
            cluster.start(2)
            run = cluster.trigger("long")
            cluster.wait_for(lambda: cluster.starts(run), 20, "it starts")
            cluster.wait_for(lambda: self.started_after(cluster, 0), 20, "scheduled fires start")
            preloaded.set(60)
            stepped = time.time()
            ttl = self.SHORT["run_ttl"]
            cluster.wait_for(lambda: self.started_after(cluster, stepped), 2 * ttl, "they do in new time")
            preloaded.set(-540)
            quick = cluster.trigger("quick")
            cluster.wait_for(lambda: cluster.starts(quick), 2 * ttl, "so does what is due by the new clock")
            cluster.wait_for(lambda: self.settled(cluster, run), 20, "the run is settled")
            found = cluster.reader.fire(run)
            assert found is not None
            assert found.state is State.SUCCEEDED
            starts = [mark.key for mark in cluster.marks() if mark.what == "start"]
            assert len(starts) == len(set(starts))


class TestATakeoverBesideManyClaims:
    """Each claim of a replica renews its presence, and its heartbeat on the general path compares that very row."""

    async def _leader_and_follower(self, store: RedisStore) -> tuple[Watched, Seen]:
        for name in ("leader", "follower"):
            await store.heartbeat(
                HeartbeatRequest(
                    name, 1, 30.0, 10.0, joining=True, targets=("work",), campaign=Campaign(30.0)
                )
            )
        lease = (await store.roster()).leader
        assert lease.holder == "leader"
        seen = Seen(lease.era.incarnation, server=lease.era.server)
        return Watched(lease.term, lease.renewals, 0.0, gone=True), seen

    async def test_claims_of_the_same_process_give_way(
        self, valkey_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened(valkey_url) as store:
            watched, seen = await self._leader_and_follower(store)
            where = seen.incarnation, seen.server
            loop, commit, numbers = (
                asyncio.get_running_loop(),
                store._general_path._commit,
                iter(range(1, 99)),
            )

            def after_a_claim(*args: Any) -> Any:
                claim = store.claim_fires(ClaimRequest("follower", next(numbers), 1, None, *where))
                claimed = asyncio.run_coroutine_threadsafe(claim, loop)
                with contextlib.suppress(TimeoutError):
                    claimed.result(0.1)
                return commit(*args)

            monkeypatch.setattr(store._general_path, "_commit", after_a_claim)
            reply = await store.heartbeat(
                HeartbeatRequest("follower", 2, 30.0, 10.0, campaign=Campaign(30.0, watched), seen=seen)
            )
            assert reply.leader.holder == "follower"

    async def test_a_follower_that_comes_too_late_takes_the_fast_path(self, valkey_url: str) -> None:
        async with opened(valkey_url) as store:
            watched, seen = await self._leader_and_follower(store)
            await store.heartbeat(
                HeartbeatRequest("leader", 2, 30.0, 10.0, campaign=Campaign(30.0), seen=seen)
            )
            before = store.paths["general beat"]
            late = HeartbeatRequest("follower", 2, 30.0, 10.0, campaign=Campaign(30.0, watched), seen=seen)
            reply = await store.heartbeat(late)
            assert reply.leader.holder == "leader"
            assert store.paths["general beat"] == before


async def test_a_step_that_is_always_too_slow_is_given_up_soon(valkey_url: str) -> None:
    """It was begun 30 times, each for more than a second; replicas would have better taken smaller steps."""

    def slow(rows: RedisWork, at: Moment) -> None:
        time.sleep(1.1)
        rows.step.batch.do("SET", f"{P}:job:x", "text")

    async with opened(valkey_url) as store, asyncio.timeout(15):
        with pytest.raises(StoreUnavailable, match="longer than a second"):
            await store._write(slow)  # type: ignore[arg-type]


async def test_a_replica_of_ten_thousand_tasks_joins(valkey_url: str) -> None:
    """In one step, which is refused if it takes longer than a second: each task looked through all others."""
    async with opened(valkey_url) as store:
        names = tuple(f"task{number}" for number in range(12_000))
        joins = HeartbeatRequest("a", 1, 30.0, 10.0, joining=True, targets=names)
        assert (await store.heartbeat(joins)).known
