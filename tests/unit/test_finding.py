"""`scheduler.find_jobs`, `find_fires`, `why`, and the same on `scheduler.sync`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost import (
    Answer,
    Calendar,
    ConfigurationError,
    FireRecord,
    JobView,
    Scheduler,
    UsageError,
    cron,
    every,
)
from fencepost.model.triggers import Staggered
from fencepost.testing import virtual
from fencepost.testing.virtual import VirtualTime

DAY = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.fixture
def scheduler() -> Scheduler:
    scheduler = Scheduler(store="memory://")

    @scheduler.job(every(minutes=10), id="poll")
    def poll() -> None: ...

    @scheduler.job(cron("0 3 * * *", tz="Europe/Zurich"), id="report")
    def report() -> None:
        raise ValueError("no rows")

    @scheduler.task(id="hand")
    def hand() -> None: ...

    return scheduler


@pytest.fixture
def time(scheduler: Scheduler) -> Iterator[VirtualTime]:
    with virtual(scheduler, start=DAY) as time:
        time.advance(hours=4)
        yield time


def test_jobs_are_listed_with_how_they_stand(scheduler: Scheduler, time: VirtualTime) -> None:
    time.pause("poll", reason="migrating")
    hand, poll, report = time.do(scheduler.find_jobs())
    assert [job.id for job in (hand, poll, report)] == ["hand", "poll", "report"]
    assert (hand.schedule, hand.state, hand.last, hand.next_run_at) == (None, "idle", None, None)
    assert (poll.state, poll.paused and poll.paused.note, poll.next_run_at) == ("paused", "migrating", None)
    assert report.last is not None
    assert (report.last.state, report.last.due_at) == ("failed", DAY + timedelta(hours=2))
    assert report.next_run_at == DAY + timedelta(days=1, hours=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.id = "other"  # type: ignore[misc]


def test_fires_are_chosen_by_job_state_and_time(scheduler: Scheduler, time: VirtualTime) -> None:
    def found(*args: object, **choice: object) -> list[str]:
        fires = time.do(scheduler.find_fires(*args, **choice))  # type: ignore[arg-type]
        assert all(isinstance(fire, FireRecord) for fire in fires)
        return [f"{fire.job_id} {fire.due_at:%H:%M}" for fire in fires]

    assert found("poll", limit=2) == ["poll 04:00", "poll 03:50"]
    assert found(state="failed") == found(state=["failed", "lost"]) == ["report 02:00"]
    at_two = DAY + timedelta(hours=2)
    assert sorted(found(since=at_two, until=at_two + timedelta(minutes=5))) == ["poll 02:00", "report 02:00"]
    assert found("hand") == []
    assert found("poll", state="pending")[0] > found("poll", limit=1)[0]
    assert found("poll", planned=True)[0] > "poll 04:00"


def test_why_explains_a_moment_or_the_latest_fire(scheduler: Scheduler, time: VirtualTime) -> None:
    def why(*args: object) -> Answer:
        return time.do(scheduler.why(*args))  # type: ignore[arg-type]

    assert why("report").verdict == why("report", "03:00").verdict == "failed"
    assert why("report", DAY + timedelta(hours=2)).fire == why("report").fire is not None
    assert "ValueError: no rows" in str(why("report"))
    assert why("poll", "2026-11-15T00:15Z").verdict == "not in the calendar"
    assert (why("hand").verdict, why("hand").fire) == ("no schedule", None)


def test_before_the_first_fire_why_says_when_it_comes() -> None:
    scheduler = Scheduler(store="memory://")
    scheduler.task(id="later")(lambda: None)
    with virtual(scheduler, start=DAY) as time:
        time.do(scheduler.add("later", every(hours=1), id="hourly"))
        answer = time.do(scheduler.why("hourly"))
        assert (answer.verdict, answer.after) == ("not due", DAY + timedelta(hours=1))
        assert "the next is due in" in answer.text


def test_what_makes_no_sense_is_refused(scheduler: Scheduler, time: VirtualTime) -> None:
    for choice, error, says in (
        ({"state": "suceeded"}, ConfigurationError, "did you mean"),
        ({"since": datetime(2026, 11, 15)}, ConfigurationError, "no time zone"),
        ({"limit": 0}, ConfigurationError, "from 1 to"),
        ({"job": "pol"}, UsageError, "did you mean 'poll'"),
    ):
        with pytest.raises(error, match=says):
            time.do(scheduler.find_fires(**choice))
    with pytest.raises(UsageError, match="there is no job"):
        time.do(scheduler.why("nothing"))


def test_the_same_from_blocking_code(tmp_path: Path) -> None:
    """Without a replica here: a process that only looks."""
    scheduler = Scheduler(store=f"sqlite:///{tmp_path}/app.db")
    scheduler.task(id="send")(lambda: None)
    scheduler.sync.add("send", every(hours=1), id="digest")
    handle = scheduler.sync.trigger("digest")
    [job] = scheduler.sync.find_jobs()
    assert isinstance(job, JobView)
    assert job.id == "digest"
    [fire] = scheduler.sync.find_fires("digest")
    assert fire.key == handle.key
    assert scheduler.sync.why("digest").verdict == "not decided"


def test_why_names_what_the_calendar_has_left_out() -> None:
    office = Calendar("office", dates={"2026-11-16": "Moving day"}, weekend="sun")
    scheduler = Scheduler(store="memory://")

    @scheduler.job(cron("0 3 * * *", tz="Europe/Zurich", calendar=office), id="report", spread="10m")
    def report() -> None: ...

    @scheduler.job(cron("0 3 15 * *", tz="Europe/Zurich", calendar=office, closed="shift"), id="rent")
    def rent() -> None: ...

    trigger = scheduler.jobs["report"].trigger
    assert isinstance(trigger, Staggered)
    with virtual(scheduler, start=DAY) as time:
        time.advance(hours=60)
        assert [f"{fire.due_at:%d %H}" for fire in time.fires("report")] == ["17 02"]
        assert [f"{fire.due_at:%d %H}" for fire in time.fires("rent")] == ["17 02"]
        monday = DAY + timedelta(days=1, hours=2) + trigger.offset
        found = time.do(scheduler.why("report", monday))
        assert (found.verdict, found.after) == ("left out", monday + timedelta(days=1))
        assert "Nothing was due then, left out: Moving day. Its schedule is cron 0 3 * * * in Europe" in str(
            found
        )
        found = time.do(scheduler.why("rent", "2026-11-15T03:00"))
        assert "Nothing was due then, moved to 2026-11-17 02:00:00Z: Sunday." in str(found)
        assert time.do(scheduler.why("rent", "2026-11-15T04:00")).verdict == "not in the calendar"
        assert time.do(scheduler.why("rent", "2026-11-17T03:00")).verdict == "succeeded"
