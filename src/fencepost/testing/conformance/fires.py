"""How runs are settled, how fires are added and cancelled, and what the ledger records."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost.model import (
    Reason,
    State,
)
from fencepost.model.triggers import at, every, iso
from fencepost.store.base import (
    Added,
    ChangeJob,
    FireQuery,
    GiveBack,
    Report,
    RetryLater,
    Settle,
)
from fencepost.testing.conformance.harness import Harness, due_times


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

    async def test_what_a_run_returned_is_kept(self, harness: Harness) -> None:
        values = [{"rows": [1, None, "ä\n"]}, 0, False, "", [], 1.5, None]
        await harness.join("a")
        for number in range(len(values)):
            await harness.define(f"job{number}", every(minutes=1))
        await harness.fall_due()
        fires = sorted(await harness.claims("a"), key=lambda fire: fire.job_id)
        settles = [
            Settle(fire.key, fire.token, State.SUCCEEDED, result=value)
            for fire, value in zip(fires, values, strict=True)
        ]
        assert all((await harness.store.update_claims("a", settles)).accepted)
        results = [(await harness.fire(fire.key)).result for fire in fires]
        assert results == values
        assert [type(each) for each in results] == [type(each) for each in values]

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

    @pytest.mark.parametrize("started", [False, True])
    async def test_what_was_given_back_is_no_attempt(self, harness: Harness, started: bool) -> None:
        fire = await harness.running()
        assert await harness.update(GiveBack(fire.key, fire.token, started))
        again = await harness.claim("a")
        assert (again.key, again.attempt) == (fire.key, 1)
        assert again.token > fire.token
        assert [attempt.outcome for attempt in again.attempts] == ["given back"]

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

    async def test_output_stays_until_there_is_newer(self, harness: Harness) -> None:
        fire = await harness.running()
        assert await harness.update(Report(fire.key, fire.token, output="one"))
        assert await harness.update(Report(fire.key, fire.token, {"done": 1}))
        assert (await harness.fire(fire.key)).output == "one"
        await harness.update(RetryLater(fire.key, fire.token, 0))
        again = await harness.claim("a")
        assert again.output == "one"
        await harness.update(Settle(again.key, again.token, State.SUCCEEDED, output='two\n"é"'))
        assert (await harness.fire(fire.key)).output == 'two\n"é"'

    async def test_a_fire_keeps_the_trace_that_triggered_it_and_that_of_its_last_run(
        self, harness: Harness
    ) -> None:
        await harness.define("job")
        await harness.join("a")
        added = await harness.trigger("job", trace={"caller": "00-aa-bb-01"})
        assert added.fire is not None
        fire = await harness.claim("a")
        assert fire.trace == {"caller": "00-aa-bb-01"}
        assert await harness.update(Report(fire.key, fire.token, {"done": 1}, trace="00-cc-dd-01"))
        assert not await harness.update(Report(fire.key, fire.token - 1, trace="00-ee-ff-01"))
        assert await harness.update(Report(fire.key, fire.token, {"done": 2}))
        await harness.update(RetryLater(fire.key, fire.token, 0))
        again = await harness.claim("a")
        assert again.trace == {"caller": "00-aa-bb-01", "run": "00-cc-dd-01"}
        await harness.update(Report(again.key, again.token, trace="00-gg-hh-01"))
        await harness.settle(again)
        settled = await harness.fire(fire.key)
        assert settled.trace == {"caller": "00-aa-bb-01", "run": "00-gg-hh-01"}

    async def test_the_trace_of_a_scheduled_run_outlives_a_crash(self, harness: Harness) -> None:
        term = await harness.elect("leader", "nothing")
        fire = await harness.running(name="b", after_crash="rerun")
        await harness.update(Report(fire.key, fire.token, trace="00-cc-dd-01"))
        await harness.bury("leader", term, "b")
        await harness.join("c")
        again = await harness.claim("c")
        assert (again.trace, again.attempts[-1].outcome) == ({"run": "00-cc-dd-01"}, "lost")

    @pytest.mark.parametrize("output", [None, "newer"])
    async def test_a_settle_without_output_leaves_it(self, harness: Harness, output: str | None) -> None:
        fire = await harness.running()
        await harness.update(Report(fire.key, fire.token, output="reported"))
        await harness.update(Settle(fire.key, fire.token, State.FAILED, error="boom", output=output))
        settled = await harness.fire(fire.key)
        assert (settled.output, settled.error) == (output or "reported", "boom")

    async def test_what_a_settle_keeps_belongs_to_the_job(self, harness: Harness) -> None:
        fire = await harness.running()
        assert (await harness.job("job")).kept is None
        await harness.update(Settle(fire.key, fire.token, State.SUCCEEDED, keep={"etag": "a"}))
        assert (await harness.job("job")).kept == {"etag": "a"}
        again = await harness.running()
        assert not await harness.update(Settle(again.key, fire.token, State.SUCCEEDED, keep={"etag": "b"}))
        await harness.settle(again)
        assert (await harness.job("job")).kept == {"etag": "a"}, "a settle that keeps nothing changes nothing"

    async def test_a_new_definition_keeps_what_was_kept(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(Settle(fire.key, fire.token, State.SUCCEEDED, keep=[1]))
        await harness.define("job", every(minutes=7))
        assert (await harness.job("job")).kept == [1]

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
        assert (await harness.store.update_claims("a", [Report(fire.key, fire.token, {})])).wake_in != 0
        settled = await harness.store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
        assert settled.wake_in == 0

    async def test_the_answer_says_when_the_next_fire_is_due(self, harness: Harness) -> None:
        """So that a replica need not ask after each run: only if this is sooner than it knows."""
        fire = await harness.running()
        asked = await harness.ask("a")
        settled = await harness.store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
        assert asked.wake_in is not None
        assert 0 < asked.wake_in <= 60
        assert settled.wake_in == pytest.approx(asked.wake_in, abs=2)

    async def test_the_answer_says_when_a_retry_is_due(self, harness: Harness) -> None:
        fire = await harness.running()
        retried = await harness.store.update_claims("a", [RetryLater(fire.key, fire.token, 5)])
        assert retried.wake_in == pytest.approx(5, abs=2)

    async def test_a_replica_that_claims_no_more_does_not_learn_what_is_due(self, harness: Harness) -> None:
        fire = await harness.running(overlap="queue")
        await harness.fall_due()
        await harness.ask("a")
        await harness.heartbeat("a", draining=True)
        settled = await harness.store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
        assert settled.wake_in is None

    async def test_tokens_outlive_removal_and_pruning(self, harness: Harness) -> None:
        tokens = []
        for _ in range(3):
            fire = await harness.running()
            tokens.append(fire.token)
            await harness.settle(fire)
            await harness.remove("job")
            await harness.advance(1)
            assert await harness.store.prune(0) == 1
            await harness.heartbeat("a")
        assert tokens == [1, 2, 3]


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

    async def test_a_retry_says_what_it_repeats_and_shares_its_effects(self, ready: Harness) -> None:
        due = await ready.now() - timedelta(days=3)
        await ready.trigger("job", repeats={"key": "job!first", "due_at": iso(due), "effect_key": "job!zero"})
        fire = await ready.claim("a")
        await ready.settle(fire)
        for each in (fire, await ready.fire(fire.key)):
            assert (each.retry_of, each.nominal_due_at, each.effect_key) == ("job!first", due, "job!zero")
            assert each.due_at > due
        await ready.trigger("job", "again", repeats={"key": "job!first", "due_at": iso(due)})
        again = await ready.claim("a")
        assert (again.retry_of, again.effect_key) == ("job!first", "job!again")

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
        assert [held.cancel_requested for held in (await harness.heartbeat("a")).held] == [True]
        assert await harness.settle(fire, State.CANCELLED)

    async def test_who_cancelled_is_on_record_and_only_the_first_to_ask(self, harness: Harness) -> None:
        fire = await harness.running()
        for name in ("alice", "bob"):
            await harness.store.cancel_fire(fire.key, name)
        assert await harness.settle(fire, State.CANCELLED)
        await harness.store.cancel_fire(fire.key, "carol")
        assert (await harness.fire(fire.key)).cancelled_by == "alice"

    async def test_who_cancelled_what_waited_is_on_record(self, harness: Harness) -> None:
        await harness.define("job")
        await harness.trigger("job")
        cancelled = await harness.store.cancel_fire("job!by-hand", "alice")
        assert cancelled is not None
        assert (cancelled.state, cancelled.cancelled_by) == (State.CANCELLED, "alice")

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
        assert await harness.store.cancel_fire("job@never", "ann", 1) is None


class DeclaredDeadRules:
    """A person says that the replica of a run is dead."""

    async def test_the_run_is_lost_and_who_said_so_is_on_record(self, harness: Harness) -> None:
        fire = await harness.running()
        lost = await harness.store.cancel_fire(fire.key, "ann", fire.token)
        assert lost is not None
        assert (lost.state, lost.reason, lost.crashes) == (State.LOST, Reason.DECLARED_DEAD, 1)
        assert lost.finished_at is not None
        [attempt] = lost.attempts
        assert (attempt.token, attempt.outcome) == (fire.token, "lost")
        assert attempt.error == lost.error == "a was declared dead by ann"
        assert lost == await harness.fire(fire.key)

    async def test_it_is_run_again_with_a_higher_token_if_its_job_says_so(self, harness: Harness) -> None:
        fire = await harness.running(after_crash="rerun")
        await harness.join("b")
        waiting = await harness.store.cancel_fire(fire.key, "ann", fire.token)
        assert waiting is not None
        assert (waiting.state, waiting.crashes) == (State.WAITING, 1)
        again = await harness.claim("b")
        assert (again.key, again.replica) == (fire.key, "b")
        assert again.token > fire.token
        assert await harness.settle(again)
        done = await harness.fire(fire.key)
        assert (done.state, done.error) == (State.SUCCEEDED, None)
        assert done.attempts[0].error == "a was declared dead by ann"

    async def test_a_replica_that_lives_after_all_can_no_longer_settle(self, harness: Harness) -> None:
        fire = await harness.running()
        lost = await harness.store.cancel_fire(fire.key, "ann", fire.token)
        assert not await harness.settle(fire)
        assert not await harness.update(Report(fire.key, fire.token, {"done": 1}))
        assert not await harness.update(GiveBack(fire.key, fire.token))
        assert await harness.fire(fire.key) == lost
        reply = await harness.heartbeat("a")
        assert (reply.known, reply.held) == (True, ())  # the others of its runs go on

    async def test_only_the_run_that_was_seen_is_ended(self, harness: Harness) -> None:
        fire = await harness.running(after_crash="rerun")
        for other in (fire.token - 1, fire.token + 1):
            assert await harness.store.cancel_fire(fire.key, "ann", other) == fire
        await harness.store.cancel_fire(fire.key, "ann", fire.token)
        again = await harness.claim("a")
        assert await harness.store.cancel_fire(fire.key, "ann", fire.token) == again  # said twice

    async def test_what_does_not_run_is_left_alone(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 5))
        waiting = await harness.fire(fire.key)
        assert await harness.store.cancel_fire(fire.key, "ann", fire.token) == waiting
        await harness.elapse(10)
        again = await harness.claim("a")
        await harness.settle(again)
        done = await harness.fire(fire.key)
        assert await harness.store.cancel_fire(fire.key, "ann", again.token) == done

    async def test_what_was_asked_to_end_is_not_run_again(self, harness: Harness) -> None:
        fire = await harness.running(after_crash="rerun")
        await harness.store.cancel_fire(fire.key, "ann")
        done = await harness.store.cancel_fire(fire.key, "bob", fire.token)
        assert done is not None
        assert (done.state, done.reason) == (State.LOST, Reason.DECLARED_DEAD)

    async def test_the_next_fire_of_the_job_can_run(self, harness: Harness) -> None:
        fire = await harness.running(overlap="skip")
        await harness.store.cancel_fire(fire.key, "ann", fire.token)
        await harness.fall_due()
        assert (await harness.claim("a")).key != fire.key


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
        kinds = ["defined", "changed", "paused", "resumed", "defined", "removed"]
        assert [event.kind for event in events] == kinds
        assert [event.by for event in events] == ["", "", "ann", "bob", "", "cem"]
        assert [event.version for event in events] == [1, 1, 1, 1, 2, 2]
        assert (events[1].before, events[1].after) == ({"timeout": None}, {"timeout": 3})
        assert (events[2].note, events[2].until) == ("deploy", until)
        assert events[0].trigger is not None
        assert events[0].trigger["seconds"] == 60
        assert "anchor" in events[0].trigger
        assert all(event.job_id == "job" and event.at >= start for event in events)
        assert await harness.store.history("another") == ()

    async def test_changes_of_all_jobs_are_found_by_their_time(self, harness: Harness) -> None:
        await harness.define("old")
        await harness.advance(60)
        since = await harness.now()
        await harness.define("one")
        await harness.advance(1)
        await harness.pause("old")
        await harness.advance(1)
        await harness.resume("old")
        found = [(event.job_id, event.kind) for event in await harness.store.history_since(since)]
        assert found == [("one", "defined"), ("old", "paused"), ("old", "resumed")]
        later = since + timedelta(seconds=1, milliseconds=500)
        assert [event.kind for event in await harness.store.history_since(later)] == ["resumed"]

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
        await self.quiet(harness)
        assert await harness.store.wait(0.01) is False

    async def test_waiting_ends_with_a_hint(self, harness: Harness) -> None:
        await harness.define("job")
        await self.quiet(harness)
        waiting = asyncio.create_task(harness.store.wait(10))
        await asyncio.sleep(0.05)
        await harness.trigger("job")
        assert await asyncio.wait_for(waiting, 5) is True

    async def test_a_fire_planned_beside_one_that_waits_for_its_pool_is_a_hint(
        self, harness: Harness
    ) -> None:
        """A fire that no replica can claim stays due. Replicas may still expect nothing for a long time."""
        await harness.join("a", "work")
        soon = at(await harness.now() + timedelta(seconds=5))
        await harness.define("waiting", soon, execute_on="gpu")
        await harness.fall_due(10.0)
        assert (await harness.ask("a")).wake_in is None
        await harness.define("job", every(seconds=10))
        plans = await harness.plans()
        await self.quiet(harness)
        waiting = asyncio.create_task(harness.store.wait(10))
        await asyncio.sleep(0.05)
        await harness.store.plan_fires(plans)
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
