"""`Fire.fake`: a job's function called directly."""

# mypy: no-check-untyped-defs

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fencepost import ConfigurationError, FencedOut, Fire, RunCancelled, current_fire
from fencepost.testing import FakeFire


def copy_pages(fire: Fire) -> int:
    """Saves after each page, and goes on where the attempt before was cut off."""
    first = (fire.checkpoint or {"page": 0})["page"]
    for page in range(first, fire.args["pages"]):
        fire.check()
        fire.report(done=page, total=fire.args["pages"], message=f"page {page}")
        fire.save({"page": page + 1}).wait()
    return fire.args["pages"] - first


def test_what_a_function_reports_and_saves_can_be_looked_at():
    fire = Fire.fake({"pages": 3})
    assert copy_pages(fire) == 3
    assert fire.saved == [{"page": 1}, {"page": 2}, {"page": 3}]
    assert fire.reports[-1] == {"done": 2, "total": 3, "message": "page 2"}
    assert fire.checkpoint == {"page": 3}


def test_a_further_attempt_finds_the_checkpoint():
    fire = Fire.fake(args={"pages": 3}, attempt=2, token=8, checkpoint={"page": 2})
    assert copy_pages(fire) == 1
    assert (fire.attempt, fire.token) == (2, 8)


async def test_a_checkpoint_can_be_awaited():
    fire = Fire.fake()
    await fire.save([1])
    assert fire.saved == [[1]]


def test_its_values_are_those_of_a_real_fire():
    due = datetime(2026, 3, 29, 1, tzinfo=UTC)
    fire = Fire.fake(job_id="report", due_at=due)
    assert isinstance(fire, Fire)
    assert (fire.key, fire.job_id, fire.due_at) == ("report@2026-03-29T01:00:00.000000Z", "report", due)
    assert (fire.scheduled, fire.token, fire.attempt, fire.args, fire.checkpoint) == (True, 1, 1, {}, None)
    assert not fire.fenced_out
    by_hand = Fire.fake(job_id="report", scheduled=False)
    assert (by_hand.key, by_hand.scheduled) == ("report!fake", False)


def test_a_run_that_is_fenced_out_is_told():
    fire = Fire.fake({"pages": 3})
    fire.fence()
    assert fire.fenced_out
    with pytest.raises(FencedOut):
        copy_pages(fire)
    with pytest.raises(FencedOut):
        fire.save({"page": 1}).wait()
    assert fire.saved == []


def test_a_run_that_is_cancelled_is_told():
    fire = Fire.fake({"pages": 3})
    fire.cancel()
    with pytest.raises(RunCancelled):
        copy_pages(fire)


def test_it_can_be_the_current_fire():
    with Fire.fake(job_id="outer") as outer:
        with FakeFire(job_id="inner") as inner:
            assert current_fire() is inner
        assert current_fire() is outer
    with pytest.raises(ConfigurationError, match="only inside a job"):
        current_fire()


@pytest.mark.parametrize(
    "values", [{"args": {"when": datetime}}, {"checkpoint": {1: 2}}, {"due_at": datetime(2026, 1, 1)}]
)
def test_what_no_real_fire_could_have_is_refused(values):
    with pytest.raises(ConfigurationError):
        Fire.fake(**values)
