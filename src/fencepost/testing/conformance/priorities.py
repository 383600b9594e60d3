"""Priorities: which due fire a free slot takes."""

from __future__ import annotations

from dataclasses import replace

from fencepost.model import FireRecord
from fencepost.model.limits import limit
from fencepost.model.triggers import every
from fencepost.testing.conformance.harness import Harness, job_of

LOW, USUAL, HIGH = "a_low", "b_usual", "c_high"
"""By their ids, which decide of two that are due at once, they would come in the other order."""


async def three_due(harness: Harness, **policies: object) -> None:
    await harness.join("a")
    for id, priority in ((LOW, -5), (USUAL, 0), (HIGH, 7)):
        await harness.define(id, every(minutes=1), priority=priority, **policies)
    await harness.fall_due()


def jobs_of(fires: list[FireRecord]) -> list[str]:
    return [fire.job_id for fire in fires]


class PriorityRules:
    async def test_of_what_is_due_the_highest_priority_is_claimed_first(self, harness: Harness) -> None:
        await three_due(harness)
        assert jobs_of(await harness.claims("a", room=1)) == [HIGH]
        assert jobs_of(await harness.claims("a", room=1)) == [USUAL]
        assert jobs_of(await harness.claims("a", room=1)) == [LOW]

    async def test_one_claim_takes_them_in_this_order(self, harness: Harness) -> None:
        await three_due(harness)
        assert jobs_of(await harness.claims("a")) == [HIGH, USUAL, LOW]

    async def test_also_where_a_fire_needs_a_decision(self, harness: Harness) -> None:
        await three_due(harness, overlap="queue")
        for id in (LOW, USUAL, HIGH):
            await harness.trigger(id)
        claimed = jobs_of(await harness.claims("a", room=2))
        assert claimed == [HIGH, USUAL]

    async def test_the_longest_due_is_first_among_equals(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("a_minutely", every(minutes=1), priority=3)
        await harness.define("b_sooner", every(seconds=40), priority=3)
        await harness.fall_due()
        assert jobs_of(await harness.claims("a", room=1)) == ["b_sooner"]

    async def test_what_lies_ahead_keeps_nothing_waiting(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define(HIGH, every(minutes=10), priority=100)
        await harness.define(LOW, every(minutes=1), priority=-100)
        await harness.fall_due()
        assert jobs_of(await harness.claims("a", room=1)) == [LOW]

    async def test_the_next_wake_up_is_that_of_the_next_due_fire(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define(HIGH, every(minutes=10), priority=100)
        await harness.define(LOW, every(minutes=1), priority=-100)
        await harness.plan()
        reply = await harness.ask("a")
        assert reply.wake_in is not None
        assert reply.wake_in <= 60

    async def test_a_changed_priority_holds_for_what_is_due_already(self, harness: Harness) -> None:
        await three_due(harness)
        low = job_of(LOW, every(minutes=1), priority=-5)
        await harness.put(replace(low, priority=8))
        assert jobs_of(await harness.claims("a", room=1)) == [LOW]
        await harness.put(job_of(HIGH, every(minutes=1)))
        assert jobs_of(await harness.claims("a", room=1)) == [USUAL]
        assert jobs_of(await harness.claims("a", room=1)) == [HIGH]

    async def test_many_of_a_high_priority_leave_no_slot_to_others(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define(LOW, every(seconds=30))
        for number in range(30):
            await harness.define(f"high{number:02}", every(minutes=1), priority=1)
        await harness.fall_due()
        first = await harness.claims("a", room=25)
        assert jobs_of(first) == [f"high{number:02}" for number in range(25)]
        assert jobs_of(await harness.claims("a", room=6)) == [
            *(f"high{number}" for number in range(25, 30)),
            LOW,
        ]

    async def test_leader_only_jobs_keep_their_turn(self, harness: Harness) -> None:
        term = await harness.elect("a")
        await harness.define(USUAL, every(minutes=1))
        await harness.define(HIGH, every(minutes=1), priority=1, execute_on="leader")
        await harness.fall_due()
        await harness.join("b")
        assert jobs_of(await harness.claims("b", room=1)) == [USUAL]
        assert jobs_of(await harness.claims("a", term=term)) == [HIGH]

    async def test_the_place_of_a_limit_goes_to_the_highest_priority(self, harness: Harness) -> None:
        """However many of a lower one have waited longer."""
        await harness.join("a")
        one = (limit("warehouse", 1),)
        await harness.define("busy", every(seconds=30), limits=one)
        for number in range(8):
            await harness.define(f"low{number}", every(seconds=40), limits=one, priority=-1)
        await harness.define("high", every(minutes=1), limits=one, priority=1)
        await harness.fall_due(30)
        busy = await harness.claim("a")
        await harness.fall_due(10)
        assert await harness.claims("a") == []
        await harness.fall_due(20)
        assert await harness.claims("a") == []
        await harness.settle(busy)
        assert jobs_of(await harness.claims("a")) == ["high"]
