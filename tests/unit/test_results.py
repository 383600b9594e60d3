"""What a body returns is kept with its fire, as far as it is JSON."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import logging

import pytest

from fencepost import RunFailed, Scheduler, every
from fencepost.runs.fire import RESULT_LIMIT
from fencepost.testing import virtual
from tests.unit.apps import results


async def asynchronous():
    await asyncio.sleep(0)
    return {"rows": 3}


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (lambda: {"rows": [1, 2]}, {"rows": [1, 2]}),
        (lambda: (1, "two"), [1, "two"]),
        (lambda: 0, 0),
        (lambda: None, None),
        (asynchronous, {"rows": 3}),
    ],
)
def test_what_a_body_returns_is_kept(body, kept):
    scheduler = Scheduler("memory://")
    scheduler.job(every(minutes=1), id="job")(body)
    with virtual(scheduler) as t:
        t.advance(minutes=1)
        [fire] = t.fires("job", "succeeded")
    assert (fire.result, type(fire.result)) == (kept, type(kept))


@pytest.mark.parametrize("returned", [object(), "x" * (RESULT_LIMIT + 1), {1: object()}])
def test_what_cannot_be_kept_is_dropped_with_one_warning_per_job(returned, caplog):
    scheduler = Scheduler("memory://")
    for id in ("one", "two"):
        scheduler.job(every(minutes=1), id=id)(lambda: returned)
    with caplog.at_level(logging.WARNING, "fencepost"), virtual(scheduler) as t:
        t.advance(minutes=5)
        fires = t.fires(state="succeeded")
    assert len(fires) == 10
    assert {fire.result for fire in fires} == {None}
    warnings = [record.getMessage() for record in caplog.records if "not kept" in record.getMessage()]
    assert sorted(text.partition(": ")[0].split(" cannot")[0] for text in warnings) == [
        "the result of job one",
        "the result of job two",
    ]


async def test_a_handle_answers_with_the_result_or_says_why_there_is_none():
    scheduler = Scheduler("memory://")
    scheduler.task(lambda n: {"n": n + 1}, id="work")
    scheduler.task(lambda: 1 / 0, id="broken")
    async with scheduler:
        handle = await scheduler.trigger("work", args={"n": 1})
        assert await handle.result(timeout=60) == {"n": 2}
        broken = await scheduler.trigger("broken")
        with pytest.raises(RunFailed, match=r"is failed: raised an exception \(ZeroDivisionError") as failed:
            await broken.result(timeout=60)
        blocking = await asyncio.to_thread(lambda: scheduler.sync.trigger("work", args={"n": 2}).result(10))
    assert failed.value.state == "failed"
    assert blocking == {"n": 3}


async def test_a_body_in_a_process_of_its_own_returns_as_well(tmp_path, caplog):
    scheduler = Scheduler("memory://")
    for function in (results.rows, results.strange, results.later):
        scheduler.task(function, id=function.__name__, executor="process")
    scheduler.command(["true"], every(days=1), id="command")
    async with scheduler:
        handles = [await scheduler.trigger(id) for id in ("rows", "strange", "later", "command")]
        assert [await handle.result(timeout=60) for handle in handles] == [{"rows": 3}, None, "later", None]
    assert any("the result of job strange cannot be stored" in each.getMessage() for each in caplog.records)
