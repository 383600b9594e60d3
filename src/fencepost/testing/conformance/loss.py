"""When a store may have lost what it acknowledged: what replicas can prove, and what follows."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from fencepost.model import Reason, State
from fencepost.model.triggers import every
from fencepost.model.triggers.following import After
from fencepost.store.base import HeartbeatReply, Seen
from fencepost.testing.conformance.harness import Harness


async def remember_more(harness: Harness, name: str = "a", **seen: int) -> HeartbeatReply:
    """`name` has received replies about more than the store now has."""
    era = harness.era
    known = {"incarnation": era.incarnation, "server": era.server, **seen}
    return await harness.heartbeat(name, seen=Seen(**known))  # type: ignore[arg-type]


class DataLossRules:
    async def test_what_was_answered_is_no_proof_if_the_store_knows_it(self, harness: Harness) -> None:
        await harness.elect("a")
        reply = await harness.heartbeat("a")
        era, seen = reply.leader.era, Seen(reply.leader.era.incarnation, reply.leader.term, reply.steps)
        assert (await harness.heartbeat("a", seen=seen)).leader.era == era

    async def test_every_heartbeat_and_claim_is_counted(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        first = (await harness.heartbeat("a")).steps
        assert first > 0
        assert (await harness.ask("a")).steps == first + 1
        assert (await harness.heartbeat("a")).steps == first + 2

    async def test_a_settlement_is_counted_where_it_may_be_lost(self, harness: Harness) -> None:
        fire = await harness.running()
        first = (await harness.heartbeat("a")).steps
        await harness.settle(fire)
        counted = 1 if harness.store.may_lose_writes else 0
        assert (await harness.heartbeat("a")).steps == first + counted + 1

    async def test_a_settlement_is_not_counted_while_it_is_doubtful_what_was_lost(
        self, harness: Harness
    ) -> None:
        """It would make up for a step that is missing."""
        fire = await harness.running()
        assert await harness.settle(fire)
        first = (await remember_more(harness, steps=1_000_000)).steps
        assert await harness.settle(fire), "the same is reported again"
        assert (await harness.heartbeat("a")).steps == first + 1

    async def test_more_steps_than_the_store_took_prove_a_loss(self, harness: Harness) -> None:
        await harness.elect("a")
        before = harness.era
        reply = await remember_more(harness, steps=1_000_000)
        assert reply.leader.era.standing == "lost"
        assert reply.leader.era.incarnation > before.incarnation
        assert reply.leader.era.lost_through is not None

    async def test_a_higher_term_proves_a_loss_and_is_outranked(self, harness: Harness) -> None:
        term = await harness.elect("a")
        lease = (await remember_more(harness, term=term + 5)).leader
        assert (lease.holder, lease.era.standing) == (None, "lost")
        assert (await harness.campaign("a")).term > term + 5

    async def test_a_higher_incarnation_proves_a_loss_and_is_outranked(self, harness: Harness) -> None:
        await harness.elect("a")
        reply = await remember_more(harness, incarnation=harness.era.incarnation + 3)
        assert reply.leader.era.incarnation > harness.era.incarnation - 1
        assert reply.leader.era.standing == "lost"

    async def test_another_start_of_the_same_number_proves_a_loss_however_late(
        self, harness: Harness
    ) -> None:
        """The store has forgotten that start: what was claimed in it may have the tokens that are given out now."""
        fire = await harness.running()
        era = harness.era
        forgotten = Seen(era.incarnation, server="a start that is forgotten")
        reply = await harness.heartbeat("a", seen=forgotten)
        assert reply.leader.era.standing == "lost"
        assert reply.leader.era.incarnation > era.incarnation
        assert not await harness.settle(fire)

    async def test_a_loss_is_noticed_once(self, harness: Harness) -> None:
        await harness.elect("a")
        old = harness.era.incarnation
        await harness.join("b")
        era = (await remember_more(harness, steps=1_000_000)).leader.era
        assert (await remember_more(harness, "b", incarnation=old, steps=1_000_000)).leader.era == era
        assert (await remember_more(harness)).leader.era == era

    async def test_a_claim_in_another_incarnation_gets_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1), after_crash="rerun")
        await harness.fall_due()
        stale = harness.era
        fresh = (await remember_more(harness, steps=1_000_000)).leader.era
        harness.era = stale
        assert await harness.claims("a") == []
        harness.era = fresh
        assert len(await harness.claims("a")) == 1

    async def test_the_first_claim_settles_the_incarnation_and_outranks_old_tokens(
        self, harness: Harness
    ) -> None:
        old = await harness.running(after_crash="rerun")
        await remember_more(harness, steps=1_000_000)
        new = await harness.claim("a")
        assert (new.key, new.replica) == (old.key, "a")
        assert new.token > old.token
        assert new.token > harness.era.incarnation << 40
        assert (await harness.heartbeat("a")).leader.era.standing == "settled"

    async def test_a_run_is_lost_and_its_token_gone(self, harness: Harness) -> None:
        fire = await harness.running()
        assert (await remember_more(harness, steps=1_000_000)).held == ()
        assert not await harness.settle(fire)
        lost = await harness.fire(fire.key)
        assert (lost.state, lost.reason) == (State.LOST, Reason.DATA_LOSS)

    async def test_what_was_due_is_lost_and_what_comes_runs(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        await remember_more(harness, steps=1_000_000)
        assert await harness.claims("a") == []
        (lost,) = await harness.fires("job", State.LOST)
        assert lost.reason == Reason.DATA_LOSS
        await harness.fall_due()
        assert (await harness.claim("a")).due_at == lost.due_at + timedelta(minutes=1)

    async def test_what_was_not_planned_yet_is_lost_in_one_row(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(seconds=1))
        await harness.advance(10.5)
        await harness.heartbeat("a")
        await remember_more(harness, steps=1_000_000)
        await harness.plan()
        await harness.ask("a")
        assert [row.count for row in await harness.fires("job", State.LOST)] == [10]

    async def test_what_may_run_twice_is_run(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1), after_crash="rerun")
        await harness.fall_due()
        await remember_more(harness, steps=1_000_000)
        assert len(await harness.claims("a")) == 1

    @pytest.mark.parametrize("between", [(), ("load",)], ids=["child", "grandchild"])
    async def test_what_follows_a_repeated_run_is_lost_if_it_may_have_run(
        self, harness: Harness, between: tuple[str, ...]
    ) -> None:
        """A fire by hand that may run twice, and at the end of its chain a job that may not."""
        await harness.join("a")
        chain = ("extract", *between, "report")
        await harness.define("extract", after_crash="rerun")
        for parent, child in pairwise(chain):
            policy = "record" if child == "report" else "rerun"
            await harness.define(child, After((parent,)), after_crash=policy)
        await harness.trigger("extract", "tuesday")
        await harness.elapse(1)
        await remember_more(harness, steps=1_000_000)
        await harness.elapse(1)
        for job in chain[:-1]:
            fire = await harness.claim("a")
            assert fire.key == f"{job}!tuesday"
            await harness.settle(fire)
        assert await harness.claims("a") == []
        last = await harness.fire("report!tuesday")
        assert (last.state, last.reason) == (State.LOST, Reason.DATA_LOSS)

    async def test_what_follows_a_fire_of_later_runs(self, harness: Harness) -> None:
        await harness.join("a")
        await remember_more(harness, steps=1_000_000)
        await harness.elapse(1)
        await harness.define("extract", after_crash="rerun")
        await harness.define("load", After(("extract",)))
        await harness.trigger("extract", "tuesday")
        await harness.settle(await harness.claim("a"))
        assert (await harness.claim("a")).key == "load!tuesday"

    async def test_the_clock_that_was_seen_counts_if_it_is_behind_now(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        ahead = await harness.now() + timedelta(minutes=2, seconds=30)
        seen = Seen(harness.era.incarnation, steps=1_000_000, server=harness.era.server, latest=ahead)
        assert (await harness.heartbeat("a", seen=seen)).leader.era.lost_through == ahead
