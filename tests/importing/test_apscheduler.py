"""`fencepost import apscheduler`: the corpus against APScheduler itself, as the scheduler and as a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fencepost.cli.migrate import apscheduler
from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.values import FunctionCall, Imported
from fencepost.errors import ConfigurationError
from tests.importing.oracles import first

CORPUS = Path(__file__).parent / "corpus" / "jobs.py"
COUNT = 50
SPRING = datetime(2026, 3, 20, 10, tzinfo=UTC)
LEFT_OUT = {"week-of-the-year", "friday-the-13th", "either", "not-plain"}
COUNTED_FROM_THE_START = {
    "decorated-interval",
    "positional",
    "ninety",
    "coroutine",
    "by-text",
    "imported",
    "of-a-module",
}


@pytest.fixture(scope="module")
def jobs() -> Iterator[ModuleType]:
    with imported(CORPUS) as module:
        yield module


@contextmanager
def imported(path: Path) -> Iterator[ModuleType]:
    spec = util.spec_from_file_location("aps_corpus", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["aps_corpus"] = module  # APScheduler finds functions by name
    spec.loader.exec_module(module)
    yield module
    del sys.modules["aps_corpus"]


@pytest.fixture(scope="module")
def found(jobs: ModuleType) -> Imported:
    return apscheduler.read_scheduler(jobs.scheduler, "jobs:scheduler", None)


def run_by_apscheduler(trigger: Any, after: datetime) -> Iterator[datetime]:
    """What its scheduler does: asks for the next time, given the last one and the time that it is. In elapsed time, and
    each time once: near a repeated hour it answers times that have been."""
    previous, now, last = None, after, after
    for _ in range(2000):
        fire = trigger.get_next_fire_time(previous, now.astimezone(getattr(trigger, "timezone", UTC)))
        if fire is None:
            return
        moment = fire.astimezone(UTC)
        if moment > last:
            yield moment
            last = moment
        previous, now = fire, max(now, moment) + timedelta(microseconds=1)


def test_the_next_50_fires_are_apschedulers(tmp_path: Path) -> None:
    """In zones whose clocks do not change: around a change APScheduler loses fires."""
    text = CORPUS.read_text(encoding="utf-8")
    steady = tmp_path / "steady.py"
    steady.write_text(text.replace("Europe/Zurich", "Asia/Kolkata").replace("America/New_York", "Asia/Tokyo"))
    with imported(steady) as module:
        triggers = {job.id: job.trigger for job in module.scheduler.get_jobs()}
        jobs = apscheduler.read_scheduler(module.scheduler, "jobs:scheduler", None).jobs
    for job in jobs:
        if job.id not in COUNTED_FROM_THE_START:
            trigger = triggers[job.id]
            if job.id == "jittered":
                trigger.jitter = None
            compared = compare(job, SPRING, COUNT)
            expected = first(run_by_apscheduler(trigger, SPRING), len(compared.old))
            assert list(compared.old) == list(compared.new) == expected, f"{job.id}: {job.schedule}"
            assert not compared.difference, job.id


def test_a_skipped_time_is_reported(jobs: ModuleType, found: Imported) -> None:
    """APScheduler runs it as much later as the clock was advanced, Fencepost when the gap ends."""
    triggers = {job.id: job.trigger for job in jobs.scheduler.get_jobs()}
    for job in found.jobs:
        if job.id in ("decorated", "hourly", "quarter-hours", "office"):
            compared = compare(job, SPRING, COUNT)
            assert list(compared.old) == first(run_by_apscheduler(triggers[job.id], SPRING), COUNT), job.id
            gap = datetime(2026, 3, 29, 1, 0, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
            reported = (*compared.at_changes.only_new[:1], *compared.at_changes.only_old[:1])
            assert reported == (gap if job.id == "decorated" else ()), job.id


def test_jobs_and_what_is_left_out(jobs: ModuleType, found: Imported) -> None:
    ids = {job.id for job in jobs.scheduler.get_jobs()}
    assert {job.id for job in found.jobs} == ids - LEFT_OUT
    assert {entry.origin for entry in found.left_out} == {f"job {id!r}" for id in LEFT_OUT}
    assert all(entry.why and entry.remedy for entry in found.left_out)


def test_the_file_says_the_same_without_being_run(found: Imported) -> None:
    of_file = apscheduler.read_source(CORPUS.read_text(encoding="utf-8"), "aps_corpus", "UTC")
    assert len(of_file.left_out) == len(LEFT_OUT)
    there = {job.id: job for job in found.jobs}
    assert {job.id for job in of_file.jobs} == set(there)
    for job in of_file.jobs:
        assert job.trigger == there[job.id].trigger, job.id
        assert job.policies == there[job.id].policies, job.id
        if job.id not in (
            "by-text",
            "imported",
            "of-a-module",
        ):  # which are posix:getcwd and the like when imported
            assert job.body == there[job.id].body, job.id


def test_calls_and_policies(found: Imported) -> None:
    jobs = {job.id: job for job in found.jobs}
    assert jobs["positional"].body == FunctionCall("aps_corpus", "work", [3], {"region": "de"})
    assert jobs["positional"].policies == {"overlap": "allow(3)"}
    assert jobs["ninety"].policies == {"misfire": "skip", "misfire_after": 600}
    assert jobs["coroutine"].body == FunctionCall("aps_corpus", "wait", [], {}, is_async=True)
    assert "jitter" in jobs["jittered"].notes[0].what


def test_a_file_is_not_executed(tmp_path: Path) -> None:
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(): pass\ns.add_job(f, 'cron', hour=1)\n"
    assert [job.id for job in apscheduler.read_source(text, "m", "UTC").jobs] == ["f"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "line",
    [
        "s.add_job(lambda: 1, 'cron', hour=1)",
        "s.add_job(elsewhere, 'cron', hour=1)",
        "s.add_job(f)",
        "s.add_job(f, 'cron', hours=1)",
        "s.add_job(f, 'cron', hour=HOUR)",
        "s.add_job(f, 'cron', hour='25')",
        "s.add_job(f, 'cron', hour=1, timezone='Europe/Zurch')",
        "s.add_job(f, 'cron', **options)",
        "s.add_job(f, trigger)",
        "s.add_job(f, 'interval', minutes='five')",
        "s.add_job(f, 'interval', fortnights=1)",
        "s.add_job(f, 'calendarinterval', months=1)",
        "s.add_job(f, CronTrigger('2026'))",
        "s.add_job(f, 'date', run_date='tomorrow')",
        "s.add_job(self.f, 'cron', hour=1)",
        "s.add_job(f, 'interval', 3, hours=1)",
        "s.add_job(f, 'interval', [1], {'regionde'}, hours=1)",
    ],
)
def test_lines_that_are_left_out(line: str) -> None:
    found = apscheduler.read_source(f"def f(): pass\n{line}\n", "m", "UTC")
    assert not found.jobs
    [entry] = found.left_out
    assert entry.why
    assert entry.remedy


def test_a_zone_that_is_computed_is_not_known() -> None:
    text = "s = BlockingScheduler(timezone=here())\ndef f(): pass\ns.add_job(f, 'cron', hour=1)"
    [job] = apscheduler.read_source(text, "m", "Asia/Tokyo").jobs
    assert job.tz == "Asia/Tokyo"


def test_a_file_whose_name_is_no_module() -> None:
    [entry] = apscheduler.read_source(
        "def f(): pass\ns.add_job(f, 'cron', hour=1)", "my-jobs", "UTC"
    ).left_out
    assert "imported" in entry.why


def test_what_is_no_scheduler_is_refused() -> None:
    with pytest.raises(ValueError, match="not an APScheduler"):
        apscheduler.read_scheduler(object(), "m:x", None)
    with pytest.raises(ConfigurationError):
        apscheduler.read_source("def", "m", "UTC")
