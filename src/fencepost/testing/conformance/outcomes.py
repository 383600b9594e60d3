"""What a job's record says of its runs, and pages of jobs."""

from __future__ import annotations

from dataclasses import replace

from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.model.watching import NotificationRule
from fencepost.store.base import GiveBack, JobPage, RetryLater, Settle
from fencepost.testing.conformance.harness import Harness


class OutcomeRules:
    async def test_a_job_that_never_ran_has_no_last_run(self, harness: Harness) -> None:
        await harness.running()
        job = await harness.job("job")
        assert (job.last_run, job.last_success_at, job.failures_in_a_row) == (None, None, 0)

    async def test_the_end_of_a_run_is_on_the_jobs_record(self, harness: Harness) -> None:
        fire = await harness.running()
        error = "Traceback:\n  line 1\nValueError: row 7 is bad\n"
        await harness.update(Settle(fire.key, fire.token, State.FAILED, "raised an exception", error))
        done, job = await harness.fire(fire.key), await harness.job("job")
        last = job.last_run
        assert last is not None
        assert (last.key, last.state, last.due_at, last.replica) == (fire.key, State.FAILED, fire.due_at, "a")
        assert (last.started_at, last.finished_at) == (done.started_at, done.finished_at)
        assert (last.reason, last.error_line) == ("raised an exception", "ValueError: row 7 is bad")
        assert (job.last_success_at, job.failures_in_a_row) == (None, 1)

    async def test_failures_are_counted_until_a_success(self, harness: Harness) -> None:
        fire, seen = await harness.running(), []
        states = [State.FAILED, State.FAILED, State.CANCELLED, State.SUCCEEDED, State.FAILED]
        for number, state in enumerate(states):
            if number:
                await harness.fall_due()
                fire = await harness.claim("a")
            assert await harness.settle(fire, state)
            seen.append((await harness.job("job")).failures_in_a_row)
        assert seen == [1, 2, 2, 0, 1]

    async def test_the_last_success_outlives_failures_and_skips(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.settle(fire)
        success = (await harness.fire(fire.key)).finished_at
        await harness.pause("job")
        await harness.fall_due()
        assert await harness.claims("a") == []
        job = await harness.job("job")
        assert job.last_run is not None
        assert (job.last_run.key, job.last_success_at) == (fire.key, success)
        await harness.resume("job")
        await harness.fall_due()
        await harness.settle(await harness.claim("a"), State.FAILED)
        job = await harness.job("job")
        assert (job.last_success_at, job.failures_in_a_row) == (success, 1)

    async def test_a_lost_run_is_a_failure(self, harness: Harness) -> None:
        fire, term = await harness.running(), await harness.elect("b")
        await harness.bury("b", term, "a")
        job = await harness.job("job")
        assert job.last_run is not None
        assert (job.last_run.key, job.last_run.state) == (fire.key, State.LOST)
        assert job.failures_in_a_row == 1

    async def test_an_attempt_that_is_repeated_is_not_the_end(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 0.0, "boom"))
        assert (await harness.job("job")).last_run is None
        again = await harness.claim("a")
        await harness.update(GiveBack(again.key, again.token))
        assert (await harness.job("job")).last_run is None
        await harness.settle(await harness.claim("a"))
        assert (await harness.job("job")).last_run is not None

    async def test_runs_that_end_in_one_batch_end_in_its_order(self, harness: Harness) -> None:
        """Also where some of them go the general path: here those with a result, and failures, as there is a rule."""
        await harness.join("a")
        await harness.store.notices.put_rules("ops", [NotificationRule("ops", ("failed",))])
        await harness.define("job", every(seconds=10), overlap="allow(9)")
        for first, then in ((State.FAILED, State.SUCCEEDED), (State.SUCCEEDED, State.FAILED)):
            for result in (None, "7"):
                await harness.fall_due(20)
                one, other = await harness.claims("a")
                ends = [
                    Settle(one.key, one.token, first, result=result),
                    Settle(other.key, other.token, then),
                ]
                assert (await harness.store.update_claims("a", ends)).accepted == (True, True)
                job = await harness.job("job")
                assert job.last_run is not None
                assert (job.last_run.key, job.failures_in_a_row) == (other.key, int(then is State.FAILED))

    async def test_a_run_by_hand_counts(self, harness: Harness) -> None:
        await harness.join("a")
        await harness.define("job")
        await harness.trigger("job")
        fire = await harness.claim("a")
        await harness.update(Settle(fire.key, fire.token, State.SUCCEEDED, result={"rows": 3}))
        last = (await harness.job("job")).last_run
        assert last is not None
        assert (last.key, last.state, last.due_at) == (fire.key, State.SUCCEEDED, fire.due_at)

    async def test_a_job_whose_waiting_retry_is_cancelled_with_it(self, harness: Harness) -> None:
        fire = await harness.running()
        await harness.update(RetryLater(fire.key, fire.token, 60.0, "boom"))
        await harness.remove("job")
        await harness.define("job", every(minutes=1))
        last = (await harness.job("job")).last_run
        assert last is not None
        assert (last.key, last.state) == (fire.key, State.CANCELLED)


class PageRules:
    async def test_jobs_come_a_page_at_a_time_in_the_order_of_their_ids(self, harness: Harness) -> None:
        names = ["b", "B2", "a:1", "a.2", "c-3", "Z"]
        for name in names:
            await harness.define(name)
        found, page = list[str](), JobPage(limit=2)
        while some := await harness.store.jobs(page=page):
            assert len(some) <= 2
            found += [record.id for record in some]
            page = replace(page, after=found[-1])
        assert found == sorted(names)

    async def test_pages_pass_over_removed_jobs(self, harness: Harness) -> None:
        for number in range(8):
            await harness.define(f"job{number}")
        for number in range(6):
            await harness.remove(f"job{number}")
        some = await harness.store.jobs(page=JobPage(limit=1))
        assert [record.id for record in some] == ["job6"]

    async def test_pages_of_jobs_whose_id_contains_a_text(self, harness: Harness) -> None:
        for name in ("Report", "report_daily", "import", "my.REPORT"):
            await harness.define(name)
        some = await harness.store.jobs(page=JobPage(limit=10, contains="rePORT"))
        assert [record.id for record in some] == ["Report", "my.REPORT", "report_daily"]
        assert await harness.store.jobs(page=JobPage(limit=10, contains="%")) == ()
