"""Moments of an `at` that have passed when the job is declared: each has a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fencepost.insight.audit import audit
from fencepost.model import FireRecord, Reason, State, fire_key
from fencepost.model.triggers import at, every
from fencepost.store.base import FireQuery
from fencepost.testing.conformance.harness import Harness, due_times

MILLISECOND = timedelta(milliseconds=1)
LATE = timedelta(seconds=90)
"""Later than `misfire_after`, which is 30 s."""
PAST = (State.MISSED, Reason.PAST)


async def settled(harness: Harness) -> list[FireRecord]:
    """Plan, claim and settle all there is; what ran."""
    await harness.plan()
    fires = await harness.claims("a")
    for fire in fires:
        assert await harness.settle(fire)
    await harness.plan()
    return fires


async def rows(harness: Harness) -> list[tuple[datetime, State, str | None]]:
    return [(fire.due_at, fire.state, fire.reason) for fire in await harness.fires("job")]


async def accounted(harness: Harness, fires: int) -> None:
    """Each was due, and is in the ledger once."""
    await harness.advance(60)
    report = await audit(
        harness.store, since=datetime(1980, 1, 1, tzinfo=UTC), retention=timedelta(days=30_000)
    )
    assert report.clean, report.findings
    assert report.expected == fires


class PastRules:
    async def test_a_moment_just_past_is_run(self, harness: Harness) -> None:
        await harness.join("a")
        due = await harness.now() - MILLISECOND
        await harness.define("job", at(due))
        (fire,) = await settled(harness)
        assert fire.due_at == due
        assert await rows(harness) == [(due, State.SUCCEEDED, None)]
        await accounted(harness, 1)

    async def test_a_moment_long_past_is_missed_with_a_reason(self, harness: Harness) -> None:
        await harness.join("a")
        now = await harness.now()
        times = [
            now - timedelta(days=366),
            now - LATE,
            now - timedelta(seconds=1),
            now + timedelta(seconds=20),
        ]
        await harness.define("job", at(*times))
        assert due_times(await settled(harness)) == [times[2]]
        await harness.advance(21)
        assert due_times(await settled(harness)) == [times[3]]
        missed, *ran = await harness.fires("job")
        assert (missed.state, missed.reason, missed.count) == (*PAST, 2)
        assert (missed.due_at, missed.last_due) == (times[0], times[1])
        assert [fire.state for fire in ran] == [State.SUCCEEDED] * 2
        await accounted(harness, 4)

    async def test_what_was_past_is_missed_under_every_policy(self, harness: Harness) -> None:
        await harness.join("a")
        due = await harness.now() - LATE
        for misfire in ("latest", "all", "skip"):
            await harness.define(misfire, at(due), misfire=misfire)
        assert await settled(harness) == []
        for misfire in ("latest", "all", "skip"):
            (fire,) = await harness.fires(misfire)
            assert (fire.due_at, fire.state, fire.reason) == (due, *PAST)

    async def test_a_thousand_moments_past_are_one_row(self, harness: Harness) -> None:
        await harness.join("a")
        now = await harness.now()
        await harness.define("job", at(*(now - LATE - timedelta(minutes=n) for n in range(1000))))
        assert await settled(harness) == []
        (fire,) = await harness.fires("job")
        assert (fire.state, fire.reason, fire.count) == (*PAST, 1000)
        await accounted(harness, 1000)

    async def test_a_moment_before_1970_is_missed(self, harness: Harness) -> None:
        await harness.join("a")
        due = datetime(1955, 11, 5, 6, tzinfo=UTC)
        await harness.define("job", at(due))
        assert await settled(harness) == []
        assert await rows(harness) == [(due, *PAST)]

    async def test_declared_again_nothing_is_run_again(self, harness: Harness) -> None:
        await harness.join("a")
        now = await harness.now()
        times = [now - LATE, now - MILLISECOND]
        for timeout in (None, None, timedelta(minutes=5)):
            await harness.define("job", at(*times), timeout=timeout)
            await settled(harness)
            await harness.advance(1)
        assert await rows(harness) == [(times[0], *PAST), (times[1], State.SUCCEEDED, None)]
        await accounted(harness, 2)

    async def test_removed_and_added_again_nothing_is_run_again(self, harness: Harness) -> None:
        await harness.join("a")
        due = await harness.now() - MILLISECOND
        for pruned in (False, True):
            await harness.define("job", at(due))
            await settled(harness)
            await harness.remove("job")
            await harness.advance(5)
            if pruned:
                await harness.store.prune(0)
        await harness.define("job", at(due))
        assert await settled(harness) == []
        assert await harness.fires("job") == []

    async def test_removed_before_its_time_and_added_after_it_is_run(self, harness: Harness) -> None:
        await harness.join("a")
        due = await harness.now() + timedelta(seconds=20)
        await harness.define("job", at(due))
        await harness.plan()
        await harness.remove("job")
        await harness.advance(25)
        await harness.define("job", at(due))
        assert due_times(await settled(harness)) == [due]
        await accounted(harness, 1)

    async def test_a_reschedule_to_now_is_run(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", at(await harness.now() + timedelta(days=1)))
        await harness.plan()
        await harness.advance(5)
        due = await harness.now() - MILLISECOND
        await harness.define("job", at(due))
        assert due_times(await settled(harness)) == [due]
        await accounted(harness, 1)

    async def test_a_recurring_job_rescheduled_to_now_is_run_once_more(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        await harness.advance(5)
        due = await harness.now() - MILLISECOND
        await harness.define("job", at(due))
        assert due_times(await settled(harness)) == [due]
        assert due_times(await harness.fires("job")) == [fire.due_at, due]
        await accounted(harness, 2)

    async def test_what_the_old_calendar_owes_comes_first(self, harness: Harness) -> None:
        await harness.join("a")
        anchor = await harness.now()
        await harness.define("job", every(seconds=10, anchor=anchor), overlap="allow(9)")
        await harness.plan(horizon=0)
        await harness.advance(25)
        due = await harness.now() - MILLISECOND
        await harness.define("job", at(due), overlap="allow(9)")
        await settled(harness)
        times = [anchor + timedelta(seconds=10), anchor + timedelta(seconds=20), due]
        assert due_times(await harness.fires("job")) == times
        assert {fire.state for fire in await harness.fires("job")} == {State.SUCCEEDED}
        await accounted(harness, 3)

    async def test_a_moment_before_what_was_decided_is_missed(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        await harness.advance(5)
        due = fire.due_at - timedelta(seconds=2)
        await harness.define("job", at(due, fire.due_at))
        assert await settled(harness) == []
        assert await rows(harness) == [(due, *PAST), (fire.due_at, State.SUCCEEDED, None)]
        await accounted(harness, 2)

    async def test_a_moment_added_to_the_list_leaves_the_others_as_they_were(self, harness: Harness) -> None:
        await harness.join("a")
        now = await harness.now()
        first = [now - LATE, now - timedelta(seconds=1)]
        await harness.define("job", at(*first))
        await settled(harness)
        await harness.advance(5)
        added = [now - timedelta(seconds=50), now + timedelta(seconds=4)]
        await harness.define("job", at(*first, *added))
        assert due_times(await settled(harness)) == [added[1]]
        assert await rows(harness) == [
            (first[0], *PAST),
            (added[0], *PAST),
            (first[1], State.SUCCEEDED, None),
            (added[1], State.SUCCEEDED, None),
        ]
        await accounted(harness, 4)

    async def test_a_paused_job_skips_what_it_is_given_for_the_time_of_the_pause(
        self, harness: Harness
    ) -> None:
        await harness.join("a")
        await harness.define("job", at(await harness.now() + timedelta(days=1)))
        await harness.pause("job")
        await harness.advance(5)
        due = await harness.now() - MILLISECOND
        await harness.define("job", at(due))
        assert await settled(harness) == []
        await harness.resume("job")
        assert await settled(harness) == []
        assert await rows(harness) == [(due, State.SKIPPED, Reason.PAUSED)]

    async def test_what_was_missed_is_not_planned_again(self, harness: Harness) -> None:
        """A fire by hand was due later than the moment, so that was missed at once; when it is listed again nothing
        later is due or decided."""
        await harness.join("a")
        await harness.define("job", every(days=1))
        await harness.trigger("job")
        due = await harness.now() - MILLISECOND
        await harness.define("job", at(due))
        await settled(harness)
        await harness.define("job", at(due, await harness.now() + timedelta(days=1)))
        assert await settled(harness) == []
        assert (await harness.fire(fire_key("job", due))).reason == Reason.PAST

    async def test_a_replaced_at_does_not_run_what_was_missed(self, harness: Harness) -> None:
        await harness.join("a")
        now = await harness.now()
        await harness.define("job", at(now - LATE))
        await harness.plan()
        await harness.define("job", at(now + timedelta(days=1)))
        assert await settled(harness) == []
        (fire,) = await harness.store.find_fires(FireQuery(job_id="job", until=now))
        assert (fire.state, fire.reason) == PAST
