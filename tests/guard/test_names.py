"""What guarded jobs are called, and which are guarded at all."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from fencepost import ConfigurationError, UsageError
from fencepost.apscheduler import guard
from fencepost.apscheduler.names import given_name, is_made_up
from fencepost.apscheduler.registry import GuardedJobs, Terms
from fencepost.model.triggers import every

DEFAULTS = {"misfire_grace_time": 1, "coalesce": True, "max_instances": 1}


def work(*args, **keywords):
    pass


def roll(misfire=None, unguarded=()):
    return GuardedJobs(Terms("any", misfire, frozenset(unguarded), DEFAULTS))


def drafted(on=None, **options):
    """A job as a process would have it: its own scheduler, its own made-up id, its own start of the interval."""
    options = {"trigger": "interval", "seconds": 5, "func": work, **options}
    job = BackgroundScheduler(timezone="UTC").add_job(**options)
    return (on or roll()).drafted(job, "default", shared=False)


def test_a_job_without_an_id_has_the_same_name_in_every_process():
    one, other = (
        drafted(args=[1, {"b", "a"}], kwargs={"x": {"k": 2}}),
        drafted(args=[1, {"a", "b"}], kwargs={"x": {"k": 2}}),
    )
    assert one.job.id != other.job.id
    assert one.name == other.name
    assert one.name.startswith(f"{__name__}:work-".replace("/", "."))
    assert one.native == other.native


def test_function_trigger_and_arguments_tell_jobs_apart():
    names = {
        drafted().name,
        drafted(seconds=6).name,
        drafted(args=[1]).name,
        drafted(args=["1"]).name,
        drafted(kwargs={"a": 1}).name,
        drafted(func=len, args=[[]]).name,
    }
    assert len(names) == 6


def test_jobs_that_are_alike_in_everything_are_numbered():
    names = roll()
    for _ in range(3):
        names.enter(drafted(names))
    first, *others = (each.name for each in names.all())
    assert others == [f"{first}-2", f"{first}-3"]


def test_an_id_that_was_given_is_the_name():
    assert drafted(id="nightly.report:ch").name == "nightly.report:ch"


@pytest.mark.parametrize("id", ["tidy up / daily", "ünïcode", "x" * 300, ""])
def test_an_id_that_does_not_fit_is_told_apart_from_its_like(id):
    assert given_name(id) != given_name(id + "!")
    assert given_name(id) == given_name(id)


def test_made_up_ids_are_known_for_what_they_are():
    assert is_made_up(uuid4().hex)
    assert not is_made_up(str(uuid4()))
    assert not is_made_up("deadbeef" * 4)


def test_a_lambda_needs_an_id():
    with pytest.raises(
        ConfigurationError, match="has no name that other processes could know it by; give the job an id="
    ):
        drafted(func=lambda: None)
    assert drafted(func=lambda: None, id="given").name == "given"


def test_an_argument_that_is_told_by_its_address_needs_an_id():
    with pytest.raises(ConfigurationError, match="differs in every process.*give it an id="):
        drafted(args=[object()])
    assert drafted(args=[object()], id="given").name == "given"


def test_one_off_work_without_an_id_is_this_processs_own():
    job = BackgroundScheduler(timezone="UTC").add_job(work, "date")
    assert roll().drafted(job, "default", shared=False) is None
    assert roll().drafted(job, "default", shared=True).name == job.id  # a row that all processes see


def test_a_job_that_every_start_would_add_to_a_shared_store_again_needs_an_id():
    job = BackgroundScheduler(timezone="UTC").add_job(work, "interval", seconds=5)
    with pytest.raises(
        ConfigurationError, match="every start of every process would add it.*replace_existing=True"
    ):
        roll().drafted(job, "default", shared=True, being_added=True)
    assert roll().drafted(job, "default", shared=True).name == job.id  # one that is there already


def test_a_trigger_that_cannot_be_converted_is_refused_with_a_way_out():
    class Odd(IntervalTrigger):
        pass

    odd = BackgroundScheduler().add_job(work, Odd(seconds=5), id="odd")
    with pytest.raises(ConfigurationError, match=r"'odd' cannot be guarded.*unguarded=\['odd'\]"):
        roll().drafted(odd, "default", shared=False)
    assert roll(unguarded=["odd"]).drafted(odd, "default", shared=False) is None


def test_two_jobs_of_one_name_are_refused():
    names = roll()
    names.enter(drafted(names, id="twin"))
    other = BackgroundScheduler(timezone="UTC").add_job(work, "interval", seconds=5, id="twin")
    with pytest.raises(ConfigurationError, match="two jobs are called 'twin'"):
        names.enter(names.drafted(other, "another", shared=False))


@pytest.mark.parametrize(
    ("options", "policies"),
    [
        ({}, ("skip", "skip", 1.0)),
        ({"misfire_grace_time": 90}, ("skip", "skip", 90.0)),
        ({"misfire_grace_time": 10**9}, ("skip", "skip", 366 * 86_400.0)),
        ({"misfire_grace_time": None}, ("skip", "latest", 1.0)),
        ({"misfire_grace_time": None, "coalesce": False}, ("skip", "all", 1.0)),
        ({"max_instances": 3}, ("allow(3)", "skip", 1.0)),
    ],
)
def test_policies_are_what_the_job_says(options, policies):
    job = drafted(**options).native
    assert (str(job.overlap), job.misfire, job.misfire_after.total_seconds()) == policies


def test_late_fires_can_be_run_whatever_the_grace_time():
    job = drafted(roll(misfire="latest")).native
    assert (job.misfire, job.misfire_after.total_seconds()) == ("latest", 1.0)


def test_an_interval_without_a_start_is_anchored_by_the_store():
    assert drafted().native.trigger == every(seconds=5)


def test_jitter_is_spread_by_the_name_of_the_job():
    one, other = drafted(jitter=2, id="a").native.trigger, drafted(jitter=2, id="b").native.trigger
    assert one != other
    with pytest.raises(
        ConfigurationError, match="a jitter of 5 s is as long as from one fire to the next.*lower it"
    ):
        drafted(jitter=5, id="a")


def test_what_guard_refuses(url):
    with pytest.raises(ConfigurationError, match="object cannot be guarded; use APScheduler 3.x"):
        guard(object(), url)
    scheduler = BackgroundScheduler()
    with pytest.raises(ConfigurationError, match=r"give a list of job ids, as \['refresh'\]"):
        guard(scheduler, url, unguarded="refresh")
    with pytest.raises(
        ConfigurationError, match="misfire='never' is not known; use one of latest, all, skip"
    ):
        guard(scheduler, url, misfire="never")
    with pytest.raises(ConfigurationError, match="did you mean 'heartbeat'"):
        guard(scheduler, url, hartbeat=3)
    with pytest.raises(ConfigurationError, match="wrong://"):
        guard(scheduler, "wrong://somewhere")
    assert "start" not in vars(scheduler)  # nothing has been done to it
    guard(scheduler, url)
    with pytest.raises(UsageError, match="guarded already"):
        guard(scheduler, url)


def test_a_job_that_cannot_be_guarded_is_said_at_once_and_not_added(url):
    scheduler = BackgroundScheduler()
    scheduler.add_job(lambda: None, "interval", seconds=1)
    with pytest.raises(ConfigurationError, match="give the job an id="):
        guard(scheduler, url)


def test_utc_has_one_name_whatever_the_variable_says():
    names = {
        roll()
        .drafted(BackgroundScheduler(timezone=zone).add_job(work, "cron", hour=2), "default", False)
        .name
        for zone in ("UTC", "Etc/UTC", "Zulu")
    }
    assert len(names) == 1


def test_a_job_has_one_name_however_its_module_and_the_zone_are_called(tmp_path):
    (tmp_path / "app.py").write_text(
        "from apscheduler.schedulers.background import BackgroundScheduler\n"
        "from tests.guard.test_names import roll\n"
        "def work(): pass\n"
        "job = BackgroundScheduler().add_job(work, 'cron', hour=5)\n"
        "print(roll().drafted(job, 'default', False).name)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    names = {
        subprocess.run(
            [sys.executable, *how], cwd=tmp_path, env={**env, "TZ": zone}, check=True, capture_output=True
        ).stdout
        for how, zone in ((["app.py"], "UTC"), (["-m", "app"], "Etc/UTC"), (["-c", "import app"], "UTC"))
    }
    assert len(names) == 1


def test_an_extension_that_holds_the_scheduler_is_guarded(url):
    class Extension:
        scheduler = BackgroundScheduler(timezone="UTC")

    assert guard(Extension(), url).scheduler is Extension.scheduler
