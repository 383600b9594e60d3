"""Jobs that are declared, planned, withdrawn, removed, or whose task no live replica knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from fencepost.model import (
    FireRecord,
    Job,
    Overlap,
    Reason,
    State,
)
from fencepost.model.retry import Retry
from fencepost.model.triggers import Calendar, at, cron, every
from fencepost.store.base import (
    NO_JOB,
    ChangeJob,
    PutJob,
    RetryLater,
)
from fencepost.testing.conformance.harness import HORIZON, NOON, TTL, Harness, due_times, job_of, steps


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

    async def test_a_definition_is_changed_only_if_it_is_the_one_expected(self, harness: Harness) -> None:
        seen, later, late = (job_of("job", timeout=timedelta(seconds=n)) for n in (1, 2, 3))

        async def put(job: Job, by: str, expected: str) -> str:
            [answer] = await harness.store.put_jobs([PutJob(job, by=by, source="api", expected=expected)])
            return answer.outcome

        assert await put(seen, "ann", late.fingerprint) == "changed meanwhile"
        assert await harness.store.jobs(["job"]) == ()
        assert await put(seen, "ann", NO_JOB) == "created"
        assert await put(late, "bob", NO_JOB) == "changed meanwhile"
        assert await put(later, "bob", seen.fingerprint) == "changed"
        assert await put(late, "ann", seen.fingerprint) == "changed meanwhile"
        assert (await harness.job("job")).job == later
        assert await put(later, "bob", seen.fingerprint) == "unchanged"  # the same sent twice
        remove = ChangeJob("job", "remove", by="ann", expected=seen.fingerprint)
        assert await harness.store.change_job(remove) is None
        assert await harness.store.change_job(replace(remove, expected=later.fingerprint))
        assert await put(late, "ann", later.fingerprint) == "changed meanwhile"
        assert await put(late, "ann", NO_JOB) == "changed"

    async def test_the_history_says_who_changed_what(self, harness: Harness) -> None:
        first = job_of("job", every(minutes=1), tags=("a",))
        changes = [
            (first, "ann"),
            (replace(first, tags=("b",), owner="ann"), "bob"),
            (
                replace(first, tags=("b",), owner="ann", trigger=every(minutes=2), args={"n": "x" * 3000}),
                "cem",
            ),
        ]
        for job, by in changes:
            await harness.store.put_jobs([PutJob(job, by=by, source="api")])
        created, tagged, moved = await harness.store.history("job")
        assert [each.by for each in (created, tagged, moved)] == ["ann", "bob", "cem"]
        assert [each.kind for each in (created, tagged, moved)] == ["defined", "changed", "defined"]
        assert created.before is None
        assert created.after is not None
        assert (created.after["target"], created.after["tags"]) == (first.target, ["a"])
        assert (tagged.before, tagged.after) == (
            {"tags": ["a"], "owner": None},
            {"tags": ["b"], "owner": "ann"},
        )
        assert moved.before is not None
        assert moved.after is not None
        assert [each["trigger"]["seconds"] for each in (moved.before, moved.after)] == [60, 120]
        assert moved.after["args"] == "(3009 bytes)"

    async def test_what_was_changed_while_paused_forgets_no_pause(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        await harness.pause("job")
        await harness.define("job", every(minutes=1), timeout=timedelta(seconds=3))
        await harness.elapse(60)
        await harness.store.prune(30)
        kinds = [event.kind for event in await harness.store.history("job")]
        assert kinds == ["defined", "paused"]

    async def test_a_trigger_made_of_others_is_kept_and_planned(self, harness: Harness) -> None:
        """With names as people write them, and an open anchor deep inside, which the store fills in."""
        begin = (await harness.now()).replace(microsecond=0)
        freeze = (begin + timedelta(seconds=7), begin + timedelta(seconds=16), "'Frost' \"ä\" – 冬")
        closed = Calendar("c", dates={"2020-01-01": "Neujahr, 元日"}, blackouts=[freeze], tz="Asia/Tokyo")
        trigger = (every(seconds=2) | every(seconds=3)).on(closed).spread("1m", "job")
        await harness.put(job_of("job", trigger))
        record = await harness.job("job")
        assert record.job.trigger == trigger
        planned = record.segments[-1].trigger
        assert planned == trigger.resolved(record.segments[-1].cursor)
        await harness.plan(120)
        fires = due_times(await harness.fires("job"))
        assert fires == list(islice(planned.after(record.segments[-1].cursor), len(fires)))
        nominal = [(fire - trigger.offset - begin).total_seconds() for fire in fires]
        assert min(nominal) < 7
        assert max(nominal) > 16
        assert not [second for second in nominal if 7 <= second < 16]

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

    async def test_it_flips_back_if_it_is_asked_for(self, harness: Harness) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.join("b")
        await harness.put(old, by="a")
        await harness.put(new, by="b")
        [put] = await harness.store.put_jobs([PutJob(old, by="a", chosen=True)])
        assert put.outcome == "changed"

    async def test_what_was_asked_for_is_declared_by_all_who_know_the_task(self, harness: Harness) -> None:
        """They have not read it yet when the one that asked for it ends, and another starts with what its code says."""
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.join("b")
        await harness.join("c", "other")
        await harness.put(old, by="a")
        await harness.store.put_jobs([PutJob(new, by="a", chosen=True)])
        assert (await harness.job("job")).declared_by == ("a", "b")
        await harness.store.leave("a")
        await harness.join("d")
        assert (await harness.put(old, by="d")).outcome == "flip back"
        await harness.store.leave("b")
        assert (await harness.put(old, by="d")).outcome == "changed"

    async def test_what_is_asked_for_again_is_declared_by_those_who_came_since(
        self, harness: Harness
    ) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.put(old, by="a")
        for name in ("a", "b"):
            await harness.join(name)
            await harness.store.put_jobs([PutJob(new, by="a", chosen=True)])
        assert (await harness.job("job")).declared_by == ("a", "b")

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

    async def test_it_flips_back_when_no_live_replica_declares_the_newer_one(self, harness: Harness) -> None:
        old, new = job_of("job", every(minutes=1)), job_of("job", every(minutes=2))
        await harness.join("a")
        await harness.join("b")
        await harness.put(old, by="a")
        await harness.put(new, by="b")
        await harness.advance(TTL + 1)
        await harness.heartbeat("a")
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
        await harness.put(job_of("job", every(minutes=1)))  # only then does it matter
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

    async def test_what_has_another_trigger_by_now_is_not_removed(self, harness: Harness) -> None:
        await harness.define("job", every(minutes=1))
        [seen] = await harness.store.jobs(["job"])
        await harness.define("job", every(minutes=2))
        assert await harness.store.change_job(ChangeJob("job", "remove", version=seen.version)) is None
        [present] = await harness.store.jobs(["job"])
        assert await harness.store.change_job(ChangeJob("job", "remove", version=present.version))
        assert await harness.store.jobs(["job"]) == ()

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

    async def test_a_job_whose_task_no_replica_knows_is_not_planned(
        self, harness: Harness, forsaken: int
    ) -> None:
        await self.lead_on(harness, forsaken, 60)
        before = await harness.fires("job")
        await harness.advance(3600)
        assert (await harness.store.due_jobs(HORIZON, 10)).jobs == ()
        await self.lead_on(harness, forsaken, 60)
        assert due_times(await harness.fires("job")) == due_times(before)
        assert await harness.store.jobs(["job"])

    async def test_it_is_known_since_when_no_replica_knows_it(self, harness: Harness) -> None:
        term = await harness.elect("a", "other")
        await harness.define("job", every(minutes=1))
        assert (await harness.job("job")).unknown_since is None, "no leader has swept yet"
        await harness.store.sweep("a", term, ())
        since = await harness.now()
        await harness.elapse(20)
        await harness.store.sweep("a", term, ())
        for found in (await harness.job("job"), *await harness.store.jobs()):
            assert found.unknown_since == since
        await harness.join("b")
        for found in (await harness.job("job"), *await harness.store.jobs()):
            assert found.unknown_since is None

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

    async def test_a_calendar_that_lies_ahead_is_not_planned_from_before_its_start(
        self, harness: Harness, forsaken: int
    ) -> None:
        """The clock is set back, and the trigger changed: the new one begins where the old one ends, which is ahead."""
        defined = await harness.now()
        assert harness.step_back is not None
        await harness.step_back(7200)
        await harness.define("job", every(minutes=7))
        await self.lead_on(harness, forsaken, 65)
        await harness.join("c", "work")
        await harness.plan(horizon=7200)
        fires = await harness.fires("job")
        assert fires
        assert all(fire.due_at > defined for fire in fires)

    async def test_what_was_due_of_a_replaced_calendar_is_missed_though_it_lies_ahead_again(
        self, harness: Harness, forsaken: int
    ) -> None:
        """Only its row still knows of it: its calendar has been worked off."""
        await harness.fall_due(630)
        (due,) = await harness.fires("job", State.PENDING)
        await harness.define("job", every(minutes=7))
        assert harness.step_back is not None
        await harness.step_back(7200)
        await self.lead_on(harness, forsaken, 65)
        missed = await harness.fire(due.key)
        assert (missed.state, missed.reason) == (State.MISSED, Reason.UNKNOWN_TASK)

    async def test_a_calendar_that_was_planned_to_its_end_is_not_forgotten(
        self, harness: Harness, forsaken: int
    ) -> None:
        """Its planned fires go back to a calendar that had none left: it is opened again."""
        moment = await harness.now() + timedelta(minutes=70)
        await harness.define("last", at(moment))
        await harness.plan(horizon=7200)
        assert due_times(await harness.fires("last", State.PENDING)) == [moment]
        await self.lead_on(harness, forsaken, 115)
        assert await harness.fires("last") == []
        await harness.join("c", "work")
        await harness.plan()
        await harness.claims("c")
        (fire,) = await harness.fires("last")
        assert (fire.due_at, fire.state, fire.reason) == (moment, State.MISSED, Reason.UNKNOWN_TASK)

    async def test_when_no_replica_was_there_to_notice_it_is_only_late(self, harness: Harness) -> None:
        await harness.join("b", "work")
        await harness.define("job", every(minutes=10))
        await harness.store.leave("b")
        await harness.advance(7205)
        await harness.join("c", "work")
        await harness.plan()
        assert len(await harness.claims("c")) == 1
