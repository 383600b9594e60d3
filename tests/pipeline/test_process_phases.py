"""Phases in processes of their own: what they see and leave, how they fail, and how they are ended."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from fencepost import ConfigurationError, Fire, Pipeline, Retry, Scheduler, every
from fencepost.testing import virtual
from tests.pipeline.apps import apart
from tests.unit.apps.waiting import eventually


def of_one(function, **options):
    pipeline = Pipeline("stops")
    pipeline.phase("apart", executor="process", **options)(function)
    return pipeline


async def ran(scheduler):
    handle = await scheduler.trigger("stops")
    return await handle.wait(timeout=60)


def phase_of(fire, name="apart"):
    return next(each for each in fire.progress["pipeline"]["phases"] if each["name"] == name)


async def test_it_sees_the_run_and_what_it_leaves_is_the_runs(scheduled):
    pipeline, seen = Pipeline("stops"), {}

    @pipeline.phase("load")
    def load():
        return 4

    pipeline.phase("apart", executor="process")(partial(apart.tell, factor=2))

    @pipeline.phase("after")
    def after(run):
        seen.update(run.results["apart"])

    scheduler = await scheduled(pipeline)
    begun = time.time()
    fire = await ran(scheduler)
    assert fire.state == "succeeded", fire.error
    assert seen["pid"] != os.getpid()
    assert seen["seen"] == ["full", "complete", 4, {}, 2]
    assert begun - 1 < seen["now"] < time.time() + 1
    assert phase_of(fire)["warnings"] == ["a row was left out"]
    again = await ran(scheduler)
    assert again.state == "succeeded"
    assert seen["seen"][3] == {"rows": 3}, "what the first run kept"


async def test_a_coroutine_and_a_phase_without_the_run(scheduled):
    pipeline, seen = of_one(apart.coroutine), []

    @pipeline.phase("after")
    def after(run):
        seen.append(run.results["apart"])

    assert (await ran(await scheduled(pipeline))).state == "succeeded"
    assert seen != [os.getpid()]


async def test_what_it_raises_fails_the_phase(scheduled, caplog):
    fire = await ran(await scheduled(of_one(apart.fail)))
    assert (fire.state, phase_of(fire)["outcome"]) == ("failed", "failed")
    assert phase_of(fire)["error"] == "ValueError: row 17 has no name"
    assert "in fail" in fire.error, "the traceback of the process"
    assert "row 17 has no name" in caplog.text


async def test_a_process_that_is_killed_fails_the_phase_and_what_it_saved_stands(scheduled):
    pipeline = of_one(partial(apart.save_and_die, folder=""))
    fire = await ran(await scheduled(pipeline, retry=Retry(attempts=2, first=0.05, on=Exception)))
    assert fire.state == "succeeded", fire.error
    first, second = fire.attempts
    assert "killed by SIGKILL" in first.error
    assert second.outcome == "succeeded"
    assert phase_of(fire)["attempt"] == 2


async def test_an_effect_that_is_committed_ends_the_phase(scheduled):
    fire = await ran(await scheduled(of_one(apart.done_before)))
    assert fire.state == "succeeded", fire.error
    assert phase_of(fire)["warnings"] == ["an earlier attempt has committed it"]


@pytest.mark.parametrize("end", ["cancel", "timeout", "stop"])
async def test_it_is_ended_with_its_run(scheduled, tmp_path, end):
    """Cancelled, out of time, or given back at a graceful stop: no process is left, and only then is it settled."""
    policies = {"timeout": 1.5} if end == "timeout" else {}
    scheduler = await scheduled(of_one(partial(apart.wait, folder=str(tmp_path))), **policies)
    handle = await scheduler.trigger("stops")
    told = tmp_path / "pid-1"
    await eventually(lambda: told.exists() and told.read_text(), seconds=30)
    if end == "cancel":
        await scheduler.cancel(handle.key)
    if end == "stop":
        await scheduler.stop()
        await eventually(lambda: not alive(told))
        return
    fire = await handle.wait(timeout=60)
    assert fire.state == ("cancelled" if end == "cancel" else "failed")
    assert not alive(told)


def alive(told: Path) -> bool:
    return Path(f"/proc/{told.read_text()}").exists()


async def test_work_that_holds_the_interpreter_costs_no_heartbeat(scheduled):
    """The reason to have it: in a thread this phase would stop everything in the process, heartbeats included."""
    seconds = 4.0
    scheduler = await scheduled(of_one(partial(apart.hold_the_interpreter, seconds=seconds)))
    fire = await ran(scheduler)
    assert fire.state == "succeeded", fire.error
    assert (fire.crashes, len(fire.attempts)) == (0, 1)


async def test_sources_are_for_the_phases_before(scheduled):
    fire = await ran(await scheduled(of_one(apart.download)))
    assert "download it in a phase before" in phase_of(fire)["error"]


def test_in_virtual_time_and_with_a_fake_fire_it_is_a_thread(tmp_path):
    pipeline, seen = of_one(apart.coroutine), []

    @pipeline.phase("after")
    def after(run):
        seen.append(run.results["apart"])

    scheduler = Scheduler(store="memory://")
    scheduler.job(every(hours=1))(pipeline)
    with virtual(scheduler, start=datetime(2026, 11, 15, tzinfo=UTC)) as t:
        t.advance(hours=2)
    assert seen == [os.getpid()] * 2


async def test_by_itself_with_a_fake_fire():
    await of_one(apart.coroutine)(Fire.fake())


class Somewhere:
    def method(self, run): ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda run: None, "define it at the top of a module"),
        (Somewhere().method, "functools.partial"),
        (partial(apart.tell, 3, factor=2), "name the arguments of its partial"),
        (partial(apart.wait, folder=Path("/tmp")), "the arguments of phase apart of stops"),
    ],
)
def test_what_another_interpreter_cannot_find_is_refused(function, told):
    with pytest.raises((ConfigurationError, TypeError), match=told):
        of_one(function)


def test_an_unknown_executor_is_refused():
    with pytest.raises(ConfigurationError, match='use "process", or leave it out'):
        Pipeline("stops").phase("apart", executor="celery")
