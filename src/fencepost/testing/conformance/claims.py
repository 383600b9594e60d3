"""What becomes of a due fire: claims, pauses, misfires, overlap, and rows that stand for many."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from fencepost.model import (
    FireRecord,
    Reason,
    State,
    fire_key,
)
from fencepost.model.triggers import at, every
from fencepost.store.base import (
    ChangeJob,
    Claim,
    Claimed,
    FireQuery,
    Plan,
    Planned,
    RetryLater,
    Settle,
    Upcoming,
)
from fencepost.testing.conformance.harness import Harness, job_of, steps


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
        if not harness.store.remembers_empty_claims:
            pytest.skip("no message can be delayed on its way to this store")
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.plan()
        assert (await harness.ask("a", number=1)).claims == ()
        await harness.elapse(60)
        assert (await harness.ask("a", number=1)).claims == ()
        assert len((await harness.ask("a", number=2)).claims) == 1

    async def test_a_lower_number_gets_nothing(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("first", every(minutes=1))
        await harness.fall_due()
        assert len((await harness.ask("a", number=5)).claims) == 1
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
        await harness.heartbeat("a", draining=True)
        assert await harness.claims("a") == []
        await harness.heartbeat("a")
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

    async def test_the_answer_lists_what_is_ahead(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("first", every(minutes=1))
        await harness.elapse(5)
        await harness.define("second", every(minutes=1))
        await harness.plan()
        first, second = [(await harness.fires(id))[0].due_at for id in ("first", "second")]
        reply = await harness.ask("a", ahead=5)
        assert reply.ahead == (Upcoming(first), Upcoming(second))
        assert reply.wake_in == pytest.approx((first - await harness.now()).total_seconds(), abs=2)
        assert (await harness.ask("a", ahead=1)).ahead == (Upcoming(first),)
        assert (await harness.ask("a")).ahead == ()

    async def test_what_was_claimed_is_listed_with_its_next_fire(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        await harness.join("b")
        following = fire.due_at + timedelta(minutes=1)
        assert (await harness.ask("a", ahead=5)).ahead == (Upcoming(following),)
        await harness.elapse(60)
        await harness.plan()
        reply = await harness.ask("b", ahead=5)
        assert [claim.fire.due_at for claim in reply.claims] == [following]
        assert reply.ahead == (Upcoming(following + timedelta(minutes=1)),)

    async def test_nothing_is_listed_while_something_is_due(self, harness: Harness) -> None:
        await harness.join("a")
        for n in range(3):
            await harness.define(f"job{n}", every(minutes=1))
        await harness.fall_due()
        assert (await harness.ask("a", room=2, ahead=5)).ahead == ()

    async def test_what_only_the_leader_may_run_is_listed_for_the_leader(self, harness: Harness) -> None:
        term = await harness.elect("a")
        await harness.join("b")
        await harness.define("job", every(minutes=1), execute_on="leader")
        await harness.plan()
        (fire,) = (await harness.fires("job"))[:1]
        assert (await harness.ask("a", term=term, ahead=5)).ahead == (
            Upcoming(fire.due_at, leader_only=True),
        )
        assert (await harness.ask("b", ahead=5)).ahead == ()

    async def test_only_what_the_replica_knows_is_listed(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.join("b", "other")
        await harness.define("job", every(minutes=1))
        await harness.define("other", every(seconds=50), target="other")
        await harness.plan()
        (fire,) = (await harness.fires("job"))[:1]
        assert (await harness.ask("a", ahead=5)).ahead == (Upcoming(fire.due_at),)

    async def test_the_answer_to_a_settle_names_what_is_next(self, harness: Harness) -> None:
        fire = await harness.running()
        updated = await harness.store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
        assert updated.next_at == fire.due_at + timedelta(minutes=1)

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

    async def test_what_fell_due_before_the_pause_waits_for_its_end(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.fall_due(65)
        await harness.pause("job")
        reply = await harness.ask("a")
        assert (reply.claims, reply.closed) == ((), ())
        await harness.resume("job")
        assert len(await harness.claims("a")) == 1

    async def test_what_is_queued_waits_for_its_end_too(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        await harness.pause("job", until=await harness.now() + timedelta(seconds=40))
        await harness.settle(fire)
        reply = await harness.ask("a")
        assert reply.claims == ()
        assert reply.wake_in == pytest.approx(40, abs=2)
        await harness.elapse(41)
        assert (await harness.claim("a")).due_at > fire.due_at

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

    @pytest.mark.parametrize(("asked", "ends"), [(70, 90), (70, 65)])
    async def test_what_falls_due_alone_in_a_pause_with_an_end_is_skipped(
        self, harness: Harness, asked: float, ends: float
    ) -> None:
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        await harness.plan(90)
        await harness.pause("job", until=await harness.now() + timedelta(seconds=ends))
        await harness.elapse(asked)
        reply = await harness.ask("a")
        assert reply.claims == ()
        assert [(row.reason, row.count) for row in reply.closed] == [(Reason.PAUSED, 1)]

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

    async def test_a_pause_of_a_paused_job_keeps_the_first_reason_and_end(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        until = await harness.now() + timedelta(hours=1)
        change = ChangeJob("job", "pause", note="deploy", by="ann", until=until)
        first = await harness.store.change_job(change)
        await harness.advance(5)
        again = await harness.store.change_job(ChangeJob("job", "pause", by="bob"))
        assert again is not None
        assert again == first == await harness.job("job")
        assert [(gap.note, gap.until, gap.by) for gap in again.pauses] == [("deploy", until, "ann")]
        assert [event.kind for event in await harness.store.history("job")] == ["defined", "paused"]

    async def test_a_pause_of_a_paused_job_changes_what_it_names(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        since = await harness.now()
        for note, hours, anew in (
            ("deploy", None, False),
            ("", 2, False),
            ("moving", None, False),
            ("", None, True),
        ):
            until = since + timedelta(hours=hours) if hours else None
            await harness.store.change_job(ChangeJob("job", "pause", note, "ann", until, anew))
            await harness.advance(5)
        (gap,) = (await harness.job("job")).pauses
        assert (gap.note, gap.until) == ("", None)
        assert since <= gap.since < since + timedelta(seconds=5)
        history = await harness.store.history("job")
        assert [event.kind for event in history] == ["defined"] + 4 * ["paused"]
        end = since + timedelta(hours=2)
        expected = [("deploy", None), ("deploy", end), ("moving", end), ("", None)]
        assert [(event.note, event.until) for event in history[1:]] == expected

    async def test_a_pause_that_is_over_is_followed_by_another(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        until = await harness.now() + timedelta(seconds=10)
        await harness.store.change_job(ChangeJob("job", "pause", "deploy", until=until))
        await harness.advance(20)
        await harness.pause("job")
        record = await harness.job("job")
        assert [(gap.note, gap.until) for gap in record.pauses] == [("deploy", until), ("", None)]

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
        """A downtime: no replica planned or claimed for so long."""
        await harness.advance(timedelta(**span).total_seconds())
        await harness.heartbeat("a")
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

    async def test_a_backlog_that_is_planned_in_part_is_not_due(self, harness: Harness) -> None:
        """It waits for the planner, so that replicas do not try to claim it again and again meanwhile."""
        await harness.join("a")
        await harness.define("job", every(minutes=1))
        head = (await harness.job("job")).segments[0]
        first = head.trigger.next_after(head.cursor)
        assert first is not None
        due = [first + timedelta(minutes=n) for n in range(4)]
        await harness.elapse(600)
        await harness.heartbeat("a")
        rows = tuple(Planned(moment, moment) for moment in due[:3])
        plan = Plan("job", head.version, head.cursor, head.until, rows, due[3])
        assert await harness.store.plan_fires([plan]) == (True,)
        assert (await harness.store.update_claims("a", [])).wake_in is None
        reply = await harness.ask("a")
        assert (reply.claims, reply.closed, reply.wake_in) == ((), (), None)

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

    async def test_replace_asks_the_run_to_end_and_starts_when_it_has(self, harness: Harness) -> None:
        fire = await harness.running(overlap="replace")
        assert (await self.next_due(harness)).claims == ()
        (newer,) = await harness.fires("job", State.QUEUED)
        (held,) = (await harness.heartbeat("a")).held
        assert (held.key, held.cancel_requested) == (fire.key, True)
        assert await harness.update(Settle(fire.key, fire.token, State.CANCELLED, Reason.REQUESTED))
        ended = await harness.fire(fire.key)
        assert (ended.state, ended.reason, ended.refers_to) == (State.CANCELLED, Reason.REPLACED, newer.key)
        assert (await harness.claim("a")).key == newer.key

    async def test_replace_forgets_the_newer_fire_if_the_run_succeeds_after_all(
        self, harness: Harness
    ) -> None:
        fire = await harness.running(overlap="replace")
        await self.next_due(harness)
        assert await harness.settle(fire)
        ended = await harness.fire(fire.key)
        assert (ended.state, ended.reason, ended.refers_to) == (State.SUCCEEDED, None, None)

    async def test_replace_keeps_only_the_newest_of_those_that_wait(self, harness: Harness) -> None:
        await harness.running(overlap="replace")
        await self.next_due(harness)
        (first,) = await harness.fires("job", State.QUEUED)
        await self.next_due(harness)
        (second,) = await harness.fires("job", State.QUEUED)
        skipped = await harness.fire(first.key)
        assert (skipped.state, skipped.reason) == (State.SKIPPED, Reason.REPLACED)
        assert skipped.refers_to == second.key > first.key

    async def test_replace_starts_nothing_older_while_newer_fires_wait_for_the_planner(
        self, harness: Harness
    ) -> None:
        fire = await harness.running(overlap="replace")
        await self.next_due(harness)
        (queued,) = await harness.fires("job", State.QUEUED)
        await harness.elapse(600)
        assert len(await harness.fires("job", State.PENDING)) >= 1
        await harness.settle(fire)
        asked = await harness.ask("a")
        assert (asked.claims, asked.closed) == ((), ())
        assert asked.wake_in != 0
        await harness.plan()
        newest = await harness.claim("a")
        assert newest.due_at > queued.due_at
        replaced = await harness.fire(queued.key)
        assert (replaced.state, replaced.refers_to) == (State.SKIPPED, newest.key)

    async def test_replace_does_not_wait_for_a_retry(self, harness: Harness) -> None:
        fire = await harness.running(overlap="replace")
        await harness.update(RetryLater(fire.key, fire.token, 1000))
        (newer,) = (await self.next_due(harness)).claims
        ended = await harness.fire(fire.key)
        assert (ended.state, ended.reason) == (State.CANCELLED, Reason.REPLACED)
        assert ended.refers_to == newer.fire.key

    async def test_replace_waits_until_a_silent_replica_is_declared_dead(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(name="b", overlap="replace", after_crash="rerun")
        await harness.plan()
        await harness.advance(61)
        await harness.join("a")
        assert (await harness.ask("a")).claims == ()
        await harness.bury("leader", term, "b")
        assert (await harness.fire(fire.key)).state is State.LOST
        assert (await harness.claim("a")).due_at > fire.due_at

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
        await harness.heartbeat("b")
        await harness.advance(1)
        assert [row.refers_to for row in (await harness.ask("a")).closed] == [fire.key]

    async def test_jobs_do_not_overlap_each_other(self, harness: Harness) -> None:
        await harness.running("one")
        await harness.define("two", every(minutes=1))
        reply = await self.next_due(harness)
        assert [claim.fire.job_id for claim in reply.claims] == ["two"]


class RowRules:
    """Neighbouring fires that never started, for the same reason, share one row."""

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
