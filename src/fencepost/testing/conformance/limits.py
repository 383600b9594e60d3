"""Limits across jobs: how many run at once or start in a while, who is next, and what becomes of those that wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fencepost.model import FireRecord, Reason, State
from fencepost.model.limits import limit
from fencepost.model.triggers import every
from fencepost.store.base import GiveBack, RetryLater, Settle
from fencepost.testing.conformance.harness import Harness

TWO = (limit("warehouse", 2),)
ONE = (limit("warehouse", 1),)


async def due_at_once(harness: Harness, count: int, **policies: Any) -> None:
    """So many minutely jobs, each with a fire that is due. Of two at the same time the id decides."""
    await harness.join("a")
    policies.setdefault("limits", TWO)
    for number in range(count):
        await harness.define(f"job{number}", every(minutes=1), **policies)
    await harness.fall_due()


def jobs_of(fires: list[FireRecord]) -> list[str]:
    return [fire.job_id for fire in fires]


def _success(fire: FireRecord) -> Settle:
    return Settle(fire.key, fire.token, State.SUCCEEDED)


class LimitRules:
    async def test_no_more_run_at_once_than_the_limit_allows(self, harness: Harness) -> None:
        await due_at_once(harness, 4)
        assert jobs_of(await harness.claims("a")) == ["job0", "job1"]
        reply = await harness.ask("a")
        assert (reply.claims, reply.closed) == ((), ())
        (waits,) = await harness.fires("job2", State.QUEUED)
        assert waits.count == 1
        assert (await harness.job("job2")).held_back is not None

    async def test_a_freed_place_goes_to_the_longest_due(self, harness: Harness) -> None:
        await harness.join("a")
        for id, seconds in (("late", 30), ("busy", 10), ("early", 20)):
            await harness.define(id, every(seconds=seconds), limits=ONE)
        await harness.fall_due(10)
        busy = await harness.claim("a")
        await harness.fall_due(10)
        assert await harness.claims("a") == []
        await harness.fall_due(10)
        assert await harness.claims("a") == []
        await harness.settle(busy)
        early = await harness.claim("a")
        assert early.job_id == "early"
        await harness.settle(early)
        assert (await harness.claim("a")).job_id == "late"

    async def test_those_who_wait_are_due_when_a_place_is_free(self, harness: Harness) -> None:
        await due_at_once(harness, 3)
        first, _ = await harness.claims("a")
        reply = await harness.ask("a")
        assert reply.wake_in is not None
        assert reply.wake_in > 1
        assert (await harness.store.update_claims("a", [_success(first)])).wake_in == 0
        assert (await harness.claim("a")).job_id == "job2"

    async def test_a_place_is_free_when_its_replica_is_dead(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        await due_at_once(harness, 2, limits=ONE)
        await harness.join("b")
        assert jobs_of(await harness.claims("b")) == ["job0"]
        assert await harness.claims("a") == []
        await harness.bury("leader", term, "b")
        assert (await harness.claim("a")).job_id == "job1"

    async def test_a_run_in_retry_backoff_has_no_place(self, harness: Harness) -> None:
        await due_at_once(harness, 2, limits=ONE)
        fire = await harness.claim("a")
        await harness.ask("a")
        await harness.update(RetryLater(fire.key, fire.token, 1))
        other = await harness.claim("a")
        assert other.job_id == "job1"
        await harness.elapse(2)
        assert await harness.claims("a") == []
        await harness.settle(other)
        assert (await harness.claim("a")).key == fire.key

    async def test_a_fire_that_is_given_back_waits_in_line_again(self, harness: Harness) -> None:
        await due_at_once(harness, 2, limits=ONE)
        fire = await harness.claim("a")
        await harness.update(GiveBack(fire.key, fire.token))
        assert len(await harness.claims("a")) == 1

    async def test_what_waits_for_a_limit_is_not_late(self, harness: Harness) -> None:
        await due_at_once(harness, 2, limits=ONE, misfire="skip")
        fire = await harness.claim("a")
        await harness.ask("a")
        (waits,) = await harness.fires("job1", State.QUEUED)
        await harness.elapse(50)
        await harness.settle(fire)
        assert (await harness.claim("a")).key == waits.key

    async def test_what_falls_due_meanwhile_overlaps_what_waits(self, harness: Harness) -> None:
        await due_at_once(harness, 2, limits=ONE)
        await harness.claim("a")
        await harness.ask("a")
        (waits,) = await harness.fires("job1", State.QUEUED)
        await harness.fall_due()
        await harness.ask("a")
        (row,) = await harness.fires("job1", State.SKIPPED)
        assert (row.reason, row.refers_to) == (Reason.OVERLAP, waits.key)

    async def test_a_full_limit_skips_where_that_was_asked_for(self, harness: Harness) -> None:
        await due_at_once(harness, 2, limits=(limit("warehouse", 1, full="skip"),))
        reply = await harness.ask("a")
        (fire,) = [claim.fire for claim in reply.claims]
        (row,) = reply.closed
        assert (row.job_id, row.state, row.reason) == ("job1", State.SKIPPED, Reason.LIMIT)
        assert row.refers_to == fire.key
        assert (await harness.job("job1")).held_back is None

    async def test_nothing_is_skipped_on_account_of_a_run_that_may_be_dead(self, harness: Harness) -> None:
        await harness.join("b")
        await harness.define("one", every(minutes=1), limits=(limit("warehouse", 1, full="skip"),))
        await harness.fall_due()
        await harness.claim("b")
        await harness.define("two", every(seconds=10), limits=(limit("warehouse", 1, full="skip"),))
        await harness.plan()
        await harness.advance(31)
        await harness.join("a")
        reply = await harness.ask("a")
        assert (reply.claims, reply.closed) == ((), ())
        assert reply.wake_in is not None
        assert reply.wake_in <= 1

    async def test_a_manual_fire_waits_as_well(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("one", limits=ONE)
        await harness.define("two", limits=(limit("warehouse", 1, full="skip"),))
        await harness.trigger("one")
        fire = await harness.claim("a")
        await harness.trigger("two")
        assert await harness.claims("a") == []
        await harness.settle(fire)
        assert (await harness.claim("a")).job_id == "two"

    async def test_the_smallest_size_holds(self, harness: Harness) -> None:
        await due_at_once(harness, 3, limits=(limit("warehouse", 3),))
        await harness.define("strict", limits=ONE)
        assert len(await harness.claims("a")) == 1
        await harness.remove("strict")
        assert len(await harness.claims("a")) == 2

    async def test_all_limits_of_a_job_must_have_room(self, harness: Harness) -> None:
        await harness.join("a")
        both = (limit("warehouse", 2), limit("mail", 1))
        await harness.define("one", every(minutes=1), limits=both)
        await harness.define("two", every(minutes=1), limits=both)
        await harness.define("three", every(minutes=1), limits=TWO)
        await harness.fall_due()
        assert jobs_of(await harness.claims("a")) == ["one", "three"]

    async def test_a_run_counts_when_its_job_is_given_a_limit(self, harness: Harness) -> None:
        fire = await harness.running("one")
        await harness.define("one", every(minutes=1), limits=ONE)
        await harness.define("two", limits=ONE)
        await harness.trigger("two")
        assert await harness.claims("a") == []
        await harness.define("one", every(minutes=1))
        assert (await harness.claim("a")).job_id == "two"
        assert await harness.settle(fire)

    async def test_a_limit_is_no_job(self, harness: Harness) -> None:
        await due_at_once(harness, 1)
        assert [record.id for record in await harness.store.jobs()] == ["job0"]

    async def test_jobs_without_the_limit_are_not_held(self, harness: Harness) -> None:
        await due_at_once(harness, 2, limits=ONE)
        await harness.define("free", every(minutes=1))
        await harness.fall_due()
        assert "free" in jobs_of(await harness.claims("a"))


class RateRules:
    RATE = (limit("mail", "2/10s"),)

    async def test_no_more_start_in_a_while_than_the_rate_allows(self, harness: Harness) -> None:
        await due_at_once(harness, 5, limits=self.RATE)
        started = []
        for _ in range(4):
            claimed = await harness.claims("a")
            started += [(await harness.now(), fire.job_id) for fire in claimed]
            for fire in claimed:
                await harness.settle(fire)
            await harness.elapse(5)
        assert [job_id for _, job_id in started] == ["job0", "job1", "job2", "job3"]
        assert started[2][0] - started[0][0] >= timedelta(seconds=10)

    async def test_the_reply_says_when_the_next_may_start(self, harness: Harness) -> None:
        await due_at_once(harness, 4, limits=self.RATE)
        assert len(await harness.claims("a")) == 2
        reply = await harness.ask("a")
        assert reply.wake_in is not None
        assert 9 < reply.wake_in <= 10
        await harness.elapse(reply.wake_in)
        assert jobs_of(await harness.claims("a")) == ["job2", "job3"]

    async def test_a_full_rate_skips_where_that_was_asked_for(self, harness: Harness) -> None:
        await due_at_once(harness, 3, limits=(limit("mail", "2/10s", full="skip"),))
        (row,) = (await harness.ask("a")).closed
        assert (row.job_id, row.reason) == ("job2", Reason.LIMIT)

    async def test_a_start_counts_again_when_the_clock_is_set_back(self, harness: Harness) -> None:
        """Although it was long ago in between."""
        if harness.step_back is None:
            return
        await due_at_once(harness, 0)
        await harness.define("mail", overlap="allow(9)", limits=self.RATE)
        for name, seconds in (("first", 1), ("second", 14), ("third", 0)):
            await harness.trigger("mail", name)
            assert (await harness.claim("a")).key == f"mail!{name}"
            await harness.elapse(seconds)
        await harness.step_back(8)
        await harness.trigger("mail", "fourth")
        assert await harness.claims("a") == []
