"""Pictures and words without a server: clock changes, phases of a run that goes on, schedules in words."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from markupsafe import Markup

from fencepost import cron, every
from fencepost.insight.pictures.lanes import Mark
from fencepost.insight.pictures.window import Window
from fencepost.insight.views.cron_words import cron_in_words, schedule_in_words
from fencepost.model import Attempt, FireRecord, Job, JobRecord, State
from fencepost.model.triggers import iso
from fencepost.web.dashboard.pages.fire import rungs_of
from fencepost.web.dashboard.pictures.axis import ticks
from fencepost.web.dashboard.pictures.gantt import gantt, phases_of
from fencepost.web.dashboard.pictures.svg import element
from fencepost.web.dashboard.pictures.timeline import bars
from fencepost.web.dashboard.previews import around_change, coming

ZURICH = ZoneInfo("Europe/Zurich")
NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 * * * *", "every hour"),
        ("30 2 * * *", "at 02:30 every day"),
        ("30 2 * * 1-5", "at 02:30 from Monday to Friday"),
        ("0 0 1 * *", "at 00:00 on day 1 of the month"),
        ("0 12 24 12 *", "at 12:00 on day 24 in December"),
        ("15 */2 * * *", "every 2 hours at :15"),
        ("*/10 9-17 * * MON-FRI", "every 10 minutes from 09:00 to 17:59 from Monday to Friday"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 8,20 * * 6,0", "at 08:00 and 20:00 on Saturday and Sunday"),
        ("0 0 13 * 5", None),
        ("*/7 * * * *", None),
        ("61 * * * *", None),
        ("1--100000000 * * * *", None),
        ("1-100000000 * * * *", None),
        ("*/100000000 * * * *", None),
        (",".join(["1"] * 10_000) + " * * * *", None),
        ("٣ * * * *", None),
        ("", None),
    ],
)
def test_schedules_in_words_cost_what_they_are_long(expression: str, words: str | None) -> None:
    begun = time.process_time()
    assert cron_in_words(expression) == words
    assert time.process_time() - begun < 0.05


def test_what_has_no_words_keeps_its_spelling() -> None:
    assert schedule_in_words(cron("*/7 * * * *")) == "cron */7 * * * * in UTC"
    assert schedule_in_words(cron("30 2 * * *", tz="Europe/Zurich")) == "at 02:30 every day in Europe/Zurich"
    assert schedule_in_words(every(minutes=5)) == "every 5 minutes"
    assert schedule_in_words(None) == "when triggered"


def record(expression: str) -> JobRecord:
    job = Job("report", "report", cron(expression, tz="Europe/Zurich"))
    return JobRecord(job, job.fingerprint, NOW, NOW)


def test_fires_on_both_sides_of_a_clock_change() -> None:
    found = record("30 2 * * *")
    spring = around_change(found, found.job.trigger, NOW)  # type: ignore[arg-type]
    assert spring is not None
    assert spring.words == "02:00 CET becomes 03:00 CEST"
    assert [each.wall for each in spring.fires] == [
        "Fri 2027-03-26 02:30:00 CET",
        "Sat 2027-03-27 02:30:00 CET",
        "Sun 2027-03-28 03:00:00 CEST",  # 02:30 does not exist that day
        "Mon 2027-03-29 02:30:00 CEST",
        "Tue 2027-03-30 02:30:00 CEST",
    ]
    autumn = around_change(found, found.job.trigger, datetime(2026, 10, 1, tzinfo=UTC))  # type: ignore[arg-type]
    assert autumn is not None
    assert autumn.words == "03:00 CEST becomes 02:00 CET"
    walls = [each.wall for each in autumn.fires]
    assert "Sun 2026-10-25 02:30:00 CEST" in walls  # once, although the clock shows it twice
    assert "Sun 2026-10-25 02:30:00 CET" not in walls


def test_the_next_fires_say_where_the_clock_has_changed() -> None:
    found = record("0 12 * * *")
    told = coming(found, found.job.trigger, datetime(2026, 10, 23, 12, tzinfo=UTC))  # type: ignore[arg-type]
    changed = [each for each in told if each.changed]
    assert [each.wall for each in changed] == ["Sun 2026-10-25 12:00:00 CET"]
    assert [each.at.hour for each in told[:3]] == [10, 11, 11]


def test_times_along_a_picture_are_round_on_the_clock_of_the_zone() -> None:
    long_day = datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 25, 23, tzinfo=UTC)  # 25 hours
    hours = [label for _, label in ticks(*long_day, ZURICH)]
    assert hours == ["25 Oct", "06:00", "12:00", "18:00"]
    days = ticks(datetime(2026, 10, 23, 12, tzinfo=UTC), datetime(2026, 10, 28, 12, tzinfo=UTC), ZURICH)
    lengths = {second - first for (first, _), (second, _) in pairwise(days)}
    assert lengths == {timedelta(days=1), timedelta(hours=25)}
    assert all(moment.astimezone(ZURICH).hour == 0 for moment, _ in days)
    short = ticks(datetime(2027, 3, 28, 0, tzinfo=UTC), datetime(2027, 3, 28, 4, tzinfo=UTC), ZURICH, most=10)
    assert "02:00" not in [label for _, label in short]  # the clock skips it


def pipeline_fire(**changes: Any) -> FireRecord:
    """Its first attempt was cut off in the second phase; the second one is in it."""
    begun = NOW - timedelta(minutes=5)
    shown = {
        "phase": "match",
        "blocking": True,
        "mode": "full",
        "run_type": "complete",
        "phase_started_at": iso(NOW - timedelta(minutes=1)),
        "phases": [
            {"name": "download", "outcome": "done", "seconds": 60.0, "started_at": iso(begun), "attempt": 1},
            {"name": "unpack", "outcome": "skipped", "seconds": 0.0, "started_at": None, "attempt": 1},
        ],
    }
    values: dict[str, Any] = {
        "state": State.RUNNING,
        "token": 2,
        "attempt": 2,
        "replica": "second",
        "started_at": NOW - timedelta(minutes=2),
        "progress": {"pipeline": shown},
        "attempts": (Attempt(1, "first", begun, begun + timedelta(minutes=2), "lost"),),
    }
    return FireRecord("sync@x", "sync", begun, **{**values, **changes})


def test_phases_of_a_run_that_goes_on_elsewhere() -> None:
    download, unpack, match = phases_of(pipeline_fire(), NOW)
    assert (download.replica, match.replica) == ("first", "second")
    assert (match.outcome, match.seconds, match.blocking) == ("running", 60.0, True)
    assert unpack.since is None
    drawn = gantt([download, unpack, match])
    assert drawn.count("<rect") == 3  # two bars, and the frame of what blocks
    assert "60 s so far" in drawn or "1 min so far" in drawn
    assert 'class="shade1 pulse"' in drawn
    assert "shade0" in drawn


def test_attempts_are_a_ladder_of_tokens() -> None:
    first, second = rungs_of(pipeline_fire(), NOW)
    assert (first.number, first.token, first.replica, first.outcome) == (1, 1, "first", "lost")
    assert (second.number, second.token, second.replica, second.outcome) == (2, 2, "second", "running")
    [only] = rungs_of(pipeline_fire(state=State.LOST, token=1, attempt=1), NOW)
    assert (only.number, only.token) == (1, 1)
    assert rungs_of(FireRecord("x@y", "x", NOW, state=State.SKIPPED), NOW) == []


@pytest.mark.parametrize(
    "progress",
    [None, {}, {"done": 1}, {"pipeline": None}, {"pipeline": {"phase": "x"}}, {"pipeline": {"phases": None}}],
)
def test_a_run_that_has_told_little_has_no_phases(progress: Any) -> None:
    assert gantt(phases_of(pipeline_fire(progress=progress), NOW)) == ""


def mark(at: datetime, state: str = "succeeded", **changes: Any) -> Mark:
    finished = at + timedelta(milliseconds=50)
    values: dict[str, Any] = {
        "at": at,
        "key": f"ping@{iso(at)}",
        "state": state,
        "reason": None,
        "refers_to": None,
        "due_at": at,
        "last_due_at": at,
        "started_at": at,
        "finished_at": finished,
        "late_seconds": 0.0,
        "attempt": 1,
        "replica": "r",
        "error_line": None,
        "count": 1,
        "states": {state: 1},
        "more": False,
    }
    return Mark(**{**values, **changes})


def test_neighbours_of_one_fate_are_one_bar_and_a_failure_is_its_own() -> None:
    window = Window(NOW - timedelta(hours=1), NOW, timedelta(seconds=15), NOW)
    moments = [NOW - timedelta(minutes=30) + timedelta(seconds=5 * number) for number in range(100)]
    marks = [mark(moment, "failed" if number == 50 else "succeeded") for number, moment in enumerate(moments)]
    found = list(bars(marks, window))
    assert [bar.state for bar in found] == ["succeeded", "failed", "succeeded"]
    assert [bar.count for bar in found] == [50, 1, 49]


def test_the_wait_after_the_due_time_is_drawn() -> None:
    window = Window(NOW - timedelta(hours=1), NOW, timedelta(seconds=15), NOW)
    late = mark(NOW - timedelta(minutes=20), due_at=NOW - timedelta(minutes=30), late_seconds=600.0)
    [bar] = bars([late], window)
    assert bar.gap == pytest.approx(0.5)
    assert bar.begin == pytest.approx(2 / 3)


def test_markup_is_escaped_unless_it_is_ours() -> None:
    drawn = element("text", "<b>", class_='"><script>', x=1)
    assert drawn == '<text class="&#34;&gt;&lt;script&gt;" x="1">&lt;b&gt;</text>'
    assert element("g", Markup("<rect/>")) == "<g><rect/></g>"
