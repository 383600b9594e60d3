"""Chains: jobs that follow others, with the due time that those had."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from fencepost.model import FireRecord, Reason, State
from fencepost.model.triggers import at, every
from fencepost.model.triggers.following import After
from fencepost.store.base import GiveBack, RetryLater
from fencepost.testing.conformance.harness import Harness


def twin(fire: FireRecord, job_id: str) -> str:
    """The key of another job's fire in the same chain."""
    return job_id + fire.key[len(fire.job_id) :]


class ChainRules:
    async def extracted(self, harness: Harness, **policies: object) -> FireRecord:
        """`extract` runs, `load` follows it."""
        fire = await harness.running("extract")
        await harness.define("load", After(("extract",)), **policies)
        return fire

    async def test_a_child_gets_its_fire_with_the_settle_of_its_parent(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        assert await harness.fires("load") == []
        await harness.settle(fire)
        child = await harness.claim("a")
        assert (child.key, child.due_at) == (twin(fire, "load"), fire.due_at)

    async def test_it_is_due_at_once(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        assert (await harness.ask("a")).wake_in != 0
        await harness.settle(fire)
        assert (await harness.ask("a")).claims

    async def test_a_settle_that_is_repeated_adds_it_once(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        assert await harness.settle(fire)
        assert await harness.settle(fire)
        child = await harness.claim("a")
        await harness.settle(child)
        assert await harness.settle(fire)
        assert [each.key for each in await harness.fires("load")] == [child.key]

    async def test_a_chain_of_three_has_one_due_time(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        await harness.define("report", After(("load",)))
        await harness.settle(fire)
        await harness.settle(await harness.claim("a"))
        last = await harness.claim("a")
        assert (last.key, last.due_at) == (twin(fire, "report"), fire.due_at)

    async def test_it_does_not_run_when_its_parent_fails(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        await harness.define("report", After(("load",)))
        await harness.settle(fire, State.FAILED)
        assert await harness.claims("a") == []
        child, last = await harness.fire(twin(fire, "load")), await harness.fire(twin(fire, "report"))
        assert (child.state, child.reason, child.refers_to) == (State.SKIPPED, Reason.PARENT, fire.key)
        assert (last.state, last.reason, last.refers_to) == (State.SKIPPED, Reason.PARENT, child.key)

    async def test_on_ended_it_runs_however_its_parent_ends(self, harness: Harness) -> None:
        fire = await harness.running("extract")
        await harness.define("clean", After(("extract",), when="ended"))
        await harness.settle(fire, State.FAILED)
        assert (await harness.claim("a")).key == twin(fire, "clean")

    async def test_on_ended_it_does_not_run_after_a_fire_that_never_ran(self, harness: Harness) -> None:
        fire = await harness.running("extract")
        await harness.define("clean", After(("extract",), when="ended"))
        await harness.fall_due()
        await harness.ask("a")
        (skipped,) = await harness.fires("extract", State.SKIPPED)
        (row,) = await harness.fires("clean")
        assert (row.state, row.reason, row.refers_to) == (State.SKIPPED, Reason.PARENT, skipped.key)
        assert row.due_at == skipped.due_at > fire.due_at

    async def test_a_parent_that_is_lost_is_no_success(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await self.extracted(harness)
        await harness.bury("leader", term, "a")
        assert (await harness.fire(twin(fire, "load"))).reason == Reason.PARENT

    async def test_a_retry_of_the_parent_is_not_its_end(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        await harness.update(RetryLater(fire.key, fire.token, 1))
        assert await harness.fires("load") == []
        await harness.elapse(2)
        again = await harness.claim("a")
        await harness.update(GiveBack(again.key, again.token))
        assert await harness.fires("load") == []

    async def test_of_several_parents_the_last_lets_it_go(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("one", every(minutes=1))
        await harness.define("two", every(minutes=1))
        await harness.define("both", After(("one", "two")))
        await harness.fall_due()
        first, second = await harness.claims("a")
        await harness.settle(first)
        assert await harness.claims("a") == []
        await harness.settle(second)
        assert (await harness.claim("a")).key == twin(first, "both")

    async def test_of_several_parents_one_is_enough_to_skip_it(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("one", every(minutes=1))
        await harness.define("two", every(minutes=1))
        await harness.define("both", After(("one", "two")))
        await harness.fall_due()
        first, second = await harness.claims("a")
        await harness.settle(first, State.FAILED)
        await harness.settle(second)
        assert await harness.claims("a") == []
        (row,) = await harness.fires("both")
        assert (row.reason, row.refers_to) == (Reason.PARENT, first.key)

    async def test_a_manual_fire_has_a_chain_of_its_own(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("extract")
        await harness.define("load", After(("extract",)))
        await harness.trigger("extract", "tuesday")
        fire = await harness.claim("a")
        await harness.settle(fire)
        child = await harness.claim("a")
        assert (child.key, child.by) == ("load!tuesday", f"after {fire.key}")

    async def test_a_child_may_be_declared_before_its_parent(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("load", After(("extract",)))
        assert [record.id for record in await harness.store.jobs()] == ["load"]
        fire = await harness.running("extract")
        await harness.settle(fire)
        assert (await harness.claim("a")).key == twin(fire, "load")

    async def test_children_wait_for_their_turn(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        await harness.settle(fire)
        first = await harness.claim("a")
        await harness.fall_due()
        again = await harness.claim("a")
        await harness.settle(again)
        assert await harness.claims("a") == []
        (waits,) = await harness.fires("load", State.QUEUED)
        await harness.settle(first)
        assert (await harness.claim("a")).key == waits.key == twin(again, "load")

    async def test_a_circle_is_refused(self, harness: Harness) -> None:
        await harness.define("one", every(minutes=1))
        await harness.define("two", After(("one",)))
        await harness.define("three", After(("two",)))
        put = await harness.define("one", After(("three",)))
        assert (put.outcome, put.detail) == ("cycle", "one → two → three → one")
        assert (await harness.job("one")).job.trigger != After(("three",))

    async def test_a_removed_child_is_left_alone(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        await harness.remove("load")
        await harness.settle(fire)
        assert await harness.fires("load") == []

    async def test_what_a_calendar_before_still_owes_is_planned(self, harness: Harness) -> None:
        """Although a fire of its parent, due later, has come first."""
        first = await harness.running("extract")
        owed = first.due_at + timedelta(seconds=20)
        await harness.define("load", at(owed))
        await harness.elapse(70)
        await harness.store.plan_fires([plan for plan in await harness.plans() if plan.job_id == "extract"])
        await harness.settle(first)
        fire = await harness.claim("a")
        await harness.define("load", After(("extract",)))
        await harness.settle(fire)
        await harness.plan()
        assert [each.due_at for each in await harness.fires("load")] == [owed, fire.due_at]

    async def test_a_job_that_no_longer_follows_has_its_own_calendar(self, harness: Harness) -> None:
        fire = await self.extracted(harness)
        await harness.define("load", at(fire.due_at))
        await harness.settle(fire)
        assert [each.key for each in await harness.fires("load", State.QUEUED)] == []

    async def owing(self, harness: Harness, since: float) -> FireRecord:
        """`load` had a fire every ten seconds, is paused, and follows `extract` before any of them was planned.
        `since`: how long before the second fire of `extract`, which runs, its calendar began."""
        first = await harness.running("extract")
        await harness.elapse(60 - since)
        await harness.define("load", every(seconds=10))
        await harness.pause("load")
        await harness.elapse(since + 25)
        await harness.store.plan_fires([plan for plan in await harness.plans() if plan.job_id == "extract"])
        await harness.settle(first)
        fire = await harness.claim("a")
        await harness.define("load", After(("extract",)))
        return fire

    async def test_a_row_of_many_is_parted_where_it_begins_with_a_fire_that_a_parent_has_let_go(
        self, harness: Harness
    ) -> None:
        fire = await self.owing(harness, since=10)
        await harness.settle(fire)
        await harness.plan()
        second = fire.due_at + timedelta(seconds=10)
        assert [(each.due_at, each.count) for each in await harness.fires("load")] == [
            (fire.due_at, 1),
            (second, 2),
        ]

    async def test_a_row_of_many_is_parted_around_a_fire_that_a_parent_has_let_go(
        self, harness: Harness
    ) -> None:
        fire = await self.owing(harness, since=30)
        await harness.settle(fire)
        await harness.plan()
        before, after = (fire.due_at + timedelta(seconds=each) for each in (-20, 10))
        assert [(each.due_at, each.count) for each in await harness.fires("load")] == [
            (before, 2),
            (fire.due_at, 1),
            (after, 2),
        ]

    async def test_what_a_parent_did_not_run_stands_for_nothing_of_a_calendar_before(
        self, harness: Harness
    ) -> None:
        await harness.join("a")
        await harness.define("extract", every(seconds=10))
        await harness.define("load", every(seconds=1))
        await harness.pause("extract")
        await harness.elapse(35)
        await harness.store.plan_fires([plan for plan in await harness.plans() if plan.job_id == "extract"])
        await harness.define("load", After(("extract",)))
        await harness.ask("a")
        await harness.plan()
        await harness.ask("a")
        rows = await harness.fires("load")
        assert sum(row.count for row in rows) == 35
        assert all(row.last_due < after.due_at for row, after in pairwise(rows))

    async def test_what_a_calendar_before_owes_is_planned_also_when_it_no_longer_follows(
        self, harness: Harness
    ) -> None:
        fire = await self.owing(harness, since=30)
        await harness.settle(fire)
        await harness.define("load", every(minutes=7))
        await harness.plan()
        rows, now = await harness.fires("load"), await harness.now()
        assert sum(row.count for row in rows if row.due_at <= now) == 5
