"""Whatever is wrong is refused before anything runs, and the message names the remedy."""

# mypy: no-check-untyped-defs, disable-error-code="arg-type"

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fencepost import ConfigurationError, Retry, Scheduler, Settings, UsageError, at, cron, every
from fencepost.store.urls import store_from_url

NAIVE = datetime(2026, 11, 15, 12)
AWARE = NAIVE.replace(tzinfo=UTC)


def refused(call, remedy: str) -> None:
    with pytest.raises((ConfigurationError, UsageError)) as error:
        call()
    assert remedy in str(error.value)
    assert "Traceback" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"heartbeat": 60, "leader_ttl": 30}, "raise leader_ttl to 2m, or lower heartbeat to 15s"),
        (
            {"heartbeat": 20, "run_ttl": 30, "leader_ttl": 60},
            "raise run_ttl to 40s, or lower heartbeat to 15s",
        ),
        ({"horizon": 30}, "raise horizon to 1m"),
        ({"heartbeat": 0}, "raise it to 50ms"),
        ({"heartbeat": "soon"}, "give seconds, or text such as"),
        ({"heartbeat": -1}, "neither negative"),
        ({"slots": 0}, "whole number from 1 to 10000"),
        ({"slots": "many"}, "whole number from 1 to 10000"),
        ({"run_ttl": "2d"}, "lower it to 1d"),
        ({"retention": 0}, "raise it, for instance to 30d"),
        ({"namespace": "a b"}, "use 1 to 100 letters"),
        ({"execute_on": "a b"}, "is not a pool"),
        ({"revision": "v2"}, "such as a build number"),
        ({"heartbeet": 5}, "did you mean 'heartbeat'?"),
        ({"slotts": 5}, "did you mean 'slots'?"),
    ],
)
def test_impossible_settings_are_refused(settings, remedy):
    refused(lambda: Scheduler("memory://", **settings), remedy)
    if not any(name in ("heartbeet", "slotts") for name in settings):
        refused(lambda: Settings(**settings), remedy)


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: cron("30 25 * * *"), 'e.g. "30 2 * * MON-FRI"'),
        (lambda: cron("30 2 * *"), "write minute, hour"),
        (lambda: cron(""), "write minute, hour"),
        (lambda: cron("a b c d e"), "write minute, hour"),
        (lambda: cron("0 0 30 2 *"), "write minute, hour"),
        (lambda: cron(5), 'give a text like "30 2 * * *"'),
        (lambda: cron("0 0 * * *", tz="Europe/Zürich"), "did you mean 'Europe/Zurich'?"),
        (lambda: cron("0 0 * * *", tz="Zurich"), "IANA name"),
        (lambda: cron("0 0 * * *", tz="../etc/passwd"), "IANA name"),
        (lambda: cron("0 0 * * *", tz=None), 'such as "Europe/Zurich"'),
        (lambda: every(minutes=0), "e.g. every(minutes=5)"),
        (lambda: every(minutes=-5), "e.g. every(minutes=5)"),
        (lambda: every(), "e.g. every(minutes=5)"),
        (lambda: every(timedelta(0)), "e.g. every(minutes=5)"),
        (lambda: every(seconds=0.001), "from 10 ms"),
        (lambda: every(weeks=10_000), "to ten years"),
        (lambda: every(seconds="5"), "e.g. every(minutes=5)"),
        (lambda: every(5), "e.g. every(seconds=30)"),
        (lambda: every(hours=1, anchor=NAIVE), "add tzinfo"),
        (lambda: every(hours=1, start=NAIVE), "add tzinfo"),
        (lambda: every(hours=1, end=NAIVE), "add tzinfo"),
        (lambda: cron("0 0 * * *", start=NAIVE), "add tzinfo"),
        (lambda: at(NAIVE), "add tzinfo"),
        (lambda: at(), "give at least one"),
        (lambda: at("2026-11-15"), "aware datetime"),
        (lambda: every(hours=1, start=AWARE, end=AWARE - timedelta(1)), "swap them"),
    ],
)
def test_impossible_triggers_are_refused(make, remedy):
    refused(make, remedy)


def takes_user(user, copies=1):
    pass


def takes_anything(**anything):
    pass


@pytest.mark.parametrize(
    ("function", "args", "remedy"),
    [
        (takes_user, None, "lacks user; it takes copies, user"),
        (takes_user, {"usr": 1, "user": 1}, "has no parameter usr; it takes copies, user"),
        (takes_user, {"user": {1}}, "pass numbers, strings"),
        (takes_user, {"user": object()}, "pass numbers, strings"),
        (takes_user, {"user": AWARE}, "pass numbers, strings"),
        (takes_user, {"user": {1: "a"}}, "string keys"),
        (takes_user, {"user": "x" * 70_000}, "store a reference"),
        (takes_user, [1], "dictionary by parameter name"),
        (takes_anything, {1: 2}, "dictionary by parameter name"),
        (lambda: None, {"user": 1}, "it takes no arguments"),
    ],
)
def test_arguments_that_are_not_json_or_do_not_fit_are_refused_when_declared(function, args, remedy):
    scheduler = Scheduler("memory://")
    refused(lambda: scheduler.job(every(hours=1), id="job", args=args)(function), remedy)
    assert not scheduler.jobs


