"""The suite every store must pass.

A backend's test file gives a `harness` and inherits everything else:

    class TestMemory(StoreConformance):
        @pytest.fixture
        async def harness(self):
            clock = HandClock()
            yield Harness.with_clock(MemoryStore(clock), clock)

It speaks to the store only through its interface, one small test per rule. Time is the store's own: a harness
moves it in whatever way its store allows. Tests leave room for a clock that also moves by itself a little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost.clock import Moment, moment_of
from fencepost.model import (
    FireRecord,
    Job,
    JobRecord,
    Lease,
    Overlap,
    Reason,
    ReplicaRecord,
    State,
    fire_key,
    manual_key,
)
from fencepost.plan import expand
from fencepost.retry import Retry
from fencepost.store.base import (
    Added,
    Beat,
    Campaign,
    ChangeJob,
    Claim,
    Claimed,
    ClaimRequest,
    FireQuery,
    GiveBack,
    JobPut,
    NewFire,
    Plan,
    Pulse,
    PutJob,
    Report,
    RetryLater,
    Settle,
    Store,
    Suspect,
    Swept,
    Update,
    Watched,
)
from fencepost.triggers import Trigger, at, cron, every

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
TTL = 30.0
HEARTBEAT = 10.0
WITNESSED = 1.5 * HEARTBEAT
"""Seconds of observation that make a second witness."""
HORIZON = 60.0


class HandClock:
    """A clock that stands still until it is told to move. Stepping back moves the wall clock only."""

    def __init__(self, start: datetime = NOON) -> None:
        self._wall = start
        self._steady = 1000.0

    def wall(self) -> datetime:
        return self._wall

    def steady(self) -> float:
        return self._steady

    async def advance(self, seconds: float) -> None:
        self._wall += timedelta(seconds=seconds)
        self._steady += seconds

    async def step_back(self, seconds: float) -> None:
        self._wall -= timedelta(seconds=seconds)


@dataclass
class Harness:
    """A store under test, control over its time, and words for what happens to it."""

    store: Store
    advance: Callable[[float], Awaitable[None]]
    step_back: Callable[[float], Awaitable[None]] | None = None
    """Steps the store's wall clock back; None: this store's clock cannot be stepped."""
    moment: Callable[[], Moment] | None = None
    """The store's time, where it can be read and stands still; the comparison needs it."""
    _beats: dict[str, int] = field(default_factory=dict)
    _claims: dict[str, int] = field(default_factory=dict)

    @classmethod
    def with_clock(cls, store: Store, clock: HandClock) -> Harness:
        """For a store that reads the time from `clock`."""
        return cls(store, clock.advance, clock.step_back, lambda: moment_of(clock))

    async def now(self) -> datetime:
        return (await self.store.roster()).now

    async def elapse(self, seconds: float) -> None:
        """Time passes while every replica that takes part keeps its heartbeats."""
        while seconds > 0:
            await self.advance(min(seconds, HEARTBEAT))
            seconds -= HEARTBEAT
            for replica in (await self.store.roster()).replicas:
                await self.beat(replica.id)

    # Replicas.

    async def join(self, name: str, *targets: str, **fields: Any) -> Pulse:
        return await self.beat(name, joining=True, targets=targets or ("work",), **fields)

    async def beat(self, name: str, number: int | None = None, **fields: Any) -> Pulse:
        if number is None:
            number = self._beats[name] = self._beats.get(name, 0) + 1
        return await self.store.heartbeat(Beat(name, number, TTL, HEARTBEAT, **fields))

    async def campaign(self, name: str, watched: Watched | None = None) -> Lease:
        """`name` asks for leadership; who leads now?"""
        return (await self.beat(name, campaign=Campaign(TTL, watched))).leader

    async def elect(self, name: str, *targets: str) -> int:
        """`name` joins and takes the free lease; its term."""
        await self.join(name, *targets)
        lease = await self.campaign(name)
        assert lease.holder == name
        return lease.term

    async def presence(self, name: str) -> ReplicaRecord | None:
        return next((r for r in (await self.store.roster()).replicas if r.id == name), None)

    async def bury(self, leader: str, term: int, dead: str) -> Swept:
        """The leader has proof that `dead` died."""
        swept = await self.store.sweep(leader, term, [Suspect(dead, 0, 0.0, dead=True)])
        assert swept is not None
        return swept

    # Jobs.

    async def define(self, id: str, trigger: Trigger | None = None, **policies: Any) -> JobPut:
        return await self.put(job_of(id, trigger, **policies))

    async def put(self, job: Job, **how: Any) -> JobPut:
        (reply,) = await self.store.put_jobs([PutJob(job, **how)])
        return reply

    async def job(self, id: str) -> JobRecord:
        (record,) = await self.store.jobs([id])
        return record

    async def pause(self, id: str, until: datetime | None = None) -> None:
        assert await self.store.change_job(ChangeJob(id, "pause", until=until))

    async def resume(self, id: str) -> None:
        assert await self.store.change_job(ChangeJob(id, "resume"))

    async def remove(self, id: str) -> None:
        assert await self.store.change_job(ChangeJob(id, "remove"))

    async def plan(self, horizon: float = HORIZON) -> None:
        """What the leader's planner does, until there is nothing left to plan."""
        while plans := await self.plans(horizon):
            await self.store.plan_fires(plans)

    async def plans(self, horizon: float = HORIZON) -> list[Plan]:
        due = await self.store.due_jobs(horizon, 500)
        plans = [expand(job, due.now, horizon, due.unknown.get(job.job.target, ())) for job in due.jobs]
        heads = [job.segments[0] for job in due.jobs]
        return [
            plan for plan, head in zip(plans, heads, strict=True) if plan.rows or plan.next_at != head.next_at
        ]

    # Fires.

    async def trigger(self, id: str, name: str = "by-hand", **fields: Any) -> Added:
        return await self.store.add_fire(NewFire(manual_key(id, name), id, **fields))

    async def ask(
        self, name: str, room: int = 10, term: int | None = None, number: int | None = None
    ) -> Claimed:
        """A claim attempt: the next one, or the one of this number."""
        if number is None:
            number = self._claims[name] = self._claims.get(name, 0) + 1
        return await self.store.claim_fires(ClaimRequest(name, number, room, term))

    async def claims(self, name: str, room: int = 10, term: int | None = None) -> list[FireRecord]:
        return [claim.fire for claim in (await self.ask(name, room, term)).claims]

    async def claim(self, name: str) -> FireRecord:
        """The one fire that is there to be claimed."""
        (fire,) = await self.claims(name)
        return fire

    async def update(self, update: Update, replica: str = "a") -> bool:
        return (await self.store.update_claims(replica, [update])).accepted[0]

    async def settle(self, fire: FireRecord, state: State = State.SUCCEEDED) -> bool:
        return await self.update(Settle(fire.key, fire.token, state))

    async def fires(self, id: str, *states: State) -> list[FireRecord]:
        """Oldest first."""
        found = await self.store.find_fires(FireQuery(job_id=id, states=states, limit=10_000))
        return list(reversed(found))

    async def fire(self, key: str) -> FireRecord:
        (fire,) = await self.store.find_fires(FireQuery(key=key))
        return fire

    # Scenes.

    async def running(self, id: str = "job", name: str = "a", **policies: Any) -> FireRecord:
        """A minutely job of which replica `name` is running the first fire."""
        if await self.presence(name) is None:
            await self.join(name)
        await self.define(id, every(minutes=1), **policies)
        await self.fall_due()
        return await self.claim(name)

    async def fall_due(self, seconds: float = 60.0) -> None:
        """Plan, let time pass, plan what has come up."""
        await self.plan()
        await self.elapse(seconds)
        await self.plan()


def job_of(id: str, trigger: Trigger | None = None, **policies: Any) -> Job:
    """A job of the task `work`; `overlap` may be given as text."""
    overlap = Overlap.parse(policies.pop("overlap", "skip"))
    return Job(id, policies.pop("target", "work"), trigger, overlap=overlap, **policies)


def due_times(fires: Sequence[FireRecord]) -> list[datetime]:
    return [fire.due_at for fire in fires]


def steps(first: datetime, seconds: float, count: int) -> list[datetime]:
    """first, first + seconds, …"""
    return [first + n * timedelta(seconds=seconds) for n in range(count)]


