"""The ways to run a job, with real threads and processes: one suite, on every store."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import time

import pytest

from fencepost import Scheduler, every
from tests.execution.apps import ways
from tests.execution.places import PLACES, url_of
from tests.unit.apps.waiting import eventually

pytestmark = pytest.mark.cluster

SELDOM = every(days=300)
PATIENCE = 30.0
"""Seconds to wait for what takes one or two on an idle machine."""


@pytest.fixture
async def scheduler(request, tmp_path):
    scheduler = Scheduler(
        store=url_of(request.param, tmp_path, request),
        run_ttl="2s",
        leader_ttl="2s",
        heartbeat="0.3s",
        drain_timeout="1s",
    )
    yield scheduler
    await scheduler.stop()


class Way:
    """Declares jobs, each run in this way: one that works, one that fails, and two that never end by themselves."""

    jobs = ("works", "fails", "endless")

    def declare(self, scheduler, folder):
        for job in self.jobs:
            policies = {"timeout": 1.5} if job == "endless" else {}
            self.one(scheduler, job, job, str(folder), policies)
        self.one(scheduler, "patient", "endless", str(folder), {})

    def one(self, scheduler, id, body, folder, policies):
        function = getattr(ways, f"{body}{self.suffix}")
        scheduler.job(SELDOM, id=id, args={"folder": folder}, executor=self.executor, **policies)(function)


class Coroutine(Way):
    suffix, executor = "_async", None


class Thread(Way):
    suffix, executor = "", None


class Process(Way):
    suffix, executor = "", "process"


class Command(Way):
    def one(self, scheduler, id, body, folder, policies):
        commands = {
            "works": "echo $FIRE_KEY > works; echo said",
            "fails": "echo no such thing; exit 3",
            "endless": "echo begun > endless; sleep 600",
        }
        scheduler.command(commands[body], SELDOM, id=id, shell=True, cwd=folder, **policies)


WAYS = [Coroutine(), Thread(), Process(), Command()]
QUICK = {("memory", Coroutine), ("sqlite", Thread), ("sqlite", Process), ("file", Command)}
QUICK |= {("valkey", Process), ("postgres", Thread)}
"""Each way and each store; `make test-all` runs the other pairs."""
PAIRS = [
    pytest.param(
        place,
        way,
        id=f"{place}-{type(way).__name__}",
        marks=() if (place, type(way)) in QUICK else pytest.mark.slow,
    )
    for place in PLACES
    for way in WAYS
]


@pytest.mark.parametrize(("scheduler", "way"), PAIRS, indirect=["scheduler"])
async def test_a_job_runs_fails_times_out_and_is_cancelled(scheduler, way, tmp_path):
    way.declare(scheduler, tmp_path)
    async with scheduler:
        works, fails, endless = [await scheduler.trigger(job) for job in way.jobs]
        fire = await works.wait(timeout=PATIENCE)
        assert (fire.state, fire.reason, fire.attempt) == ("succeeded", None, 1)
        assert (tmp_path / "works").read_text().strip() == fire.key
        assert fire.output.endswith("said")

        fire = await fails.wait(timeout=PATIENCE)
        assert (fire.state, fire.reason) == ("failed", "raised an exception")
        assert "no such thing" in fire.error

        fire = await endless.wait(timeout=PATIENCE)
        assert (fire.state, fire.reason) == ("failed", "timed out")
        timed_out, _, goes_on = fire.error.partition("; ")
        assert timed_out == "timed out after 0:00:01.500000"
        assert goes_on.startswith("a thread cannot be stopped") is isinstance(way, Thread)

        (tmp_path / "endless").unlink(missing_ok=True)
        again = await scheduler.trigger("patient")
        await eventually((tmp_path / "endless").exists, PATIENCE)
        begun = time.monotonic()
        await scheduler.cancel(again.key)
        fire = await again.wait(timeout=PATIENCE)
        assert (fire.state, fire.reason) == ("cancelled", "on request")
        assert time.monotonic() - begun < 2.0
