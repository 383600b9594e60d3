"""When a store may have lost what it acknowledged: what replicas can prove, and what follows."""

from __future__ import annotations

from datetime import timedelta

from fencepost.model import Reason, State
from fencepost.model.triggers import every
from fencepost.store.base import Pulse, Seen
from fencepost.testing.conformance.harness import Harness


async def remember_more(harness: Harness, name: str = "a", **seen: int) -> Pulse:
    """`name` has received replies about more than the store now has."""
    era = harness.era
    known = {"incarnation": era.incarnation, "server": era.server, **seen}
    return await harness.beat(name, seen=Seen(**known))  # type: ignore[arg-type]


class DataLossRules:
    async def test_what_was_told_is_no_proof_if_the_store_knows_it(self, harness: Harness) -> None:
        await harness.elect("a")
        pulse = await harness.beat("a")
        era, seen = pulse.leader.era, Seen(pulse.leader.era.incarnation, pulse.leader.term, pulse.steps)
        assert (await harness.beat("a", seen=seen)).leader.era == era

    async def test_every_beat_and_claim_is_counted(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        first = (await harness.beat("a")).steps
        assert first > 0
        assert (await harness.ask("a")).steps == first + 1
        assert (await harness.beat("a")).steps == first + 2

    async def test_a_settlement_is_counted_where_it_may_be_lost(self, harness: Harness) -> None:
        fire = await harness.running()
        first = (await harness.beat("a")).steps
        await harness.settle(fire)
        counted = 1 if harness.store.may_lose_writes else 0
        assert (await harness.beat("a")).steps == first + counted + 1

    async def test_more_steps_than_the_store_took_prove_a_loss(self, harness: Harness) -> None:
        await harness.elect("a")
        before = harness.era
        pulse = await remember_more(harness, steps=1_000_000)
        assert pulse.leader.era.standing == "lost"
        assert pulse.leader.era.incarnation > before.incarnation
        assert pulse.leader.era.lost_through is not None

    async def test_a_higher_term_proves_a_loss_and_is_outranked(self, harness: Harness) -> None:
        term = await harness.elect("a")
        lease = (await remember_more(harness, term=term + 5)).leader
        assert (lease.holder, lease.era.standing) == (None, "lost")
        assert (await harness.campaign("a")).term > term + 5

    async def test_a_higher_incarnation_proves_a_loss_and_is_outranked(self, harness: Harness) -> None:
        await harness.elect("a")
        pulse = await remember_more(harness, incarnation=harness.era.incarnation + 3)
        assert pulse.leader.era.incarnation > harness.era.incarnation - 1
        assert pulse.leader.era.standing == "lost"

    async def test_another_start_of_the_same_number_proves_a_loss_however_late(
        self, harness: Harness
    ) -> None:
        """The store has forgotten that start: what was claimed in it may have the tokens that are given out now."""
        fire = await harness.running()
        era = harness.era
        forgotten = Seen(era.incarnation, server="a start that is forgotten")
        pulse = await harness.beat("a", seen=forgotten)
        assert pulse.leader.era.standing == "lost"
        assert pulse.leader.era.incarnation > era.incarnation
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
        assert (await harness.beat("a")).leader.era.standing == "settled"

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
        await harness.beat("a")
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

    async def test_the_clock_that_was_seen_counts_if_it_is_behind_now(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due()
        ahead = await harness.now() + timedelta(minutes=2, seconds=30)
        seen = Seen(harness.era.incarnation, steps=1_000_000, server=harness.era.server, latest=ahead)
        assert (await harness.beat("a", seen=seen)).leader.era.lost_through == ahead
