"""Which replicas take part, which one is the leader, and which are declared dead."""

from __future__ import annotations

import pytest

from fencepost.model import (
    Reason,
    State,
)
from fencepost.model.triggers import every
from fencepost.store.base import (
    Campaign,
    Suspect,
    Watched,
)
from fencepost.testing.conformance.harness import HEARTBEAT, NOON, TTL, WITNESSED, Harness


class PresenceRules:
    async def test_a_joining_replica_takes_part(self, harness: Harness) -> None:
        reply = await harness.join("a", "work", "other", "work", host="h1", pid=7, version="1.2")
        assert reply.known
        assert reply.held == ()
        replica = await harness.presence("a")
        assert replica is not None
        assert (replica.host, replica.pid, replica.version) == ("h1", 7, "1.2")
        assert replica.targets == ("other", "work")
        assert replica.joined_at == reply.now
        assert (replica.ttl, replica.heartbeat, replica.beat_no) == (TTL, HEARTBEAT, 1)
        assert not replica.draining

    async def test_a_heartbeat_that_is_not_joining_creates_no_presence(self, harness: Harness) -> None:
        reply = await harness.heartbeat("a", targets=("work",), campaign=Campaign(TTL))
        assert not reply.known
        assert reply.leader.holder is None
        assert (await harness.store.roster()).replicas == ()

    async def test_a_heartbeat_renews_a_presence(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.advance(20)
        await harness.heartbeat("a")
        await harness.advance(20)
        assert (await harness.store.roster()).overdue == frozenset()
        await harness.advance(11)
        assert (await harness.store.roster()).overdue == {"a"}

    async def test_every_heartbeat_is_counted(self, harness: Harness) -> None:
        await harness.join("a")
        before = await harness.presence("a")
        await harness.heartbeat("a")
        after = await harness.presence("a")
        assert before is not None
        assert after is not None
        assert after.renewals == before.renewals + 1

    async def test_a_delayed_heartbeat_changes_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.campaign("a")
        before = await harness.store.roster()
        await harness.advance(5)
        reply = await harness.heartbeat("a", number=1, targets=(), draining=True, joining=True)
        after = await harness.store.roster()
        assert reply.known
        assert after.replicas == before.replicas
        assert after.leader == before.leader

    async def test_a_heartbeat_without_targets_keeps_those_known(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.heartbeat("a")
        replica = await harness.presence("a")
        assert replica is not None
        assert replica.targets == ("work",)

    async def test_bodies_that_go_on_are_shown_until_a_heartbeat_says_otherwise(
        self, harness: Harness
    ) -> None:
        await harness.join("a", "work")
        for sent, shown in (
            (None, ()),
            (("job!one", "job!two"), ("job!one", "job!two")),
            (None, ("job!one", "job!two")),
            ((), ()),
        ):
            await harness.heartbeat("a", lingering=sent)
            replica = await harness.presence("a")
            assert replica is not None
            assert (replica.lingering, replica.targets) == (shown, ("work",))

    async def test_a_heartbeat_may_change_the_targets(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.heartbeat("a", targets=("x", "b"))
        replica = await harness.presence("a")
        assert replica is not None
        assert replica.targets == ("b", "x")

    async def test_a_replica_that_left_stays_away_until_it_joins_again(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.store.leave("a")
        assert not (await harness.heartbeat("a")).known
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

    async def test_a_heartbeat_answers_what_is_held(self, harness: Harness) -> None:
        fire = await harness.running()
        (held,) = (await harness.heartbeat("a")).held
        assert (held.key, held.token, held.claim_no) == (fire.key, fire.token, fire.claim_no)
        assert not held.cancel_requested
        await harness.settle(fire)
        assert (await harness.heartbeat("a")).held == ()

    async def test_a_heartbeat_names_those_that_claim_the_same(self, harness: Harness) -> None:
        for name in ("a", "b", "c", "silent"):
            await harness.join(name)
        await harness.join("other", "work", "more")
        await harness.define("job", every(seconds=10), overlap="allow(9)")
        for name in ("b", "c", "other"):
            await harness.fall_due(10)
            assert len(await harness.claims(name)) == 1
        assert (await harness.heartbeat("a")).peers == ("b", "c")
        assert (await harness.heartbeat("other")).peers == ()
        await harness.heartbeat("b", draining=True)
        assert (await harness.heartbeat("a")).peers == ("c",)
        await harness.heartbeat("c", targets=("work", "more"))
        assert (await harness.heartbeat("a")).peers == ()
        assert (await harness.heartbeat("other")).peers == ("c",)

    async def test_who_is_overdue_is_not_named(self, harness: Harness) -> None:
        await harness.running(name="b")
        await harness.join("a")
        assert (await harness.heartbeat("a")).peers == ("b",)
        await harness.advance(TTL - 1)
        assert (await harness.heartbeat("a")).peers == ("b",)
        await harness.advance(2)
        assert (await harness.heartbeat("a")).peers == ()

    async def test_a_delayed_heartbeat_is_answered_with_what_is_held(self, harness: Harness) -> None:
        fire = await harness.running()
        assert [held.key for held in (await harness.heartbeat("a", number=1)).held] == [fire.key]

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

    async def test_no_replica_leads_without_asking(self, harness: Harness) -> None:
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
        """The store's clock may have stepped back: then the lease takes long to expire."""
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

    async def test_the_deposed_leader_learns_it_with_its_next_heartbeat(self, led: Harness) -> None:
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
        reply = await led.heartbeat("a", draining=True, campaign=Campaign(TTL))
        assert reply.leader.holder is None
        lease = await led.campaign("b")
        assert (lease.holder, lease.term) == ("b", before.term + 1)

    async def test_leaving_releases_leadership(self, led: Harness) -> None:
        await led.store.leave("a")
        assert (await led.store.roster()).leader.holder is None
        assert (await led.campaign("b")).holder == "b"

    async def test_a_follower_that_leaves_or_drains_changes_nothing(self, led: Harness) -> None:
        before = (await led.store.roster()).leader
        await led.heartbeat("b", draining=True)
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

    async def test_expiry_alone_declares_no_replica_dead(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        await harness.advance(TTL + 1)
        almost = await self.suspect(harness, "b", WITNESSED - 0.1)
        swept = await harness.store.sweep("a", term, [almost])
        assert swept is not None
        assert swept.expired == ()
        assert swept.roster.overdue >= {"b"}

    async def test_observation_alone_declares_no_replica_dead(self, harness: Harness, term: int) -> None:
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
        assert not (await harness.heartbeat("b")).known

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
        await harness.heartbeat("b")
        await harness.advance(TTL + 1)
        swept = await harness.store.sweep("a", term, [suspect])
        assert swept is not None
        assert swept.expired == ()

    async def test_a_claim_is_a_sign_of_life(self, harness: Harness, term: int) -> None:
        await harness.join("b")
        await harness.define("job", every(seconds=TTL))
        suspect = await self.suspect(harness, "b", 10 * TTL)
        await harness.fall_due(TTL + 1)
        assert len(await harness.claims("b")) == 1
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
        assert (settled.state, settled.reason) == (State.LOST, "crashed 3 times")

    async def test_a_sweep_that_is_repeated_finds_nothing_more(self, harness: Harness, term: int) -> None:
        await harness.running(name="b")
        await harness.bury("a", term, "b")
        again = await harness.bury("a", term, "b")
        assert (again.expired, again.settled) == ((), ())
