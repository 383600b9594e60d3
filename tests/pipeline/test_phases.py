"""Phases in order: their results, outcomes, history and ETAs; what is resumed, and what is not."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime

import pytest

from fencepost import (
    ConfigurationError,
    EffectCommitted,
    Fire,
    Pipeline,
    Retry,
    Scheduler,
    current_fire,
    every,
)
from fencepost.errors import PartCommitted
from fencepost.pipeline import pipeline_status, rule
from fencepost.pipeline.progress import Eta, expected
from fencepost.store.base import Report
from fencepost.testing import virtual
from tests.unit.apps.waiting import eventually


def passed(fire):
    return {each["name"]: each["outcome"] for each in fire.progress["pipeline"]["phases"]}


async def ran(scheduler, job="stops", **args):
    handle = await scheduler.trigger(job, args=args or None)
    return await handle.wait(timeout=60)


async def test_phases_run_in_order_and_see_the_results_before_them(scheduled):
    pipeline, seen = Pipeline("stops"), []

    @pipeline.phase("load")
    async def load(run):
        seen.append(("load", dict(run.results)))
        return {"rows": 3}

    @pipeline.phase("match")
    def match(run):
        seen.append(("match", dict(run.results)))
        assert threading.current_thread().name.startswith("fencepost-phase")
        return [run.results["load"]["rows"] * 2]

    @pipeline.phase("tell")
    def tell():
        seen.append(("tell", None))

    fire = await ran(await scheduled(pipeline))
    assert fire.state == "succeeded"
    assert seen == [("load", {}), ("match", {"load": {"rows": 3}}), ("tell", None)]
    assert passed(fire) == {"load": "done", "match": "done", "tell": "done"}


async def test_outcomes_durations_and_warnings_are_kept_with_the_run(scheduled):
    pipeline = Pipeline("stops", modes=("full", "quick"), run_types=("complete", "cached"))

    @pipeline.run_type
    def choose(run):
        return "cached"

    @pipeline.phase("download", modes=["full"])
    def download(run): ...

    @pipeline.phase("prepare", run_types=["complete"])
    def prepare(run): ...

    @pipeline.phase("match")
    async def match(run):
        run.warn("two stops have the same number")
        await asyncio.sleep(0.05)

    @pipeline.phase("tidy")
    def tidy(run):
        run.reuse("nothing to tidy")

    fire = await ran(await scheduled(pipeline), mode="quick")
    history = fire.progress["pipeline"]["phases"]
    assert passed(fire) == {"download": "skipped", "prepare": "reused", "match": "done", "tidy": "reused"}
    assert history[2]["seconds"] >= 0.05
    assert history[2]["warnings"] == ["two stops have the same number"]


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_failing_phase_fails_the_run_and_leaves_what_was_kept(scheduled, caplog, kind):
    pipeline, fail = Pipeline("stops"), []

    @pipeline.phase("prepare")
    def prepare(run):
        run.keep(rows=1 + run.kept.get("rows", 0))

    if kind == "coroutine":

        @pipeline.phase("import", blocking=True)
        async def import_(run):
            if fail:
                raise ValueError("row 7 is bad")
    else:

        @pipeline.phase("import", blocking=True)
        def import_blocking(run):
            if fail:
                raise ValueError("row 7 is bad")

    scheduler = await scheduled(pipeline)
    await ran(scheduler)
    before = await pipeline_status(scheduler)
    fail.append(True)
    fire = await ran(scheduler)
    after = await pipeline_status(scheduler)
    assert fire.state == "failed"
    assert passed(fire) == {"prepare": "done", "import": "failed"}
    assert "ValueError: row 7 is bad" in caplog.text
    assert "Traceback" in caplog.text
    assert (after["status"], after["phase"], after["last_error"]) == (
        "failed",
        "failed",
        "ValueError: row 7 is bad",
    )
    assert after["blocking_maintenance"] is False
    assert after["data_updated_at"] == before["data_updated_at"] is not None
    fail.clear()
    fresh = await ran(scheduler)  # nothing is left that would be in its way
    assert fresh.state == "succeeded"
    assert passed(fresh) == {"prepare": "done", "import": "done"}
    [record] = await scheduler.ask(scheduler.lifecycle.with_store(lambda store: store.jobs(["stops"])))
    assert record.kept["values"] == {"rows": 2}
    assert (await pipeline_status(scheduler))["last_error"] is None


async def test_the_status_tells_what_was_raised_and_not_what_a_driver_adds(scheduled):
    pipeline = Pipeline("stops")

    @pipeline.phase("import")
    def import_(run):
        raise ValueError("row 7 is bad\nCONTEXT:  line 3 of a function")

    scheduler = await scheduled(pipeline, "memory://")
    assert (await ran(scheduler)).state == "failed"
    assert (await pipeline_status(scheduler))["last_error"] == "ValueError: row 7 is bad"


async def test_a_retry_goes_on_with_the_phase_that_failed(scheduled):
    pipeline, calls = Pipeline("stops"), []

    @pipeline.phase("one")
    def one(run):
        calls.append("one")
        return 1

    @pipeline.phase("two")
    def two(run):
        calls.append(("two", run.saved, dict(run.results)))
        if run.fire.attempt == 1:
            run.save({"row": 40}).wait()
            raise ValueError

    fire = await ran(await scheduled(pipeline, retry=Retry(attempts=2, first=0.05)))
    assert fire.state == "succeeded"
    assert calls == ["one", ("two", None, {"one": 1}), ("two", {"row": 40}, {"one": 1})]


async def test_a_phases_end_and_the_next_ones_beginning_are_one_update(scheduled):
    """Or a crash between two updates shows a phase as passed that the next attempt repeats."""
    pipeline, told = Pipeline("stops"), []
    for name in ("one", "two", "three"):
        pipeline.phase(name)(lambda run: None)
    scheduler = await scheduled(pipeline, "memory://")
    update_claims = scheduler.store.update_claims

    def overheard(replica, updates):
        told.extend(update for update in updates if isinstance(update, Report) and update.progress)
        return update_claims(replica, updates)

    scheduler.store.update_claims = overheard
    assert (await ran(scheduler)).state == "succeeded"
    known, entered = 0, {}
    for report in told:
        seen = report.progress["pipeline"]
        if report.saves:
            known = len(report.checkpoint["results"])
        assert len(seen["phases"]) == known, "others see what the checkpoint has, no more and no less"
        entered.setdefault(seen["phase"], (report.saves, known))
    assert {name: entered[name] for name in ("one", "two", "three")} == {
        "one": (True, 0),
        "two": (True, 1),
        "three": (True, 2),
    }


async def test_a_pipeline_that_is_not_resumable_begins_anew(scheduled):
    pipeline, calls = Pipeline("stops", resumable=False), []

    @pipeline.phase("one")
    def one(run):
        calls.append("one")

    @pipeline.phase("two")
    def two(run):
        calls.append("two")
        with pytest.raises(Exception, match="not resumable"):
            run.save(1)
        if run.fire.attempt == 1:
            raise ValueError

    scheduler = await scheduled(pipeline, retry=Retry(attempts=2, first=0.05))
    fire = await ran(scheduler)
    assert fire.state == "succeeded"
    assert calls == ["one", "two", "one", "two"]
    assert fire.checkpoint is None
    assert scheduler.jobs["stops"].after_crash == "record"


async def test_a_phase_whose_files_are_missing_here_is_done_again(scheduled, tmp_path):
    pipeline, calls, file = Pipeline("stops"), [], tmp_path / "rows.csv"

    @pipeline.phase("zero")
    def zero(run):
        calls.append("zero")

    @pipeline.phase("one", artefacts=[file])
    def one(run):
        calls.append("one")
        file.write_text("1")

    @pipeline.phase("two")
    def two(run):
        calls.append("two")

    @pipeline.phase("three")
    def three(run):
        if run.fire.attempt == 1:
            file.unlink()  # as on another machine
            raise ValueError
        calls.append("three")

    fire = await ran(await scheduled(pipeline, retry=Retry(attempts=2, first=0.05)))
    assert fire.state == "succeeded"
    assert calls == ["zero", "one", "two", "one", "two", "three"]


@pytest.mark.parametrize("name", ["", "import"])
async def test_an_effect_that_an_earlier_attempt_has_committed_ends_the_phase_not_the_run(scheduled, name):
    pipeline, calls = Pipeline("stops"), []

    @pipeline.phase("import")
    def import_(run):
        told = "it was committed by an earlier attempt"
        raise PartCommitted(told, name) if name else EffectCommitted(told)

    @pipeline.phase("after")
    def after(run):
        calls.append("after")

    fire = await ran(await scheduled(pipeline))
    assert calls == ["after"]
    assert fire.state == "succeeded"
    assert fire.reason is None
    assert fire.progress["pipeline"]["phases"][0]["warnings"] == ["it was committed by an earlier attempt"]


async def test_an_effect_that_is_a_part_of_its_phase_does_not_end_it(scheduled):
    pipeline, calls = Pipeline("stops"), []

    @pipeline.phase("import")
    def import_(run):
        raise PartCommitted("the first half was committed by an earlier attempt", "first half")

    @pipeline.phase("after")
    def after(run):
        calls.append("after")

    fire = await ran(await scheduled(pipeline))
    assert (fire.state, calls) == ("failed", [])
    assert "the first half was committed" in fire.error


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_graceful_stop_gives_it_back_after_the_phase_has_ended(scheduled, tmp_path, kind):
    pipeline, begun, ended = Pipeline("stops"), [], []

    @pipeline.phase("one")
    def one(run):
        begun.append("one")

    def wait_for_the_end(run):
        begun.append("two")
        if run.fire.token > 1:
            return
        try:
            while True:
                run.report(message="waiting")
                time.sleep(0.01)
        finally:
            time.sleep(0.1)
            ended.append(datetime.now(UTC))

    async def wait_async(run):
        begun.append("two")
        if run.fire.token == 1:
            try:
                await asyncio.sleep(20)
            finally:
                ended.append(datetime.now(UTC))

    pipeline.phase("two")(wait_async if kind == "coroutine" else wait_for_the_end)
    first = await scheduled(pipeline)
    handle = await first.trigger("stops")
    await eventually(lambda: begun == ["one", "two"], seconds=60)
    await first.stop()
    second = await scheduled(pipeline)
    fire = await second.ask(second.fire_operations.find(handle.key))
    [attempt] = fire.attempts
    assert attempt.outcome == "given back"
    assert attempt.finished_at >= ended[0]
    await eventually(lambda: len(begun) == 3, seconds=60)
    while not (fire := await second.ask(second.fire_operations.find(handle.key))).state.final:
        await asyncio.sleep(0.01)
    assert (fire.state, fire.token) == ("succeeded", 2)
    assert begun == ["one", "two", "two"]
    assert [each["attempt"] for each in fire.progress["pipeline"]["phases"]] == [1, 1]


async def test_a_phase_that_does_not_end_in_time_is_not_given_back(scheduled):
    """Its thread goes on. Only when the lease has run out may somebody else begin, with a higher token."""
    pipeline, begun, go = Pipeline("stops"), [], threading.Event()

    @pipeline.phase("deaf")
    def deaf(run):
        begun.append(run.fire.token)
        if run.fire.token == 1:
            go.wait(60)

    first = await scheduled(pipeline)
    handle = await first.trigger("stops")
    await eventually(lambda: begun == [1], seconds=60)
    await first.stop()
    second = await scheduled(pipeline)
    fire = await second.ask(second.fire_operations.find(handle.key))
    assert (fire.state, fire.token) == ("running", 1)
    await eventually(lambda: begun == [1, 2], seconds=60)
    go.set()
    while not (fire := await second.ask(second.fire_operations.find(handle.key))).state.final:
        await asyncio.sleep(0.01)
    assert (fire.state, fire.crashes) == ("succeeded", 1)


async def test_a_cancelled_run_ends_at_its_next_report(scheduled):
    pipeline, begun = Pipeline("stops"), threading.Event()

    @pipeline.phase("long")
    def long(run):
        begun.set()
        while True:
            run.report(done=1)
            time.sleep(0.01)

    scheduler = await scheduled(pipeline)
    handle = await scheduler.trigger("stops")
    await eventually(begun.is_set, seconds=60)
    await scheduler.cancel(handle.key)
    fire = await handle.wait(timeout=60)
    assert (fire.state, fire.reason) == ("cancelled", "on request")
    status = await pipeline_status(scheduler)
    assert (status["status"], status["last_error"]) == ("failed", "cancelled: on request")


async def test_reports_are_throttled_and_the_last_one_arrives(scheduled):
    pipeline, go = Pipeline("stops"), threading.Event()

    @pipeline.phase("count")
    def count(run):
        for number in range(100_000):
            run.report(done=number + 1, total=100_000)
        go.wait(60)

    scheduler = await scheduled(pipeline)
    updates = []
    put = scheduler.replica.settler.put_report
    scheduler.replica.settler.put_report = lambda report: (updates.append(report), put(report))
    handle = await scheduler.trigger("stops")
    while (await pipeline_status(scheduler))["processed"] != 100_000:
        await asyncio.sleep(0.02)
    go.set()
    await handle.wait(timeout=60)
    assert len(updates) < 20


async def test_a_report_of_the_fire_itself_leaves_the_phase_in_sight(scheduled):
    pipeline, go = Pipeline("stops"), threading.Event()

    @pipeline.phase("import", blocking=True)
    def import_(run):
        current_fire().report(done=7, message="from a function that knows no pipelines")
        go.wait(60)

    scheduler = await scheduled(pipeline)
    handle = await scheduler.trigger("stops")
    while (status := await pipeline_status(scheduler))["processed"] != 7:
        await asyncio.sleep(0.02)
    assert (status["phase"], status["blocking_maintenance"]) == ("import", True)
    go.set()
    await handle.wait(timeout=60)


def test_etas_are_declared_then_learned():
    assert expected(None, []) is None
    assert expected(150, []) == Eta(150)
    assert expected(150, [90, 100]) == Eta(150)
    assert expected(150, [90, 130, 100]) == Eta(100, 90, 130)
    assert expected(None, [7]) == Eta(7, 7, 7)


def test_durations_are_learned_by_run_type_in_virtual_time():
    scheduler = Scheduler(store="memory://")
    pipeline = Pipeline("stops", run_types=("complete", "cached"))

    @pipeline.run_type
    def choose(run):
        return "complete" if run.fire.token % 2 else "cached"

    @pipeline.phase("import", eta=150, blocking=True)
    async def import_(run):
        await asyncio.sleep(100 if run.run_type == "complete" else 10)

    scheduler.job(every(hours=1))(pipeline)
    with virtual(scheduler) as t:
        t.advance(hours=6, minutes=30)
        t.assert_ran("stops", times=6)
        [record] = t.do(t.store.jobs(["stops"]))
        assert record.kept["durations"] == {
            "complete/import": pytest.approx([100] * 3, abs=1),
            "cached/import": pytest.approx([10] * 3, abs=1),
        }
        t.advance(minutes=31)
        status = t.do(pipeline_status(scheduler))
        assert (status["phase"], status["blocking_maintenance"]) == ("import", True)
        assert status["eta_seconds"] == pytest.approx(100, abs=1)
        assert status["eta_low_seconds"] <= status["eta_seconds"] <= status["eta_high_seconds"]


async def test_from_every_checkpoint_exactly_the_rest_is_done():
    """Cut off at any moment, a run goes on from the last checkpoint that was stored."""
    pipeline, calls = Pipeline("stops"), []

    def phase(run):
        calls.append(run.phase.name)
        if run.saved is None:
            run.save({"half": run.phase.name}).wait()
        run.keep(**{run.phase.name: True})
        return len(calls)

    names = ["one", "two", "three"]
    for name in names:
        pipeline.phase(name)(phase)
    whole = Fire.fake()
    await pipeline(whole)
    assert calls == names
    assert len(whole.saved) == 8  # when it begins, with each phase, inside each, and when all have ended
    for number, checkpoint in enumerate(whole.saved):
        calls.clear()
        rest = Fire.fake(checkpoint=checkpoint, token=2, attempt=2)
        await pipeline(rest)
        done = len(checkpoint["results"])
        assert calls == names[done:], number
        assert rest.keeps[-1]["values"] == dict.fromkeys(names, True)
        assert [each["name"] for each in rest.reports[-1]["pipeline"]["phases"]] == names


async def test_a_new_release_goes_on_up_to_what_it_has_changed():
    old, new, calls = Pipeline("stops"), Pipeline("stops"), []
    for name in ("one", "two", "three"):
        old.phase(name)(lambda run: run.phase.name)
    for name in ("one", "other", "three"):
        new.phase(name)(lambda run: calls.append(run.phase.name))
    before = Fire.fake()
    await old(before)
    await new(Fire.fake(checkpoint=before.saved[-1]))
    assert calls == ["other", "three"]


@pytest.mark.parametrize(
    ("result", "why"), [({1, 2}, "cannot be stored as JSON"), ("x" * 40_000, "the limit is 32768")]
)
async def test_a_result_that_cannot_be_stored_fails_its_phase(result, why):
    pipeline = Pipeline("stops")
    pipeline.phase("one")(lambda: result)
    fire = Fire.fake()
    with pytest.raises(ConfigurationError, match=why):
        await pipeline(fire)
    [one] = fire.reports[-1]["pipeline"]["phases"]
    assert one["outcome"] == "failed"


async def test_warnings_are_bounded():
    pipeline = Pipeline("stops")

    @pipeline.phase("one")
    def one(run):
        for _ in range(1000):
            run.warn("ü" * 10_000)

    fire = Fire.fake()
    await pipeline(fire)
    assert len(fire.reports[-1]["pipeline"]["phases"][0]["warnings"]) == 30


async def test_a_pipeline_can_be_called_with_a_fake_fire():
    pipeline = Pipeline("stops")

    @pipeline.phase("one")
    def one(run):
        run.keep(seen=run.kept.get("seen", 0) + 1)
        return "done"

    kept = {"pipeline": 1, "values": {"seen": 4}, "sources": {}, "durations": {}}
    fire = Fire.fake(kept=kept)
    await pipeline(fire)
    assert fire.keeps[-1]["values"] == {"seen": 5}
    assert fire.saved[-1]["results"] == {"one": "done"}


# --- run types ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "tables", "expected_type"),
    [
        ({}, True, "cached"),
        ({}, False, "bootstrap"),
        ({"force": True}, True, "complete"),
        ({"mode": "quick"}, True, "complete"),
    ],
)
async def test_rules_are_asked_from_top_to_bottom(scheduled, args, tables, expected_type):
    pipeline = Pipeline(
        "stops",
        modes=("full", "quick"),
        run_types=("complete", "cached", "bootstrap"),
        rules=[
            rule("complete", modes=["quick"]),
            rule("complete", forced=True),
            rule("complete", changed=True),
            rule("cached", when=lambda run: tables),
            rule("bootstrap"),
        ],
    )

    @pipeline.phase("static", run_types=["complete", "bootstrap"], rewrites=["operators", "stops"])
    def static(run): ...

    @pipeline.phase(
        "import", rewrites={"complete": ["osm", "runs"], "bootstrap": ["osm", "runs"], "cached": ["osm"]}
    )
    def import_(run): ...

    scheduler = await scheduled(pipeline)
    await ran(scheduler, **args)
    status = await pipeline_status(scheduler)
    everything = ["operators", "stops", "osm", "runs"]
    rewritten = ["osm"] if expected_type == "cached" else everything
    assert status["run_type"] == expected_type
    assert status["refresh_scope_tables_rewritten"] == rewritten
    assert status["refresh_scope_tables_reused"] == [each for each in everything if each not in rewritten]


async def test_a_run_type_nobody_knows_fails_before_anything_runs(scheduled):
    pipeline, calls = Pipeline("stops", run_types=("complete",)), []
    pipeline.run_type(lambda run: "complet")
    pipeline.phase("one")(lambda run: calls.append(1))
    fire = await ran(await scheduled(pipeline))
    assert fire.state == "failed"
    assert "no run type 'complet'; it has complete" in fire.error
    assert passed(fire) == {"initializing": "failed"}
    assert not calls


async def test_a_choice_that_fails_is_on_record(scheduled, caplog):
    pipeline = Pipeline("stops")
    pipeline.run_type(lambda run: 1 / 0)
    pipeline.phase("one")(lambda run: None)
    fire = await ran(await scheduled(pipeline))
    assert passed(fire) == {"initializing": "failed"}
    assert "ZeroDivisionError" in caplog.text


def refused(match):
    return pytest.raises(ConfigurationError, match=match)


def test_declarations_are_checked():
    pipeline = Pipeline("stops", modes=("full", "match-import"))
    with refused("did you mean"):
        pipeline.phase("a", modes=["match-imprt"])
    with refused("as a list"):
        pipeline.phase("a", modes="full")
    with refused("no run type"):
        pipeline.phase("a", rewrites={"cached": ["x"]})
    with refused("takes the run, or nothing"):
        pipeline.phase("a")(lambda run, more: None)
    pipeline.phase("a")(lambda: None)
    with refused("already"):
        pipeline.phase("a")
    with refused("already"):
        pipeline.phase("source_probe")
    scheduler = Scheduler(store="memory://")
    with refused("no mode 'ful'; it has full, match-import"):
        scheduler.job(every(hours=1), args={"mode": "ful"})(pipeline)
    with refused("finds a function by its name"):
        scheduler.job(every(hours=1), executor="process")(pipeline)
    assert repr(pipeline) == "<Pipeline stops: a>"