class PresenceRules:
    async def test_a_joining_replica_takes_part(self, harness: Harness) -> None:
        pulse = await harness.join("a", "work", "other", "work", host="h1", pid=7, version="1.2")
        assert pulse.known
        assert pulse.held == ()
        replica = await harness.presence("a")
        assert replica is not None
        assert (replica.host, replica.pid, replica.version) == ("h1", 7, "1.2")
        assert replica.targets == ("other", "work")
        assert replica.joined_at == pulse.now
        assert (replica.ttl, replica.heartbeat, replica.beat_no) == (TTL, HEARTBEAT, 1)
        assert not replica.draining

    async def test_a_beat_that_is_not_joining_creates_no_presence(self, harness: Harness) -> None:
        pulse = await harness.beat("a", targets=("work",), campaign=Campaign(TTL))
        assert not pulse.known
        assert pulse.leader.holder is None
        assert (await harness.store.roster()).replicas == ()

    async def test_a_beat_renews_a_presence(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.advance(20)
        await harness.beat("a")
        await harness.advance(20)
        assert (await harness.store.roster()).overdue == frozenset()
        await harness.advance(11)
        assert (await harness.store.roster()).overdue == {"a"}

    async def test_every_beat_is_counted(self, harness: Harness) -> None:
        await harness.join("a")
        before = await harness.presence("a")
        await harness.beat("a")
        after = await harness.presence("a")
        assert before is not None
        assert after is not None
        assert after.renewals == before.renewals + 1

    async def test_a_delayed_beat_changes_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.campaign("a")
        before = await harness.store.roster()
        await harness.advance(5)
        pulse = await harness.beat("a", number=1, targets=(), draining=True, joining=True)
        after = await harness.store.roster()
        assert pulse.known
        assert after.replicas == before.replicas
        assert after.leader == before.leader

    async def test_a_beat_without_targets_keeps_those_known(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.beat("a")
        replica = await harness.presence("a")
        assert replica is not None
        assert replica.targets == ("work",)

    async def test_a_beat_may_change_the_targets(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.beat("a", targets=("x", "b"))
        replica = await harness.presence("a")
        assert replica is not None
        assert replica.targets == ("b", "x")

    async def test_a_replica_that_left_stays_away_until_it_joins_again(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.store.leave("a")
        assert not (await harness.beat("a")).known
        assert await harness.presence("a") is None
        assert (await harness.join("a")).known
        assert await harness.presence("a") is not None

    async def test_leaving_twice_is_leaving(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.join("b")
        await harness.store.leave("a")
        await harness.store.leave("a")
        assert [replica.id for replica in (await harness.store.roster()).replicas] == ["b"]

    async def test_leaving_gives_back_what_is_held(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.join("b")
        await harness.store.leave("a")
        again = await harness.claim("b")
        assert (again.key, again.replica) == (fire.key, "b")
        assert again.token > fire.token
        assert not await harness.settle(fire)

    async def test_a_beat_answers_what_is_held(self, harness: Harness) -> None:
        fire = await harness.running()
        (held,) = (await harness.beat("a")).held
        assert (held.key, held.token, held.claim_no) == (fire.key, fire.token, fire.claim_no)
        assert not held.cancel_requested
        await harness.settle(fire)
        assert (await harness.beat("a")).held == ()

    async def test_a_delayed_beat_is_answered_with_what_is_held(self, harness: Harness) -> None:
        fire = await harness.running()
        assert [held.key for held in (await harness.beat("a", number=1)).held] == [fire.key]

    async def test_the_roster_says_who_takes_part_who_leads_and_who_is_overdue(
        self, harness: Harness
    ) -> None:
        term = await harness.elect("a")
        await harness.advance(25)
        await harness.join("b")
        await harness.advance(10)
        roster = await harness.store.roster()
        assert {replica.id for replica in roster.replicas} == {"a", "b"}
        assert (roster.leader.holder, roster.leader.term) == ("a", term)
        assert roster.overdue == {"a"}
        assert roster.now >= NOON


class LeadershipRules:
    async def seen(self, harness: Harness, seconds: float, gone: bool = False) -> Watched:
        """The leader as it is now, watched for so long."""
        lease = (await harness.store.roster()).leader
        return Watched(lease.term, lease.renewals, seconds, gone)

    @pytest.fixture
    async def led(self, harness: Harness) -> Harness:
        """`a` leads, `b` follows."""
        await harness.elect("a")
        await harness.join("b")
        return harness

    async def test_a_free_lease_is_taken(self, harness: Harness) -> None:
        await harness.join("a")
        lease = await harness.campaign("a")
        assert lease.holder == "a"
        assert lease.term >= 1
        assert (lease.ttl, lease.heartbeat) == (TTL, HEARTBEAT)

    async def test_nobody_leads_without_asking(self, harness: Harness) -> None:
        assert (await harness.join("a")).leader.holder is None

    async def test_the_leader_renews_in_its_term(self, led: Harness) -> None:
        before = (await led.store.roster()).leader
        await led.advance(20)
        after = await led.campaign("a")
        assert (after.holder, after.term, after.renewals) == ("a", before.term, before.renewals + 1)
        assert after.expires > before.expires

    async def test_it_is_not_taken_while_it_is_live(self, led: Harness) -> None:
        watched = await self.seen(led, WITNESSED)
        assert (await led.campaign("b", watched)).holder == "a"

    async def test_it_is_not_taken_because_it_has_expired(self, led: Harness) -> None:
        await led.advance(TTL + 1)
        assert (await led.campaign("b")).holder == "a"
        almost = await self.seen(led, WITNESSED - 0.1)
        assert (await led.campaign("b", almost)).holder == "a"

    async def test_it_is_taken_when_it_has_expired_and_was_watched(self, led: Harness) -> None:
        watched = await self.seen(led, WITNESSED)
        await led.advance(TTL + 1)
        lease = await led.campaign("b", watched)
        assert (lease.holder, lease.term, lease.renewals) == ("b", watched.term + 1, 0)

    async def test_it_is_not_taken_when_it_was_renewed_meanwhile(self, led: Harness) -> None:
        watched = await self.seen(led, 10 * TTL)
        await led.campaign("a")
        await led.advance(TTL + 1)
        assert (await led.campaign("b", watched)).holder == "a"

    async def test_it_is_taken_on_long_observation_alone(self, led: Harness) -> None:
        """The store's clock may have stepped back: then it does not expire for long."""
        almost = await self.seen(led, 1.5 * TTL - 0.1)
        assert (await led.campaign("b", almost)).holder == "a"
        watched = await self.seen(led, 1.5 * TTL)
        assert (await led.campaign("b", watched)).holder == "b"

    async def test_it_is_taken_at_once_on_evidence(self, led: Harness) -> None:
        watched = await self.seen(led, 0.0, gone=True)
        assert (await led.campaign("b", watched)).holder == "b"

    async def test_evidence_about_an_earlier_term_counts_for_nothing(self, led: Harness) -> None:
        watched = await self.seen(led, 0.0, gone=True)
        await led.campaign("b", watched)
        await led.join("c")
        assert (await led.campaign("c", watched)).holder == "b"

    async def test_the_deposed_leader_learns_it_with_its_next_beat(self, led: Harness) -> None:
        await led.campaign("b", await self.seen(led, 0.0, gone=True))
        assert (await led.campaign("a")).holder == "b"

    async def test_the_term_grows_with_every_change_of_hands(self, harness: Harness) -> None:
        terms = []
        for name in ("a", "b", "a", "c"):
            terms.append(await harness.elect(name))
            await harness.store.leave(name)
        assert terms == sorted(set(terms))

    async def test_a_draining_leader_hands_over_at_once(self, led: Harness) -> None:
        before = (await led.store.roster()).leader
        pulse = await led.beat("a", draining=True, campaign=Campaign(TTL))
        assert pulse.leader.holder is None
        lease = await led.campaign("b")
        assert (lease.holder, lease.term) == ("b", before.term + 1)

    async def test_leaving_releases_leadership(self, led: Harness) -> None:
        await led.store.leave("a")
        assert (await led.store.roster()).leader.holder is None
        assert (await led.campaign("b")).holder == "b"

    async def test_a_follower_that_leaves_or_drains_changes_nothing(self, led: Harness) -> None:
        before = (await led.store.roster()).leader
        await led.beat("b", draining=True)
        await led.store.leave("b")
        assert (await led.store.roster()).leader == before


class SweepRules:
    @pytest.fixture
    async def term(self, harness: Harness) -> int:
        """`a` leads and knows no task of interest."""
        return await harness.elect("a", "nothing")

    async def suspect(self, harness: Harness, name: str, seconds: float) -> Suspect:
        replica = await harness.presence(name)
        assert replica is not None
        return Suspect(name, replica.renewals, seconds)

    async def test_it_needs_the_current_term(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        proof = [Suspect("b", 0, 0.0, dead=True)]
        assert await harness.store.sweep("a", term - 1, proof) is None
        assert await harness.store.sweep("a", term + 1, proof) is None
        assert await harness.store.sweep("b", term, proof) is None
        assert await harness.presence("b") is not None

    async def test_it_answers_whom_to_watch(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        swept = await harness.store.sweep("a", term, [])
        assert swept is not None
        assert {replica.id for replica in swept.roster.replicas} == {"a", "b"}
        assert (swept.expired, swept.settled) == ((), ())

    async def test_expiry_alone_declares_nobody_dead(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        await harness.advance(TTL + 1)
        almost = await self.suspect(harness, "b", WITNESSED - 0.1)
        swept = await harness.store.sweep("a", term, [almost])
        assert swept is not None
        assert swept.expired == ()
        assert swept.roster.overdue >= {"b"}

    async def test_observation_alone_declares_nobody_dead(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        almost = await self.suspect(harness, "b", 1.5 * TTL - 0.1)
        swept = await harness.store.sweep("a", term, [almost])
        assert swept is not None
        assert swept.expired == ()

    async def test_two_witnesses_do(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        suspect = await self.suspect(harness, "b", WITNESSED)
        await harness.advance(TTL + 1)
        swept = await harness.store.sweep("a", term, [suspect])
        assert swept is not None
        assert swept.expired == ("b",)
        assert {replica.id for replica in swept.roster.replicas} == {"a"}
        assert not (await harness.beat("b")).known

    async def test_long_observation_alone_does(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        suspect = await self.suspect(harness, "b", 1.5 * TTL)
        swept = await harness.store.sweep("a", term, [suspect])
        assert swept is not None
        assert swept.expired == ("b",)

    async def test_proof_of_death_does_at_once(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        assert (await harness.bury("a", term, "b")).expired == ("b",)

    async def test_who_has_renewed_meanwhile_lives(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        suspect = await self.suspect(harness, "b", 10 * TTL)
        await harness.beat("b")
        await harness.advance(TTL + 1)
        swept = await harness.store.sweep("a", term, [suspect])
        assert swept is not None
        assert swept.expired == ()

    async def test_a_claim_is_a_sign_of_life(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        suspect = await self.suspect(harness, "b", 10 * TTL)
        await harness.advance(TTL + 1)
        await harness.ask("b")
        swept = await harness.store.sweep("a", term, [suspect])
        assert swept is not None
        assert swept.expired == ()
        assert "b" not in swept.roster.overdue

    async def test_a_stranger_is_no_suspect(self, harness: Harness, term: int) -> None:
        assert (await harness.bury("a", term, "nobody")).expired == ()

    async def test_a_run_cut_off_is_lost(self, harness: Harness, term: int) -> None:
        fire = await harness.running(name="b")
        swept = await harness.bury("a", term, "b")
        (lost,) = swept.settled
        assert lost == await harness.fire(fire.key)
        assert (lost.state, lost.reason, lost.crashes) == (State.LOST, Reason.REPLICA_DIED, 1)
        assert lost.finished_at is not None
        assert [(a.token, a.replica, a.outcome) for a in lost.attempts] == [(fire.token, "b", "lost")]

    async def test_what_is_lost_is_not_run_again_and_takes_no_result(
        self, harness: Harness, term: int
    ) -> None:
        fire = await harness.running(name="b")
        await harness.bury("a", term, "b")
        await harness.join("c")
        assert await harness.claims("c") == []
        assert not await harness.settle(fire)
        assert (await harness.fire(fire.key)).state is State.LOST

    async def test_a_run_to_be_rerun_is_claimed_again(self, harness: Harness, term: int) -> None:
        fire = await harness.running(name="b", after_crash="rerun")
        (waiting,) = (await harness.bury("a", term, "b")).settled
        assert (waiting.state, waiting.crashes) == (State.WAITING, 1)
        await harness.join("c")
        again = await harness.claim("c")
        assert (again.key, again.attempt, again.replica) == (fire.key, 2, "c")
        assert again.token > fire.token

    async def test_the_run_before_a_rerun_is_fenced_out(self, harness: Harness, term: int) -> None:
        fire = await harness.running(name="b", after_crash="rerun")
        await harness.bury("a", term, "b")
        assert not await harness.settle(fire)
        await harness.join("c")
        again = await harness.claim("c")
        assert not await harness.settle(fire)
        assert await harness.settle(again)

    async def test_who_crashes_too_often_is_lost(self, harness: Harness, term: int) -> None:
        fire = await harness.running(name="b0", after_crash="rerun", crash_attempts=3)
        for n in range(3):
            (settled,) = (await harness.bury("a", term, f"b{n}")).settled
            assert settled.crashes == n + 1
            if n < 2:
                assert settled.state is State.WAITING
                await harness.join(f"b{n + 1}")
                assert (await harness.claim(f"b{n + 1}")).key == fire.key
        assert (settled.state, settled.reason) == (State.LOST, Reason.CRASHED)

    async def test_a_sweep_that_is_repeated_finds_nothing_more(self, harness: Harness, term: int) -> None:
        await harness.running(name="b")
        await harness.bury("a", term, "b")
        again = await harness.bury("a", term, "b")
        assert (again.expired, again.settled) == ((), ())


class DefinitionRules:
    async def test_a_job_is_kept_as_it_was_defined(self, harness: Harness) -> None:
        job = Job(
            "a.job:with-all_of-it",
            "work",
            cron("30 2 * * MON-FRI", tz="Europe/Zurich", start=NOON, end=NOON + timedelta(days=900)),
            args={"text": "ä\n\"'", "number": 1.5, "list": [1, None, True], "nested": {"a": {}}},
            overlap=Overlap("queue", 7),
            misfire="all",
            misfire_after=timedelta(seconds=0.25),
            retry=Retry(attempts=5, first=0.5, cap=60, on=("ValueError",)),
            timeout=timedelta(minutes=2),
            after_crash="rerun",
            crash_attempts=9,
            execute_on="leader",
        )
        await harness.put(job)
        record = await harness.job(job.id)
        assert record.job == job
        assert record.fingerprint == job.fingerprint
        assert record.created_at == record.changed_at

    async def test_what_writing_a_definition_does(self, harness: Harness) -> None:
        job = job_of("job", every(minutes=1))
        assert (await harness.put(job)).outcome == "created"
        assert (await harness.put(job)).outcome == "unchanged"
        changed = replace(job, timeout=timedelta(seconds=5))
        assert (await harness.put(changed)).outcome == "changed"
        assert (await harness.job("job")).job == changed
        exists = await harness.put(job, replace=False)
        assert (exists.outcome, exists.refused) == ("exists", True)
        assert (await harness.job("job")).job == changed
        assert (await harness.put(changed, replace=False)).outcome == "unchanged"

    async def test_several_are_answered_in_order(self, harness: Harness) -> None:
        await harness.define("b")
        puts = [PutJob(job_of(id)) for id in ("c", "b", "a")]
        replies = await harness.store.put_jobs(puts)
        assert [(r.job_id, r.outcome) for r in replies] == [
            ("c", "created"),
            ("b", "unchanged"),
            ("a", "created"),
        ]

    async def test_an_older_revision_does_not_overwrite_a_newer_one(self, harness: Harness) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.put(new, revision=2)
        refused = await harness.put(old, revision=1)
        assert (refused.outcome, refused.refused) == ("older revision", True)
        assert (await harness.job("job")).job == new
        assert (await harness.put(old, revision=2)).outcome == "changed"
        assert (await harness.put(new, revision=3)).outcome == "changed"
        assert (await harness.job("job")).revision == 3

    async def test_without_a_revision_the_last_one_wins(self, harness: Harness) -> None:
        one, two, three = (job_of("job", every(minutes=n)) for n in (1, 2, 3))
        await harness.put(one, revision=5)
        assert (await harness.put(two)).outcome == "changed"
        assert (await harness.put(three, revision=1)).outcome == "older revision"

    async def test_it_does_not_flip_back_while_a_live_replica_declares_the_newer_one(
        self, harness: Harness
    ) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.join("b")
        await harness.put(old, by="a")
        await harness.put(new, by="b")
        refused = await harness.put(old, by="a")
        assert (refused.outcome, refused.refused) == ("flip back", True)
        assert (await harness.job("job")).job == new
        assert (await harness.job("job")).declared_by == ("b",)

    async def test_it_flips_back_when_nobody_alive_declares_the_newer_one(self, harness: Harness) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.join("b")
        await harness.put(old, by="a")
        await harness.put(new, by="b")
        await harness.advance(TTL + 1)
        await harness.beat("a")
        assert (await harness.put(old, by="a")).outcome == "changed"

    async def test_who_declared_the_newer_one_may_flip_back_itself(self, harness: Harness) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.put(old, by="a")
        await harness.put(new, by="a")
        assert (await harness.put(old, by="a")).outcome == "changed"

    async def test_something_new_is_no_flip_back(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.join("b")
        await harness.put(job_of("job", every(minutes=1)), by="a")
        await harness.put(job_of("job", every(minutes=2)), by="b")
        assert (await harness.put(job_of("job", every(minutes=3)), by="a")).outcome == "changed"

    async def test_all_who_declare_it_are_known(self, harness: Harness) -> None:
        for name in ("a", "b"):
            await harness.join(name)
            await harness.put(job_of("job"), by=name)
        await harness.put(job_of("job"), by="a")
        await harness.put(job_of("job"), by="a stranger")
        assert (await harness.job("job")).declared_by == ("a", "b")

    async def test_an_open_anchor_is_resolved_once_and_kept(self, harness: Harness) -> None:
        first = (await harness.now()).replace(microsecond=0) + timedelta(minutes=10)
        await harness.define("job", every(minutes=10))
        await harness.advance(200)
        await harness.define("job", every(minutes=10))
        await harness.define("job", every(minutes=10), timeout=timedelta(seconds=9))
        await harness.plan(horizon=1200)
        assert due_times(await harness.fires("job")) == steps(first, 600, 2)

    async def test_a_new_trigger_has_a_new_anchor(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=10))
        await harness.advance(200)
        first = (await harness.now()).replace(microsecond=0) + timedelta(minutes=20)
        await harness.define("job", every(minutes=20))
        await harness.plan(horizon=1200)
        assert due_times(await harness.fires("job")) == [first]

    async def test_jobs_are_found_by_id(self, harness: Harness) -> None:
        for id in ("a", "b", "c"):
            await harness.define(id)
        found = await harness.store.jobs(["c", "x", "a"])
        assert [record.id for record in found] == ["c", "a"]
        assert {record.id for record in await harness.store.jobs()} == {"a", "b", "c"}

    async def test_ten_thousand_jobs_in_batches(self, harness: Harness) -> None:
        jobs = [PutJob(job_of(f"job{n}", every(hours=1))) for n in range(10_000)]
        for n in range(0, len(jobs), 500):
            replies = await harness.store.put_jobs(jobs[n : n + 500])
            assert all(reply.outcome == "created" for reply in replies)
        assert len(await harness.store.jobs()) == 10_000
        assert len((await harness.store.due_jobs(HORIZON, 500)).jobs) == 500
        assert [r.id for r in await harness.store.jobs(["job9999"])] == ["job9999"]


class PlanningRules:
    async def test_fires_are_planned_up_to_the_horizon(self, harness: Harness) -> None:
        first = (await harness.now()).replace(microsecond=0) + timedelta(minutes=1)
        await harness.define("job", every(minutes=1))
        await harness.plan(horizon=190)
        fires = await harness.fires("job")
        assert due_times(fires) == steps(first, 60, 3)
        assert {(f.state, f.scheduled, f.count, f.token) for f in fires} == {(State.PENDING, True, 1, 0)}

    async def test_the_format_of_keys_is_frozen(self, harness: Harness) -> None:
        moment = (await harness.now()).replace(microsecond=120) + timedelta(seconds=30)
        await harness.define("a.job", at(moment))
        await harness.plan()
        (fire,) = await harness.fires("a.job")
        assert fire.key == f"a.job@{moment:%Y-%m-%dT%H:%M:%S}.000120Z"
        assert fire.due_at == moment

    async def test_what_is_planned_is_not_due_again(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.plan()
        due = await harness.store.due_jobs(HORIZON, 500)
        (planned,) = await harness.fires("job")
        assert due.jobs == ()
        assert due.soonest == planned.due_at + timedelta(minutes=1)

    async def test_jobs_are_due_within_the_horizon_and_the_limit(self, harness: Harness) -> None:
        for id in ("soon", "later", "none"):
            await harness.define(id, every(minutes=30) if id != "none" else None)
        assert len((await harness.store.due_jobs(HORIZON, 1)).jobs) == 1
        assert {job.id for job in (await harness.store.due_jobs(HORIZON, 9)).jobs} == {"soon", "later"}
        await harness.plan()
        assert (await harness.store.due_jobs(HORIZON, 9)).jobs == ()
        assert {job.id for job in (await harness.store.due_jobs(1800, 9)).jobs} == {"soon", "later"}

    async def test_a_second_plan_is_a_no_op(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        plans = await harness.plans(190)
        assert await harness.store.plan_fires(plans) == (True,)
        assert await harness.store.plan_fires(plans) == (False,)
        assert len(await harness.fires("job")) == 3

    async def test_a_second_plan_does_not_touch_what_is_running(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        plans = await harness.plans()
        await harness.store.plan_fires(plans)
        await harness.elapse(60)
        fire = await harness.claim("a")
        assert await harness.store.plan_fires(plans) == (False,)
        assert await harness.fire(fire.key) == fire

    @pytest.mark.parametrize("wrong", ["version", "cursor", "until", "job"])
    async def test_a_plan_compares_what_it_was_made_from(self, harness: Harness, wrong: str) -> None:
        await harness.define("job", every(minutes=1))
        (plan,) = await harness.plans()
        changes: dict[str, Any] = {
            "version": {"version": plan.version + 1},
            "cursor": {"cursor": plan.cursor - timedelta(seconds=1)},
            "until": {"until": plan.cursor + timedelta(hours=1)},
            "job": {"job_id": "another"},
        }
        stale = replace(plan, **changes[wrong])
        assert await harness.store.plan_fires([stale, plan]) == (False, True)
        assert len(await harness.fires("job")) == 1

    async def test_a_changed_trigger_withdraws_what_is_not_due(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.plan(horizon=190)
        await harness.advance(70)
        await harness.plan(horizon=190)
        due = (await harness.fires("job"))[0]
        await harness.define("job", every(hours=1))
        assert await harness.fires("job") == [due]

    async def test_a_plan_made_before_the_trigger_changed_is_refused(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        plans = await harness.plans()
        await harness.advance(5)
        await harness.define("job", every(hours=1))
        assert await harness.store.plan_fires(plans) == (False,)
        assert await harness.fires("job") == []

    async def test_a_plan_made_before_the_calendar_was_given_an_end_is_refused(
        self, harness: Harness
    ) -> None:
        await harness.define("job", every(minutes=1))
        await harness.advance(150)
        plans = await harness.plans()
        await harness.define("job", every(hours=1))
        assert await harness.store.plan_fires(plans) == (False,)

    async def test_what_the_old_calendar_still_owes_is_planned_first(self, harness: Harness) -> None:
        anchor = (await harness.now()).replace(microsecond=0)
        await harness.define("job", every(minutes=1))
        await harness.advance(150)
        await harness.define("job", every(hours=1, anchor=anchor))
        await harness.plan(horizon=3600)
        expected = [*steps(anchor + timedelta(minutes=1), 60, 2), anchor + timedelta(hours=1)]
        assert due_times(await harness.fires("job")) == expected

    async def test_a_moment_of_both_calendars_is_one_fire(self, harness: Harness) -> None:
        anchor = (await harness.now()).replace(microsecond=0)
        await harness.join("a")
        await harness.define("job", every(minutes=1, anchor=anchor))
        await harness.fall_due()
        fire = await harness.claim("a")
        await harness.settle(fire)
        done = await harness.fire(fire.key)
        await harness.define("job", every(seconds=30, anchor=anchor))
        await harness.plan()
        assert await harness.fire(fire.key) == done
        assert await harness.claims("a") == []
        assert due_times(await harness.fires("job")) == steps(fire.due_at, 30, 3)

    async def test_a_due_moment_of_both_calendars_is_one_fire(self, harness: Harness) -> None:
        anchor = (await harness.now()).replace(microsecond=0)
        await harness.define("job", every(minutes=1, anchor=anchor))
        await harness.fall_due()
        await harness.define("job", every(seconds=30, anchor=anchor))
        await harness.plan()
        assert due_times(await harness.fires("job")) == steps(anchor + timedelta(minutes=1), 30, 3)

    async def test_a_changed_timeout_withdraws_nothing(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.plan(horizon=190)
        fires, before = await harness.fires("job"), await harness.job("job")
        await harness.advance(5)
        await harness.define("job", every(minutes=1), timeout=timedelta(seconds=5))
        assert await harness.fires("job") == fires
        after = await harness.job("job")
        assert (after.version, after.segments) == (before.version, before.segments)

    async def test_an_exhausted_calendar_is_not_due_again(self, harness: Harness) -> None:
        await harness.define("job", at(await harness.now() + timedelta(seconds=30)))
        await harness.plan()
        due = await harness.store.due_jobs(10**7, 10)
        assert (due.jobs, due.soonest) == ((), None)
        assert len(await harness.fires("job")) == 1

    async def test_a_job_without_a_trigger_is_not_planned(self, harness: Harness) -> None:
        await harness.define("job")
        due = await harness.store.due_jobs(10**7, 10)
        assert (due.jobs, due.soonest) == ((), None)

    async def test_a_job_that_loses_its_trigger_is_not_planned_any_more(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.plan()
        await harness.define("job")
        assert await harness.fires("job") == []
        assert (await harness.store.due_jobs(10**7, 10)).jobs == ()


class ClaimRules:
    async def test_a_due_fire_is_claimed_with_a_token(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1), args={"x": 1})
        await harness.fall_due()
        (claim,) = (await harness.ask("a")).claims
        assert isinstance(claim, Claim)
        assert claim.job == job_of("job", every(minutes=1), args={"x": 1})
        fire = claim.fire
        assert (fire.state, fire.replica, fire.attempt, fire.token) == (State.RUNNING, "a", 1, 1)
        assert fire.started_at is not None
        assert fire == await harness.fire(fire.key)

    async def test_nothing_is_claimed_before_it_is_due(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        await harness.elapse(50)
        assert await harness.claims("a") == []

    async def test_a_fire_is_claimed_once(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.join("b")
        assert await harness.claims("b") == []
        assert await harness.claims("a") == []
        await harness.settle(fire)
        assert await harness.claims("b") == []

    async def test_many_replicas_at_once_claim_every_fire_once(self, harness: Harness) -> None:
        names = [f"r{n}" for n in range(8)]
        for name in names:
            await harness.join(name)
        for n in range(30):
            await harness.define(f"job{n}", every(minutes=1))
        await harness.fall_due()
        claimed: list[FireRecord] = []
        while replies := [r for r in await asyncio.gather(*(harness.claims(n, 3) for n in names)) if r]:
            claimed += [fire for reply in replies for fire in reply]
        assert sorted(fire.job_id for fire in claimed) == sorted(f"job{n}" for n in range(30))

    async def test_a_replica_claims_only_tasks_it_knows(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.join("b", "other")
        await harness.define("mine", every(minutes=1))
        await harness.define("yours", every(minutes=1), target="other")
        await harness.fall_due()
        assert [fire.job_id for fire in await harness.claims("a")] == ["mine"]
        assert [fire.job_id for fire in await harness.claims("b")] == ["yours"]

    async def test_a_job_that_changes_its_task_changes_hands(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.join("b", "other")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        await harness.define("job", every(minutes=1), target="other")
        assert await harness.claims("a") == []
        assert len(await harness.claims("b")) == 1

    async def test_it_claims_no_more_than_there_is_room_for(self, harness: Harness) -> None:
        await harness.join("a")
        for n in range(5):
            await harness.define(f"job{n}", every(minutes=1))
        await harness.fall_due()
        assert len(await harness.claims("a", room=0)) == 0
        assert len(await harness.claims("a", room=2)) == 2
        assert len(await harness.claims("a", room=10)) == 3

    async def test_a_single_job_gets_no_more_than_there_is_room_for(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=5), overlap="allow(9)")
        await harness.fall_due(20)
        assert len(await harness.claims("a", room=3)) == 3
        assert len(await harness.claims("a", room=3)) == 1

    async def test_several_jobs_together_get_no_more_than_there_is_room_for(self, harness: Harness) -> None:
        await harness.join("a")
        for id in ("one", "two"):
            await harness.define(id, every(seconds=5), overlap="allow(9)")
        await harness.fall_due(10)
        assert len(await harness.claims("a", room=3)) == 3
        assert len(await harness.claims("a", room=3)) == 1

    async def test_what_was_due_first_is_claimed_first(self, harness: Harness) -> None:
        await harness.join("a")
        now = await harness.now()
        for id, seconds in {"a": 9, "z": 2, "m": 5}.items():
            await harness.define(id, at(now + timedelta(seconds=seconds)))
        await harness.fall_due(10)
        assert [f.job_id for f in await harness.claims("a", room=2)] == ["z", "m"]
        assert [f.job_id for f in await harness.claims("a", room=2)] == ["a"]

    async def test_the_same_number_is_answered_with_the_same_claims(self, harness: Harness) -> None:
        await harness.join("a")
        for n in range(3):
            await harness.define(f"job{n}", every(minutes=1))
        await harness.fall_due()
        first = await harness.ask("a", room=2, number=1)
        again = await harness.ask("a", room=2, number=1)
        assert len(first.claims) == 2
        assert again.claims == first.claims

    async def test_an_empty_answer_stays_empty(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        assert (await harness.ask("a", number=1)).claims == ()
        await harness.elapse(60)
        assert (await harness.ask("a", number=1)).claims == ()
        assert len((await harness.ask("a", number=2)).claims) == 1

    async def test_a_lower_number_gets_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.ask("a", number=5)
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        assert await harness.ask("a", number=4) == Claimed()
        assert (await harness.fires("job"))[0].state is State.PENDING

    async def test_a_claim_delayed_beyond_a_rejoin_gets_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        await harness.store.leave("a")
        await harness.join("a", claim_no=7)
        assert (await harness.ask("a", number=6)).claims == ()
        assert (await harness.ask("a", number=7)).claims == ()
        assert len((await harness.ask("a", number=8)).claims) == 1

    async def test_an_unknown_replica_gets_nothing(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        assert await harness.ask("a") == Claimed()
        assert (await harness.fires("job"))[0].state is State.PENDING

    async def test_a_draining_replica_gets_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        await harness.beat("a", draining=True)
        assert await harness.claims("a") == []
        await harness.beat("a")
        assert len(await harness.claims("a")) == 1

    async def test_leader_only_needs_the_current_term(self, harness: Harness) -> None:
        term = await harness.elect("a")
        await harness.join("b")
        await harness.define("job", every(minutes=1), execute_on="leader")
        await harness.fall_due()
        assert await harness.claims("a") == []
        assert await harness.claims("a", term=term - 1) == []
        assert await harness.claims("b", term=term) == []
        assert [f.job_id for f in await harness.claims("a", term=term)] == ["job"]

    async def test_the_answer_says_when_to_ask_again(self, harness: Harness) -> None:
        await harness.join("a")
        assert (await harness.ask("a")).wake_in is None
        await harness.define("job", every(minutes=1))
        await harness.plan()
        await harness.elapse(20)
        assert (await harness.ask("a")).wake_in == pytest.approx(40, abs=2)

    async def test_it_speaks_only_of_tasks_the_replica_knows(self, harness: Harness) -> None:
        await harness.join("a", "other")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        assert (await harness.ask("a")).wake_in is None

    async def test_what_found_no_room_is_due_at_once(self, harness: Harness) -> None:
        await harness.join("a")
        for n in range(3):
            await harness.define(f"job{n}", every(minutes=1))
        await harness.fall_due()
        assert (await harness.ask("a", room=2)).wake_in == 0

    async def test_tokens_grow_with_every_claim_of_a_job(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=10), overlap="allow(9)")
        await harness.define("other", every(seconds=10), overlap="allow(9)")
        await harness.fall_due(25)
        tokens = [fire.token for fire in await harness.claims("a") if fire.job_id == "job"]
        await harness.trigger("job")
        tokens.append((await harness.claim("a")).token)
        assert tokens == [1, 2, 3]


class PauseRules:
    async def test_what_falls_due_in_a_pause_is_skipped_as_one_row(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await harness.fall_due(300)
        reply = await harness.ask("a")
        assert reply.claims == ()
        (row,) = reply.closed
        assert [row] == await harness.fires("job", State.SKIPPED)
        assert (row.reason, row.count) == (Reason.PAUSED, 5)
        assert row.last_due - row.first_due_at == timedelta(minutes=4)
        assert row.key == fire_key("job", row.first_due_at)

    async def test_it_counts_when_it_fell_due_not_when_it_is_decided(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await harness.fall_due(70)
        await harness.resume("job")
        reply = await harness.ask("a")
        assert reply.claims == ()
        assert [row.reason for row in reply.closed] == [Reason.PAUSED]

    async def test_what_fell_due_before_the_pause_is_run(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due(65)
        await harness.pause("job")
        assert len(await harness.claims("a")) == 1

    async def test_a_resumed_job_runs(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await harness.fall_due(90)
        await harness.resume("job")
        await harness.fall_due(30)
        reply = await harness.ask("a")
        assert len(reply.claims) == 1
        assert [row.count for row in reply.closed] == [1]

    async def test_a_pause_with_an_end_ends_by_itself(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job", until=await harness.now() + timedelta(seconds=150))
        await harness.fall_due(181)
        reply = await harness.ask("a")
        assert len(reply.claims) == 1
        assert [(row.reason, row.count) for row in reply.closed] == [(Reason.PAUSED, 2)]

    async def test_a_pause_is_seen_on_the_job(self, harness: Harness) -> None:
        await harness.define("job")
        change = ChangeJob("job", "pause", note="deploy", by="ann")
        paused = await harness.store.change_job(change)
        now = await harness.now()
        assert paused == await harness.job("job")
        assert paused is not None
        gap = paused.paused_at(now)
        assert gap is not None
        assert (gap.note, gap.by) == ("deploy", "ann")
        resumed = await harness.store.change_job(ChangeJob("job", "resume"))
        assert resumed is not None
        assert resumed.paused_at(await harness.now()) is None

    async def test_what_does_not_exist_cannot_be_changed(self, harness: Harness) -> None:
        assert await harness.store.change_job(ChangeJob("job", "pause")) is None
        assert await harness.store.change_job(ChangeJob("job", "remove")) is None

    async def test_a_pause_holds_a_retry_that_waits(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 5))
        await harness.pause("job")
        await harness.elapse(10)
        assert await harness.claims("a") == []
        await harness.resume("job")
        again = await harness.claim("a")
        assert (again.key, again.attempt) == (fire.key, 2)

    async def test_a_retry_that_waits_is_held_until_the_pause_ends(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 5))
        await harness.pause("job", until=await harness.now() + timedelta(seconds=40))
        await harness.elapse(10)
        reply = await harness.ask("a")
        assert reply.claims == ()
        assert reply.wake_in == pytest.approx(30, abs=2)
        await harness.elapse(31)
        assert (await harness.claim("a")).key == fire.key

    async def test_a_retry_is_held_though_another_fire_is_claimed(self, harness: Harness) -> None:
        fire = await harness.running(overlap="allow(5)")
        await harness.update(RetryLater(fire.key, fire.token, 5))
        await harness.pause("job")
        await harness.elapse(10)
        await harness.trigger("job")
        assert (await harness.claim("a")).key == "job!by-hand"

    async def test_manual_fires_run_in_a_pause(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        added = await harness.trigger("job")
        assert added.fire is not None
        fire = await harness.claim("a")
        assert fire.key == added.fire.key
        await harness.update(RetryLater(fire.key, fire.token, 1))
        await harness.elapse(2)
        assert (await harness.claim("a")).attempt == 2


class MisfireRules:
    @pytest.fixture
    async def down(self, harness: Harness) -> Harness:
        await harness.join("a")
        return harness

    async def back_after(self, harness: Harness, **span: float) -> None:
        """Nobody planned or claimed for so long."""
        await harness.advance(timedelta(**span).total_seconds())
        await harness.beat("a")
        await harness.plan()

    async def test_what_is_a_little_late_is_run(self, down: Harness) -> None:
        await down.define("job", every(seconds=10), overlap="allow(5)", misfire="skip")
        await self.back_after(down, seconds=25)
        reply = await down.ask("a")
        assert len(reply.claims) == 2
        assert reply.closed == ()

    async def test_a_minutely_job_after_one_day_runs_once(self, down: Harness) -> None:
        await down.define("job", every(minutes=1))
        await self.back_after(down, days=1)
        reply = await down.ask("a")
        ((claim,), (row,)) = reply.claims, reply.closed
        assert (row.state, row.reason, row.refers_to) == (State.MISSED, Reason.COALESCED, claim.fire.key)
        assert (row.count, claim.fire.count) == (1439, 1)
        assert row.last_due + timedelta(minutes=1) == claim.fire.due_at
        assert row.last_due - row.first_due_at == timedelta(minutes=1438)
        assert len(await down.fires("job", State.RUNNING, State.MISSED)) == 2

    async def test_a_secondly_job_after_a_week_is_one_row(self, down: Harness) -> None:
        await down.define("job", every(seconds=1))
        anchor = (await down.job("job")).segments[0].trigger.to_json()["anchor"]
        await self.back_after(down, weeks=1)
        reply = await down.ask("a")
        ((claim,), (row,)) = reply.claims, reply.closed
        assert row.first_due_at == datetime.fromisoformat(anchor) + timedelta(seconds=1)
        assert row.last_due + timedelta(seconds=1) == claim.fire.due_at
        assert row.count == (row.last_due - row.first_due_at).total_seconds() + 1
        assert row.count >= 604_798

    async def test_skip_runs_only_what_is_not_late(self, down: Harness) -> None:
        await down.define("job", every(minutes=1), misfire="skip")
        await self.back_after(down, seconds=310)
        reply = await down.ask("a")
        ((claim,), (row,)) = reply.claims, reply.closed
        assert (row.state, row.reason, row.count) == (State.MISSED, Reason.MISFIRE, 4)
        assert row.last_due + timedelta(minutes=1) == claim.fire.due_at

    async def test_skip_runs_nothing_when_all_is_late(self, down: Harness) -> None:
        await down.define("job", every(minutes=1), misfire="skip")
        await self.back_after(down, seconds=295)
        reply = await down.ask("a")
        assert reply.claims == ()
        assert [(row.reason, row.count) for row in reply.closed] == [(Reason.MISFIRE, 4)]

    async def test_latest_runs_the_newest_however_late(self, down: Harness) -> None:
        await down.define("job", every(hours=1), misfire="latest")
        await self.back_after(down, minutes=170)
        reply = await down.ask("a")
        ((claim,), (row,)) = reply.claims, reply.closed
        assert row.count == 1
        assert claim.fire.due_at - row.due_at == timedelta(hours=1)

    async def test_all_runs_them_one_after_the_other(self, down: Harness) -> None:
        await down.define("job", every(hours=1), misfire="all")
        await self.back_after(down, minutes=200)
        reply = await down.ask("a")
        assert reply.closed == ()
        order = []
        while reply.claims:
            (claim,) = reply.claims
            order.append(claim.fire.due_at)
            assert await down.settle(claim.fire)
            reply = await down.ask("a")
        assert order == steps(order[0], 3600, 3)

    async def test_all_is_bounded(self, down: Harness) -> None:
        await down.define("job", every(minutes=1), misfire="all", overlap="allow(200)")
        await self.back_after(down, minutes=150)
        reply = await down.ask("a", room=500)
        (row,) = reply.closed
        assert (row.state, row.reason, row.count) == (State.MISSED, Reason.CATCH_UP_LIMIT, 50)
        assert len(reply.claims) == 100
        assert reply.claims[0].fire.due_at == row.last_due + timedelta(minutes=1)

    async def test_all_is_bounded_also_when_they_were_planned_one_by_one(self, down: Harness) -> None:
        await down.define("job", every(seconds=1), misfire="all", overlap="allow(500)")
        for _ in range(4):
            await down.fall_due(50)
        reply = await down.ask("a", room=500)
        assert len(reply.claims) == 100
        (row,) = reply.closed
        assert (row.reason, row.count) == (Reason.CATCH_UP_LIMIT, 100)

    async def test_a_backlog_that_finds_no_room_is_coalesced_into_the_newest(self, down: Harness) -> None:
        await down.define("job", every(minutes=1))
        await self.back_after(down, minutes=5)
        (row,) = (await down.ask("a", room=0)).closed
        assert row.count == 4
        await self.back_after(down, minutes=2)
        reply = await down.ask("a")
        ((claim,), (row,)) = reply.claims, reply.closed
        assert (row.count, row.refers_to) == (6, claim.fire.key)

    async def test_nothing_late_is_decided_while_the_calendar_is_behind(self, down: Harness) -> None:
        await down.define("job", every(minutes=1))
        await down.plan()
        await down.advance(300)
        reply = await down.ask("a")
        assert (reply.claims, reply.closed) == ((), ())
        await down.plan()
        reply = await down.ask("a")
        ((claim,), (row,)) = reply.claims, reply.closed
        assert row.count == 4
        assert row.last_due + timedelta(minutes=1) == claim.fire.due_at

    async def test_a_pause_inside_a_backlog_keeps_its_own_fate(self, down: Harness) -> None:
        await down.define("job", every(minutes=1))
        await down.advance(150)
        await down.pause("job")
        await down.advance(120)
        await down.resume("job")
        await self.back_after(down, seconds=90)
        reply = await down.ask("a")
        assert [(row.reason, row.count) for row in reply.closed] == [
            (Reason.COALESCED, 2),
            (Reason.PAUSED, 2),
            (Reason.COALESCED, 1),
        ]
        assert len(reply.claims) == 1


class OverlapRules:
    async def next_due(self, harness: Harness, count: int = 1) -> Claimed:
        """The job's next fires fall due while the first is still active."""
        for _ in range(count):
            await harness.fall_due()
            reply = await harness.ask("a")
        return reply

    async def test_skip_skips_while_one_is_running(self, harness: Harness) -> None:
        fire = await harness.running()
        reply = await self.next_due(harness)
        assert reply.claims == ()
        (row,) = reply.closed
        assert (row.state, row.reason, row.refers_to) == (State.SKIPPED, Reason.OVERLAP, fire.key)

    async def test_skip_runs_again_when_it_has_ended(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        assert len((await self.next_due(harness)).claims) == 1

    async def test_two_due_at_once_do_not_both_run(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=10))
        await harness.fall_due(20)
        reply = await harness.ask("a")
        assert len(reply.claims) == 1
        assert [row.refers_to for row in reply.closed] == [reply.claims[0].fire.key]

    async def test_queue_waits_for_its_turn(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue")
        reply = await self.next_due(harness)
        assert (reply.claims, reply.closed) == ((), ())
        (queued,) = await harness.fires("job", State.QUEUED)
        await harness.settle(fire)
        assert (await harness.claim("a")).key == queued.key

    async def test_a_full_queue_skips(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue(2)")
        reply = await self.next_due(harness, 3)
        assert reply.claims == ()
        assert [(row.reason, row.refers_to) for row in reply.closed] == [(Reason.QUEUE_FULL, fire.key)]
        assert len(await harness.fires("job", State.QUEUED)) == 2

    async def test_what_is_queued_is_not_late(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue(2)", misfire="skip")
        await self.next_due(harness, 2)
        queued = await harness.fires("job", State.QUEUED)
        assert len(queued) == 2
        await harness.settle(fire)
        assert (await harness.claim("a")).key == queued[0].key

    async def test_allow_runs_that_many_at_once(self, harness: Harness) -> None:
        await harness.running(overlap="allow(2)")
        assert len((await self.next_due(harness)).claims) == 1
        reply = await self.next_due(harness)
        assert reply.claims == ()
        assert [row.reason for row in reply.closed] == [Reason.OVERLAP]

    async def test_a_fire_in_retry_backoff_is_active(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 1000))
        reply = await self.next_due(harness)
        assert reply.claims == ()
        assert [row.refers_to for row in reply.closed] == [fire.key]

    async def test_it_is_not_decided_against_an_overdue_run(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(name="b")
        await harness.plan()
        await harness.advance(61)
        await harness.join("a")
        reply = await harness.ask("a")
        assert (reply.claims, reply.closed) == ((), ())
        assert reply.wake_in is not None
        assert 0 < reply.wake_in <= 1
        await harness.bury("leader", term, "b")
        assert (await harness.claim("a")).due_at > fire.due_at

    async def test_it_is_decided_when_the_overdue_run_turns_out_alive(self, harness: Harness) -> None:
        fire = await harness.running(name="b")
        await harness.plan()
        await harness.advance(61)
        await harness.join("a")
        await harness.ask("a")
        await harness.beat("b")
        await harness.advance(1)
        assert [row.refers_to for row in (await harness.ask("a")).closed] == [fire.key]

    async def test_jobs_do_not_overlap_each_other(self, harness: Harness) -> None:
        await harness.running("one")
        await harness.define("two", every(minutes=1))
        reply = await self.next_due(harness)
        assert [claim.fire.job_id for claim in reply.claims] == ["two"]


class RowRules:
    """Neighbours that never started and share one fate are one row."""

    async def test_neighbours_of_one_fate_are_one_row(self, harness: Harness) -> None:
        fire = await harness.running()
        keys = set()
        for n in range(1, 4):
            await harness.fall_due()
            (row,) = (await harness.ask("a")).closed
            assert (row.count, row.refers_to) == (n, fire.key)
            keys.add(row.key)
        assert len(keys) == 1
        assert [f.count for f in await harness.fires("job", State.SKIPPED)] == [3]
        assert row.last_due - row.first_due_at == timedelta(minutes=2)

    async def test_a_joined_fire_has_no_row_of_its_own(self, harness: Harness) -> None:
        await harness.running()
        for _ in range(2):
            await harness.fall_due()
            await harness.ask("a")
        (row,) = await harness.fires("job", State.SKIPPED)
        assert await harness.store.find_fires(FireQuery(key=fire_key("job", row.last_due))) == ()

    async def test_another_fate_is_another_row(self, harness: Harness) -> None:
        await harness.running()
        await harness.fall_due()
        await harness.ask("a")
        await harness.pause("job")
        await harness.fall_due()
        await harness.ask("a")
        rows = await harness.fires("job", State.SKIPPED)
        assert [(row.reason, row.count) for row in rows] == [(Reason.OVERLAP, 1), (Reason.PAUSED, 1)]

    async def test_the_same_fate_through_another_fire_is_another_row(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        for name in ("first", "second"):
            await harness.trigger("job", name)
            manual = await harness.claim("a")
            await harness.fall_due()
            await harness.ask("a")
            await harness.settle(manual)
        rows = await harness.fires("job", State.SKIPPED)
        assert [(row.refers_to, row.count) for row in rows] == [("job!first", 1), ("job!second", 1)]

    async def test_a_row_never_reaches_across_a_started_fire(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.elapse(5)
        for paused in (True, False, True):
            if paused:
                await harness.pause("job")
            await harness.fall_due()
            for fire in await harness.claims("a"):
                await harness.settle(fire)
            await harness.resume("job")
        fires = await harness.fires("job")
        assert [f.state for f in fires[:3]] == [State.SKIPPED, State.SUCCEEDED, State.SKIPPED]
        assert [f.count for f in fires[:3]] == [1, 1, 1]

    async def test_a_row_never_reaches_across_an_undecided_fire(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=10))
        await harness.elapse(5)
        for paused in (True, False, True):
            if paused:
                await harness.pause("job")
            await harness.fall_due(10)
            await harness.ask("a", room=0)
            await harness.resume("job")
        assert [f.count for f in await harness.fires("job", State.SKIPPED)] == [1, 1]
        between = await harness.claim("a")
        first, last = await harness.fires("job", State.SKIPPED)
        assert first.due_at < between.due_at < last.due_at


class SettleRules:
    @pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED])
    async def test_a_run_is_settled_by_its_token(self, harness: Harness, state: State) -> None:
        fire = await harness.running()
        assert await harness.update(Settle(fire.key, fire.token, state, "reason", "error"))
        done = await harness.fire(fire.key)
        assert (done.state, done.reason, done.error) == (state, "reason", "error")
        assert done.finished_at is not None
        (attempt,) = done.attempts
        assert (attempt.token, attempt.replica, attempt.outcome, attempt.error) == (
            fire.token,
            "a",
            state,
            "error",
        )

    async def test_a_wrong_token_is_refused(self, harness: Harness) -> None:
        fire = await harness.running()
        for token in (fire.token - 1, fire.token + 1):
            for update in (
                Settle(fire.key, token, State.SUCCEEDED),
                RetryLater(fire.key, token, 1),
                GiveBack(fire.key, token),
                Report(fire.key, token, {"done": 1}),
            ):
                assert not await harness.update(update)
        assert await harness.fire(fire.key) == fire

    async def test_an_earlier_attempt_is_refused(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(GiveBack(fire.key, fire.token))
        again = await harness.claim("a")
        assert not await harness.settle(fire)
        assert not await harness.update(GiveBack(fire.key, fire.token))
        assert await harness.fire(fire.key) == again

    async def test_an_unknown_fire_is_refused(self, harness: Harness) -> None:
        assert not await harness.update(Settle("job@never", 1, State.SUCCEEDED))

    async def test_a_repeated_settle_is_answered_alike(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.settle(fire)
        done = await harness.fire(fire.key)
        await harness.advance(5)
        assert await harness.settle(fire)
        assert await harness.fire(fire.key) == done

    async def test_a_final_state_never_changes(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire, State.FAILED)
        done = await harness.fire(fire.key)
        await harness.settle(fire, State.SUCCEEDED)
        await harness.update(RetryLater(fire.key, fire.token, 0))
        await harness.update(GiveBack(fire.key, fire.token))
        await harness.update(Report(fire.key, fire.token, {"done": 1}, saves=True, checkpoint=1))
        await harness.store.cancel_fire(fire.key)
        assert await harness.fire(fire.key) == done
        assert await harness.claims("a") == []

    async def test_a_retry_waits_and_is_claimed_again(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.update(RetryLater(fire.key, fire.token, 20, "boom"))
        waiting = await harness.fire(fire.key)
        assert (waiting.state, waiting.error) == (State.WAITING, "boom")
        assert [(a.outcome, a.error) for a in waiting.attempts] == [("retry", "boom")]
        await harness.elapse(10)
        reply = await harness.ask("a")
        assert reply.claims == ()
        assert reply.wake_in == pytest.approx(10, abs=2)
        await harness.elapse(11)
        again = await harness.claim("a")
        assert (again.key, again.attempt) == (fire.key, 2)
        assert again.token > fire.token

    async def test_a_repeated_retry_is_answered_alike(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 20))
        waiting = await harness.fire(fire.key)
        await harness.advance(5)
        assert await harness.update(RetryLater(fire.key, fire.token, 20))
        assert await harness.fire(fire.key) == waiting

    async def test_what_never_started_is_no_attempt(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.update(GiveBack(fire.key, fire.token))
        again = await harness.claim("a")
        assert (again.key, again.attempt) == (fire.key, 1)
        assert again.token > fire.token

    async def test_what_started_is_an_attempt(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.update(GiveBack(fire.key, fire.token, started=True))
        assert (await harness.claim("a")).attempt == 2

    async def test_what_was_given_back_is_there_for_others(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.join("b")
        await harness.update(GiveBack(fire.key, fire.token, started=True))
        assert (await harness.claim("b")).key == fire.key

    async def test_progress_is_reported(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.update(Report(fire.key, fire.token, {"done": 1, "total": 3}))
        assert (await harness.fire(fire.key)).progress == {"done": 1, "total": 3}
        assert await harness.update(Report(fire.key, fire.token, saves=True, checkpoint=[1]))
        reported = await harness.fire(fire.key)
        assert (reported.progress, reported.checkpoint) == ({"done": 1, "total": 3}, [1])
        assert await harness.update(Report(fire.key, fire.token, {"done": 2}))
        assert (await harness.fire(fire.key)).checkpoint == [1]

    async def test_a_checkpoint_may_be_taken_back(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(Report(fire.key, fire.token, saves=True, checkpoint={"at": 1}))
        await harness.update(Report(fire.key, fire.token, saves=True, checkpoint=None))
        assert (await harness.fire(fire.key)).checkpoint is None

    async def test_nothing_is_reported_after_the_end(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        assert not await harness.update(Report(fire.key, fire.token, {"done": 1}))

    async def test_a_checkpoint_outlives_giving_back_and_retrying(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(Report(fire.key, fire.token, {"done": 1}, saves=True, checkpoint={"phase": 2}))
        await harness.update(GiveBack(fire.key, fire.token, started=True))
        again = await harness.claim("a")
        assert (again.checkpoint, again.progress) == ({"phase": 2}, None)
        await harness.update(RetryLater(again.key, again.token, 0))
        assert (await harness.claim("a")).checkpoint == {"phase": 2}

    async def test_a_checkpoint_outlives_a_crash(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(name="b", after_crash="rerun")
        await harness.update(Report(fire.key, fire.token, saves=True, checkpoint={"phase": 2}))
        await harness.bury("leader", term, "b")
        await harness.join("c")
        assert (await harness.claim("c")).checkpoint == {"phase": 2}

    async def test_each_update_of_a_batch_has_its_own_answer(self, harness: Harness) -> None:
        await harness.join("a")
        for id in ("one", "two"):
            await harness.define(id, every(minutes=1))
        await harness.fall_due()
        one, two = await harness.claims("a")
        reply = await harness.store.update_claims(
            "a",
            [
                Report(one.key, one.token, {"done": 1}),
                Settle(one.key, one.token, State.SUCCEEDED),
                Settle(two.key, two.token + 1, State.SUCCEEDED),
                Report(one.key, one.token, {"done": 2}),
                Settle(two.key, two.token, State.FAILED),
            ],
        )
        assert reply.accepted == (True, True, False, False, True)
        assert (await harness.fire(one.key)).progress == {"done": 1}

    async def test_the_answer_says_whether_something_is_due_now(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        assert not (await harness.store.update_claims("a", [Report(fire.key, fire.token, {})])).due
        settled = await harness.store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
        assert settled.due

    async def test_tokens_outlive_removal_and_pruning(self, harness: Harness) -> None:
        tokens = []
        for _ in range(3):
            fire = await harness.running()
            tokens.append(fire.token)
            await harness.settle(fire)
            await harness.remove("job")
            await harness.advance(1)
            assert await harness.store.prune(0) == 1
            await harness.beat("a")
        assert tokens == [1, 2, 3]


class HighWaterRules:
    """A pruned key protects no more; the mark does."""

    async def consumed(self, harness: Harness) -> FireRecord:
        fire = await harness.running()
        await harness.settle(fire)
        await harness.advance(1)
        assert await harness.store.prune(0) == 1
        return fire

    async def test_the_mark_is_on_the_job(self, harness: Harness) -> None:
        fire = await self.consumed(harness)
        assert (await harness.job("job")).decided_through == fire.due_at

    async def test_a_pruned_key_is_not_planned_again(self, harness: Harness) -> None:
        fire = await self.consumed(harness)
        await harness.define("job", every(seconds=20, anchor=fire.due_at - timedelta(minutes=1)))
        await harness.plan()
        assert fire.due_at < min(due_times(await harness.fires("job")))

    async def test_nor_when_the_clock_stepped_back_and_the_trigger_changed(self, harness: Harness) -> None:
        fire = await self.consumed(harness)
        if harness.step_back is None:
            pytest.skip("this store's clock cannot be stepped")
        await harness.step_back(50)
        await harness.define("job", every(seconds=20, anchor=fire.due_at - timedelta(minutes=1)))
        await harness.plan(horizon=120)
        fires = await harness.fires("job")
        assert due_times(fires) == steps(fire.due_at + timedelta(seconds=20), 20, len(fires))
        assert fires

    async def test_nor_when_the_job_was_removed_and_added_again(self, harness: Harness) -> None:
        fire = await self.consumed(harness)
        if harness.step_back is None:
            pytest.skip("this store's clock cannot be stepped")
        await harness.remove("job")
        await harness.step_back(50)
        await harness.define("job", every(seconds=20, anchor=fire.due_at - timedelta(minutes=1)))
        await harness.plan(horizon=120)
        assert fire.due_at < min(due_times(await harness.fires("job")))

    async def test_what_was_planned_survives_a_step_back(self, harness: Harness) -> None:
        if harness.step_back is None:
            pytest.skip("this store's clock cannot be stepped")
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        before = await harness.fires("job")
        await harness.step_back(300)
        await harness.plan()
        assert await harness.fires("job") == before
        await harness.elapse(361)
        assert (await harness.claim("a")).key == before[0].key


class ManualRules:
    @pytest.fixture
    async def ready(self, harness: Harness) -> Harness:
        """Replica `a`, and a job that runs only by hand."""
        await harness.join("a")
        await harness.define("job")
        return harness

    async def test_a_manual_fire_is_due_at_once(self, ready: Harness) -> None:
        added = await ready.trigger("job", args={"x": [1]}, by="ann")
        assert added.outcome == "added"
        fire = await ready.claim("a")
        assert added.fire is not None
        assert fire.key == added.fire.key == "job!by-hand"
        assert (fire.scheduled, fire.args, fire.by, fire.token) == (False, {"x": [1]}, "ann", 1)

    async def test_a_repeated_request_adds_nothing(self, ready: Harness) -> None:
        first = await ready.trigger("job")
        again = await ready.trigger("job")
        assert again.outcome == "exists"
        assert again.fire == first.fire
        fire = await ready.claim("a")
        await ready.settle(fire)
        over = await ready.trigger("job")
        assert over.outcome == "exists"
        assert over.fire is not None
        assert over.fire.state is State.SUCCEEDED
        assert await ready.claims("a") == []

    async def test_it_needs_a_job(self, ready: Harness) -> None:
        assert await ready.trigger("another") == Added("no such job")
        await ready.remove("job")
        assert await ready.trigger("job") == Added("no such job")

    async def test_refuse_refuses_while_one_is_active(self, ready: Harness) -> None:
        await ready.trigger("job", "first")
        waiting = await ready.trigger("job", "second", if_active="refuse")
        assert (waiting.outcome, waiting.fire and waiting.fire.key) == ("active", "job!first")
        fire = await ready.claim("a")
        running = await ready.trigger("job", "second", if_active="refuse")
        assert (running.outcome, running.fire) == ("active", fire)
        await ready.settle(fire)
        assert (await ready.trigger("job", "second", if_active="refuse")).outcome == "added"

    async def test_refuse_refuses_while_a_retry_waits(self, ready: Harness) -> None:
        await ready.trigger("job", "first")
        fire = await ready.claim("a")
        await ready.update(RetryLater(fire.key, fire.token, 100))
        assert (await ready.trigger("job", "second", if_active="refuse")).outcome == "active"

    async def test_queue_waits_for_its_turn_under_any_overlap(self, ready: Harness) -> None:
        names = ["first", "second", "third"]
        for name in names:
            assert (await ready.trigger("job", name)).outcome == "added"
            await ready.advance(0.1)
        order = []
        for _ in names:
            fire = await ready.claim("a")
            order.append(fire.key)
            await ready.settle(fire)
        assert order == [f"job!{name}" for name in names]

    async def test_the_queue_is_full_at_a_hundred(self, ready: Harness) -> None:
        for n in range(100):
            assert (await ready.trigger("job", f"n{n}")).outcome == "added"
        full = await ready.trigger("job", "one-too-many")
        assert full.outcome == "full"
        assert await ready.store.find_fires(FireQuery(key="job!one-too-many")) == ()
        await ready.claim("a")
        assert (await ready.trigger("job", "one-too-many")).outcome == "added"

    async def test_it_is_never_late(self, ready: Harness) -> None:
        await ready.define("job", misfire="skip")
        await ready.trigger("job")
        await ready.advance(10_000)
        assert (await ready.claim("a")).key == "job!by-hand"

    async def test_it_is_not_skipped_by_overlap_and_skips_others(self, ready: Harness) -> None:
        await ready.define("job", every(minutes=1))
        await ready.trigger("job")
        manual = await ready.claim("a")
        await ready.fall_due()
        (row,) = (await ready.ask("a")).closed
        assert (row.reason, row.refers_to) == (Reason.OVERLAP, manual.key)


class CancelRules:
    async def test_a_due_fire_is_cancelled(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        pending = (await harness.fires("job"))[0]
        cancelled = await harness.store.cancel_fire(pending.key)
        assert cancelled is not None
        assert (cancelled.key, cancelled.state) == (pending.key, State.CANCELLED)
        assert cancelled.reason == Reason.REQUESTED
        assert cancelled.finished_at is not None
        assert await harness.claims("a") == []
        assert (await harness.job("job")).decided_through == pending.due_at

    async def test_each_keeps_its_own_row(self, harness: Harness) -> None:
        await harness.define("job", every(seconds=10))
        await harness.fall_due(20)
        first, second = (await harness.fires("job"))[:2]
        for fire in (first, second):
            await harness.store.cancel_fire(fire.key)
        assert [f.key for f in await harness.fires("job", State.CANCELLED)] == [first.key, second.key]

    async def test_a_fire_that_is_not_due_is_left_alone(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.plan()
        (planned,) = await harness.fires("job")
        assert await harness.store.cancel_fire(planned.key) == planned

    async def test_a_queued_fire_is_cancelled(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        (queued,) = await harness.fires("job", State.QUEUED)
        cancelled = await harness.store.cancel_fire(queued.key)
        assert cancelled is not None
        assert cancelled.state is State.CANCELLED
        await harness.settle(fire)
        assert await harness.claims("a") == []

    async def test_a_waiting_fire_is_cancelled(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 5))
        cancelled = await harness.store.cancel_fire(fire.key)
        assert cancelled is not None
        assert (cancelled.state, cancelled.reason) == (State.CANCELLED, Reason.REQUESTED)
        await harness.elapse(10)
        assert await harness.claims("a") == []

    async def test_a_manual_fire_is_cancelled(self, harness: Harness) -> None:
        await harness.define("job")
        await harness.trigger("job")
        cancelled = await harness.store.cancel_fire("job!by-hand")
        assert cancelled is not None
        assert cancelled.state is State.CANCELLED

    async def test_a_running_fire_is_asked_to_end(self, harness: Harness) -> None:
        fire = await harness.running()
        asked = await harness.store.cancel_fire(fire.key)
        assert asked == replace(fire, cancel_requested=True)
        assert [held.cancel_requested for held in (await harness.beat("a")).held] == [True]
        assert await harness.settle(fire, State.CANCELLED)

    async def test_a_running_fire_may_still_succeed(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.store.cancel_fire(fire.key)
        assert await harness.settle(fire)
        assert (await harness.fire(fire.key)).state is State.SUCCEEDED

    @pytest.mark.parametrize("way", ["retry", "give back", "leave"])
    async def test_a_fire_asked_to_end_does_not_come_back(self, harness: Harness, way: str) -> None:
        fire = await harness.running()
        await harness.store.cancel_fire(fire.key)
        if way == "retry":
            assert await harness.update(RetryLater(fire.key, fire.token, 1))
        elif way == "give back":
            assert await harness.update(GiveBack(fire.key, fire.token))
        else:
            await harness.store.leave("a")
        done = await harness.fire(fire.key)
        assert (done.state, done.reason) == (State.CANCELLED, Reason.REQUESTED)

    async def test_a_crashed_fire_asked_to_end_is_not_rerun(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(after_crash="rerun")
        await harness.store.cancel_fire(fire.key)
        (done,) = (await harness.bury("leader", term, "a")).settled
        assert done.state.final

    async def test_what_is_final_stays_as_it_is(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        done = await harness.fire(fire.key)
        assert await harness.store.cancel_fire(fire.key) == done

    async def test_what_does_not_exist_is_not_cancelled(self, harness: Harness) -> None:
        assert await harness.store.cancel_fire("job@never") is None


class RemovalRules:
    async def test_what_was_due_is_cancelled_and_the_rest_withdrawn(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due(150)
        await harness.remove("job")
        (row,) = await harness.fires("job")
        assert (row.state, row.reason, row.count) == (State.CANCELLED, Reason.REMOVED, 2)
        assert await harness.claims("a") == []

    async def test_what_was_due_and_not_planned_is_cancelled_too(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.advance(150)
        await harness.remove("job")
        await harness.plan()
        (row,) = await harness.fires("job")
        assert (row.state, row.reason, row.count) == (State.CANCELLED, Reason.REMOVED, 2)

    async def test_a_removed_job_is_gone(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.remove("job")
        assert await harness.store.jobs() == ()
        assert await harness.store.jobs(["job"]) == ()
        assert await harness.store.change_job(ChangeJob("job", "pause")) is None
        assert await harness.store.change_job(ChangeJob("job", "remove")) is None
        assert (await harness.store.due_jobs(10**6, 10)).jobs == ()

    async def test_a_running_fire_finishes(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.remove("job")
        assert (await harness.fire(fire.key)).state is State.RUNNING
        assert await harness.settle(fire)
        assert (await harness.fire(fire.key)).state is State.SUCCEEDED

    async def test_its_retry_is_cancelled(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.remove("job")
        assert await harness.update(RetryLater(fire.key, fire.token, 1))
        done = await harness.fire(fire.key)
        assert (done.state, done.reason) == (State.CANCELLED, Reason.REMOVED)

    async def test_a_retry_that_waits_is_cancelled(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 5))
        await harness.remove("job")
        done = await harness.fire(fire.key)
        assert (done.state, done.reason) == (State.CANCELLED, Reason.REMOVED)

    async def test_its_rerun_is_cancelled(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(after_crash="rerun")
        await harness.remove("job")
        (done,) = (await harness.bury("leader", term, "a")).settled
        assert (done.key, done.state) == (fire.key, State.CANCELLED)

    async def test_manual_fires_that_wait_are_cancelled(self, harness: Harness) -> None:
        await harness.define("job")
        await harness.trigger("job")
        await harness.remove("job")
        assert (await harness.fire("job!by-hand")).reason == Reason.REMOVED

    async def test_a_job_may_be_added_again(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.remove("job")
        await harness.advance(100)
        assert not (await harness.define("job", every(minutes=1))).refused
        await harness.fall_due()
        assert (await harness.claim("a")).due_at > NOON + timedelta(seconds=150)


class OrphanRules:
    @pytest.fixture
    async def forsaken(self, harness: Harness) -> int:
        """`a` leads without knowing the task; `b`, who knew it, has left."""
        term = await harness.elect("a", "nothing")
        await harness.join("b", "work")
        await harness.define("job", every(minutes=10))
        await harness.store.leave("b")
        return term

    async def lead_on(self, harness: Harness, term: int, minutes: int) -> None:
        """The leader keeps sweeping and planning."""
        for _ in range(minutes // 5):
            await harness.store.sweep("a", term, [])
            await harness.plan()
            await harness.advance(300)
        await harness.store.sweep("a", term, [])
        await harness.plan()

    async def test_a_job_whose_task_nobody_knows_is_not_planned(
        self, harness: Harness, forsaken: int
    ) -> None:
        await self.lead_on(harness, forsaken, 60)
        before = await harness.fires("job")
        await harness.advance(3600)
        assert (await harness.store.due_jobs(HORIZON, 10)).jobs == ()
        await self.lead_on(harness, forsaken, 60)
        assert due_times(await harness.fires("job")) == due_times(before)
        assert await harness.store.jobs(["job"])

    async def test_for_an_hour_it_is_still_planned(self, harness: Harness, forsaken: int) -> None:
        await self.lead_on(harness, forsaken, 50)
        assert len(await harness.fires("job", State.PENDING)) >= 4

    async def test_what_fell_due_meanwhile_is_missed(self, harness: Harness, forsaken: int) -> None:
        await self.lead_on(harness, forsaken, 115)
        await harness.join("c", "work")
        await harness.plan()
        assert await harness.claims("c") == []
        rows = await harness.fires("job", State.MISSED)
        assert {row.reason for row in rows} == {Reason.UNKNOWN_TASK}
        assert sum(row.count for row in rows) == 11
        assert await harness.fires("job", State.SKIPPED) == []

    async def test_what_falls_due_afterwards_is_run(self, harness: Harness, forsaken: int) -> None:
        await self.lead_on(harness, forsaken, 115)
        await harness.join("c", "work")
        await harness.fall_due(310)
        assert len(await harness.claims("c")) == 1

    async def test_a_shorter_absence_is_only_late(self, harness: Harness, forsaken: int) -> None:
        await self.lead_on(harness, forsaken, 50)
        await harness.join("c", "work")
        await harness.plan()
        reply = await harness.ask("c")
        assert len(reply.claims) == 1
        assert [row.reason for row in reply.closed] == [Reason.COALESCED]

    async def test_when_nobody_was_there_to_notice_it_is_only_late(self, harness: Harness) -> None:
        await harness.join("b", "work")
        await harness.define("job", every(minutes=10))
        await harness.store.leave("b")
        await harness.advance(7205)
        await harness.join("c", "work")
        await harness.plan()
        assert len(await harness.claims("c")) == 1


class LedgerRules:
    async def test_fires_are_found_newest_first(self, harness: Harness) -> None:
        await harness.define("a", every(minutes=1))
        await harness.define("b", every(seconds=90))
        await harness.plan(horizon=200)
        found = await harness.store.find_fires(FireQuery())
        assert [fire.job_id for fire in found] == ["b", "a", "a", "b", "a"]
        assert due_times(found) == sorted(due_times(found), reverse=True)

    async def test_of_one_moment_the_greater_key_comes_first(self, harness: Harness) -> None:
        for id in ("b", "c", "a"):
            await harness.define(id, every(minutes=1))
        await harness.plan()
        assert [fire.job_id for fire in await harness.store.find_fires(FireQuery())] == ["c", "b", "a"]

    async def test_fires_are_found_by_what_is_asked(self, harness: Harness) -> None:
        fire = await harness.running("job")
        await harness.settle(fire)
        await harness.define("other", every(minutes=1))
        await harness.plan(horizon=200)
        second = timedelta(seconds=1)

        async def found(**query: Any) -> list[str]:
            return [f.job_id for f in await harness.store.find_fires(FireQuery(**query))]

        assert await found(key=fire.key) == ["job"]
        assert await found(key="job@never") == []
        assert await found(job_id="job", until=fire.due_at + second) == ["job"]
        assert await found(states=(State.SUCCEEDED, State.FAILED)) == ["job"]
        assert await found(states=(State.FAILED,)) == []
        assert await found(until=fire.due_at) == []
        assert "job" in await found(since=fire.due_at)
        assert await found(since=fire.due_at + second, until=fire.due_at + second) == []
        assert len(await found()) > 2
        assert len(await found(limit=2)) == 2

    async def test_a_row_is_found_by_any_part_of_its_span(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await harness.fall_due(300)
        (row,) = (await harness.ask("a")).closed
        middle = row.first_due_at + timedelta(minutes=2)
        found = await harness.store.find_fires(FireQuery(since=middle, until=middle + timedelta(seconds=1)))
        assert found == (row,)

    async def test_the_history_of_a_job_is_kept(self, harness: Harness) -> None:
        start = await harness.now()
        await harness.define("job", every(minutes=1))
        await harness.define("job", every(minutes=1), timeout=timedelta(seconds=3))
        until = start + timedelta(hours=1)
        await harness.store.change_job(ChangeJob("job", "pause", "deploy", "ann", until))
        await harness.store.change_job(ChangeJob("job", "resume", by="bob"))
        await harness.define("job", every(minutes=2))
        await harness.store.change_job(ChangeJob("job", "remove", by="cem"))
        events = await harness.store.history("job")
        assert [event.kind for event in events] == ["defined", "paused", "resumed", "defined", "removed"]
        assert [event.by for event in events] == ["", "ann", "bob", "", "cem"]
        assert [event.version for event in events] == [1, 1, 1, 2, 2]
        assert (events[1].note, events[1].until) == ("deploy", until)
        assert events[0].trigger is not None
        assert events[0].trigger["seconds"] == 60
        assert "anchor" in events[0].trigger
        assert all(event.job_id == "job" and event.at >= start for event in events)
        assert await harness.store.history("another") == ()

    async def test_a_definition_holds_from_the_last_fire_decided(self, harness: Harness) -> None:
        fire = await harness.running()
        if harness.step_back is None:
            pytest.skip("this store's clock cannot be stepped")
        await harness.step_back(30)
        await harness.define("job", every(minutes=2))
        assert (await harness.store.history("job"))[-1].since == fire.due_at

    async def test_resuming_what_runs_is_no_event(self, harness: Harness) -> None:
        await harness.define("job")
        await harness.resume("job")
        assert [event.kind for event in await harness.store.history("job")] == ["defined"]

    async def test_old_final_fires_are_forgotten(self, harness: Harness) -> None:
        old = await harness.running()
        await harness.settle(old)
        await harness.fall_due()
        young = await harness.claim("a")
        await harness.settle(young)
        assert await harness.store.prune(30) == 1
        keys = [fire.key for fire in await harness.fires("job")]
        assert old.key not in keys
        assert young.key in keys
        assert await harness.store.prune(30) == 0

    async def test_what_is_not_final_is_kept_however_old(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        await harness.advance(10_000)
        assert await harness.store.prune(0) == 0
        states = [f.state for f in await harness.fires("job")]
        assert states[:2] == [State.RUNNING, State.QUEUED]
        assert await harness.settle(fire)

    async def test_a_row_that_has_been_forgotten_is_not_joined(self, harness: Harness) -> None:
        await harness.running()
        await harness.fall_due()
        await harness.ask("a")
        await harness.elapse(5)
        assert await harness.store.prune(1) == 1
        await harness.fall_due(55)
        assert [row.count for row in (await harness.ask("a")).closed] == [1]

    async def test_the_definition_in_force_is_not_forgotten(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.advance(100)
        await harness.define("job", every(minutes=2))
        await harness.advance(100)
        await harness.define("job", every(minutes=3))
        await harness.store.prune(1000)
        assert len(await harness.store.history("job")) == 3
        await harness.store.prune(50)
        events = await harness.store.history("job")
        assert [event.trigger and event.trigger["seconds"] for event in events] == [120, 180]


class HintRules:
    """Only ever a hint: one given before the wait may end it."""

    async def quiet(self, harness: Harness) -> None:
        while await harness.store.wait(0.01):
            pass

    async def test_waiting_ends_when_the_time_is_up(self, harness: Harness) -> None:
        assert await harness.store.wait(0.01) is False

    async def test_waiting_ends_with_a_hint(self, harness: Harness) -> None:
        await harness.define("job")
        await self.quiet(harness)
        waiting = asyncio.create_task(harness.store.wait(10))
        await asyncio.sleep(0.05)
        await harness.trigger("job")
        assert await asyncio.wait_for(waiting, 5) is True

    async def test_an_abandoned_wait_does_no_harm(self, harness: Harness) -> None:
        await harness.define("job")
        await self.quiet(harness)
        waiting = asyncio.create_task(harness.store.wait(10))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        assert (await harness.trigger("job")).outcome == "added"


class StoreConformance(
    PresenceRules,
    LeadershipRules,
    SweepRules,
    DefinitionRules,
    PlanningRules,
    ClaimRules,
    PauseRules,
    MisfireRules,
    OverlapRules,
    RowRules,
    SettleRules,
    HighWaterRules,
    ManualRules,
    CancelRules,
    RemovalRules,
    OrphanRules,
    LedgerRules,
    HintRules,
):
    """Every rule. A subclass gives the fixture `harness`."""

    @pytest.fixture
    async def harness(self) -> Harness:
        raise NotImplementedError("give the store under test: a fixture that yields a Harness")