@pytest.mark.parametrize(
    ("policies", "remedy"),
    [
        ({"overlapp": "skip"}, "did you mean 'overlap'?"),
        ({"timeuot": 5}, "did you mean 'timeout'?"),
        ({"misfire_grace": 5}, "did you mean 'misfire"),
        ({"overlap": "sometimes"}, '"allow(3)"'),
        ({"overlap": "allow"}, '"allow(3)"'),
        ({"overlap": "skip(2)"}, '"allow(3)"'),
        ({"overlap": "queue(0)"}, "at least 1"),
        ({"misfire": "lates"}, "use one of latest, all, skip"),
        ({"misfire": None}, "use one of latest, all, skip"),
        ({"misfire_after": 0}, "above 0"),
        ({"misfire_after": "1 lightyear"}, "give seconds, or text such as"),
        ({"after_crash": "again"}, "use one of record, rerun"),
        ({"crash_attempts": 0}, "between 1 and 100"),
        ({"execute_on": "no where"}, "is not usable"),
        ({"timeout": 0}, "leave it out for no limit"),
        ({"timeout": -5}, "neither negative"),
        ({"retry": 3}, "pass Retry(attempts="),
    ],
)
def test_policies_that_are_unknown_or_impossible_are_refused(policies, remedy):
    scheduler = Scheduler("memory://")
    refused(lambda: scheduler.job(every(hours=1), id="job", **policies)(lambda: None), remedy)
    assert not scheduler.jobs


@pytest.mark.parametrize("id", ["a b", "a/b", "ä", "a\n", "x" * 201, "a@b", "a!b"])
def test_illegal_ids_are_refused(id):
    remedy = "use 1 to 200 letters, digits and the characters _ . : -"
    refused(lambda: Scheduler("memory://").job(every(hours=1), id=id)(lambda: None), remedy)
    refused(lambda: Scheduler("memory://").task(lambda: None, id=id), remedy)


def test_a_job_or_a_function_declared_twice_is_refused():
    scheduler = Scheduler("memory://")
    scheduler.job(every(hours=1), id="job")(takes_anything)
    refused(lambda: scheduler.job(every(hours=1), id="job")(lambda: None), "another name with id=")
    refused(lambda: scheduler.job(every(hours=2), id="job")(takes_anything), "give one of them another id=")
    assert len(scheduler.jobs) == 1


@pytest.mark.parametrize("trigger", ["* * * * *", 60, timedelta(hours=1), None, AWARE, {"type": "every"}])
def test_what_is_no_trigger_is_refused(trigger):
    remedy = "use every(minutes=5), cron('30 2 * * *', tz='Europe/Zurich') or at(…)"
    refused(lambda: Scheduler("memory://").job(trigger)(lambda: None), remedy)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("fail", "did you mean 'failed'?"), ("leader_elected", "did you mean 'leader.elected'?")],
)
def test_an_unknown_event_is_refused(kind, remedy):
    refused(lambda: Scheduler("memory://").on(kind), remedy)


def test_what_cannot_be_called_by_name_is_refused():
    scheduler = Scheduler("memory://")

    def positional(user, /):
        pass

    refused(lambda: scheduler.task(positional), "remove the '/'")
    refused(lambda: scheduler.job(every(hours=1))(42), "decorate a function")


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"attempts": 0}, "between 1 and 1000"),
        ({"first": 0}, "0 < first <= cap"),
        ({"first": 10, "cap": 5}, "0 < first <= cap"),
        ({"factor": 0.5}, "between 1 and 100"),
        ({"jitter": 2}, "between 0 and 1"),
        ({"on": (5,)}, "give exception classes"),
        ({"on": (int,)}, "give exception classes"),
        ({"on": ("",)}, "give exception classes"),
    ],
)
def test_an_impossible_retry_is_refused(values, remedy):
    refused(lambda: Retry(**values), remedy)


@pytest.mark.parametrize("url", ["mongodb://db/x", "memry://", "jobs.db", "", "://", "http://example.org"])
def test_an_unknown_store_url_is_refused_with_those_that_are_known(url):
    refused(lambda: store_from_url(url), "memory://")


def test_a_misspelt_store_url_is_told_which_was_meant_and_shows_no_password():
    with pytest.raises(ConfigurationError) as error:
        store_from_url("memry://user:secret@host/")
    assert "did you mean 'memory'?" in str(error.value)
    assert "secret" not in str(error.value)


async def test_an_unknown_store_url_is_refused_at_the_start():
    scheduler = Scheduler("mongodb://user:secret@db/jobs")
    with pytest.raises(ConfigurationError, match="memory://") as error:
        await scheduler.start()
    assert "secret" not in str(error.value)
    await scheduler.stop()
