"""What is changed in one process holds for all, attribute by attribute; and what holds when versions meet."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from fencepost import ConfigurationError
from fencepost.model.triggers import every
from tests.guard.kit import eventually, guarded

CALLS: list[tuple[str, object]] = []
OFTEN = {"trigger": "interval", "seconds": 1, "id": "x", "misfire_grace_time": 30}
SELDOM = {**OFTEN, "seconds": 3600}


def greet(name="nobody"):
    CALLS.append(("greet", name))


def part(name="nobody"):
    CALLS.append(("part", name))


@pytest.fixture(autouse=True)
def _forget_calls():
    CALLS.clear()


def known_by(ledger, number, name="x"):
    """Until so many processes know the job."""
    eventually(lambda: sum(name in each.targets for each in ledger.roster().replicas) == number, 60)
    eventually(lambda: name in ledger.jobs(), 60)


def run_by_hand(watch, times=1):
    for _ in range(times):
        watch.native.sync.trigger("x")


@pytest.mark.parametrize(
    ("changes", "called"),
    [
        ({"args": ["Ada"]}, ("greet", "Ada")),
        ({"kwargs": {"name": "Ada"}}, ("greet", "Ada")),
        ({"func": part, "args": ["Ada"]}, ("part", "Ada")),
        ({"func": "tests.guard.test_changes:part"}, ("part", "nobody")),
    ],
)
def test_what_is_called_changes_for_all_processes(url, ledger, changes, called):
    with guarded(url, (greet, SELDOM)) as (first, _), guarded(url, (greet, SELDOM)) as (_, second):
        known_by(ledger, 2)
        first.modify_job("x", **changes)
        eventually(lambda: ledger.jobs()["x"].job.args, 60)
        first.pause()  # the other one runs it, also before it has noticed by itself
        run_by_hand(second)
        eventually(lambda: CALLS, 60)
        assert [called] == CALLS


def test_a_process_that_does_not_know_the_function_leaves_the_job_to_others(url, ledger, caplog):
    job = (time.sleep, {**SELDOM, "args": [0]})
    with guarded(url, job) as (first, watch), guarded(url, job):
        known_by(ledger, 2)
        first.modify_job("x", func=greet, args=["Ada"])
        known_by(ledger, 1)
        run_by_hand(watch)
        eventually(lambda: ("greet", "Ada") in CALLS, 60)
        assert "it leaves the job to others" in caplog.text


def test_arguments_that_other_processes_could_not_read_are_refused_before_anything_changes(url, ledger):
    with guarded(url, (greet, SELDOM)) as (scheduler, watch):
        known_by(ledger, 1)
        for changes in ({"args": [object()]}, {"args": [(1, 2)]}, {"func": lambda: None, "max_instances": 3}):
            with pytest.raises(ConfigurationError, match="cannot be given"):
                scheduler.modify_job("x", **changes)
        run_by_hand(watch)
        eventually(lambda: CALLS == [("greet", "nobody")], 60)
        assert scheduler.get_job("x").max_instances == 1


def test_two_processes_that_change_different_attributes_keep_both(url, ledger):
    with guarded(url, (greet, SELDOM)) as (first, _), guarded(url, (greet, SELDOM)) as (second, _):
        known_by(ledger, 2)
        first.reschedule_job("x", trigger="interval", seconds=1800)
        first.modify_job("x", args=["Ada"])
        eventually(lambda: ledger.jobs()["x"].job.args.get("args") == ["Ada"], 60)
        second.modify_job("x", max_instances=3)
        eventually(lambda: str(ledger.jobs()["x"].job.overlap) == "allow(3)", 60)
        kept = ledger.jobs()["x"].job
        assert (kept.trigger.interval, kept.args["args"]) == (timedelta(minutes=30), ["Ada"])


def test_a_deploy_that_is_rolled_back_gets_its_schedule_back(url, ledger):
    older, newer = (greet, SELDOM), (greet, {**SELDOM, "seconds": 1800})

    def interval():
        return ledger.jobs()["x"].job.trigger.interval

    with guarded(url, older):
        known_by(ledger, 1)
        with guarded(url, newer):
            eventually(lambda: interval() == timedelta(minutes=30), 60)
            with guarded(url, older):
                known_by(ledger, 3)
                assert interval() == timedelta(minutes=30)
        eventually(lambda: interval() == timedelta(hours=1), 60)


def test_a_start_that_was_given_in_fractions_of_a_second_is_kept(url, ledger):
    start = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    with guarded(url, (greet, {**SELDOM, "start_date": start})):
        known_by(ledger, 1)
        assert ledger.jobs()["x"].job.trigger == every(hours=1, anchor=start - timedelta(hours=1))
