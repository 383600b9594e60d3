"""Jobs from a file: what it may hold, and what is said when it holds something else."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fencepost.errors import ConfigurationError
from fencepost.model.triggers import Calendar, cron, every, rrule
from fencepost.runs.bodies.command import Command
from fencepost.scheduler.jobfile import scheduler_from

GOOD = """
store = "memory://"
slots = 3

[jobs.hello]
command = ["echo", "hello"]
every = "90s"
timeout = "1m"
retry = { attempts = 4, first = "2s", cap = "1m", on = ["CommandFailed"] }
env = { GREETING = "hi" }

[jobs.nightly]
command = "du -s . | sort"
shell = true
cron = "30 2 * * *"
tz = "Europe/Zurich"
overlap = "queue(2)"
args = { depth = 2 }

[jobs.once]
command = ["true"]
at = 2030-01-01T00:00:00Z
"""


def load(folder: Path, text: str):
    (folder / "fencepost.toml").write_text(text)
    return scheduler_from(folder / "fencepost.toml")


def test_jobs_and_settings_come_from_one_file(tmp_path):
    scheduler = load(tmp_path, GOOD)
    hello, nightly, once = (scheduler.jobs[id] for id in ("hello", "nightly", "once"))
    assert scheduler.settings.slots == 3
    assert hello.trigger == every(seconds=90)
    assert hello.timeout == timedelta(minutes=1)
    assert hello.retry is not None
    assert (hello.retry.attempts, hello.retry.first, hello.retry.cap) == (4, 2, 60)
    assert nightly.trigger == cron("30 2 * * *", tz="Europe/Zurich")
    assert str(nightly.overlap) == "queue(2)"
    assert nightly.args == {"depth": 2}
    assert once.trigger is not None
    command = scheduler.registry.get("nightly").function
    file = str(tmp_path / "fencepost.toml")
    assert command == Command(("/bin/sh", "-c", "du -s . | sort"), {}, str(tmp_path), file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no jobs; add"),
        ("jobs = 3", "has no jobs"),
        ("[jobs.a]\nevery = '5m'", "[jobs.a]: lacks a command"),
        ("[jobs.a]\ncommand = ['x']", "[jobs.a]: needs one of every"),
        ("[jobs.a]\ncommand = ['x']\nevery = '5m'\ncron = '* * * * *'", "needs one of"),
        ("[jobs.a]\ncommand = ['x']\nevery = '5m'\ntz = 'UTC'", "tz does not go with every"),
        ("[jobs.a]\ncommand = 'x y'\nevery = '5m'", "or shell=True"),
        ("[jobs.a]\ncommand = ['x']\nshell = true\nevery = '5m'", "one text, not a list"),
        ("[jobs.a]\ncommand = []\nevery = '5m'", "at least one word"),
        ("[jobs.a]\ncommand = ['x', 3]\nevery = '5m'", "only text"),
        ("[jobs.a]\ncommand = ['x']\nevery = '5 moons'", "is not a duration"),
        ("[jobs.a]\ncommand = ['x']\nevry = '5m'", "did you mean 'every'?"),
        ("[jobs.a]\ncommand = ['x']\nevery = '5m'\nenv = { A = 1 }", "names and texts"),
        ("[jobs.a]\ncommand = ['x']\nevery = '5m'\nretry = 3", "retry must be a table"),
        ("[jobs.a]\ncommand = ['x']\nat = '2030'", "times with an offset"),
        ("[jobs.'a b']\ncommand = ['x']\nevery = '5m'", "is not usable"),
        ("[jobs.a", "is not valid TOML"),
        ("a = 1\n[jobs.a]\ncommand = ['x']\nevery = '5m'", "there is no setting 'a'"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, text, says):
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text)
    assert says in str(refused.value)


CALENDAR = """
[calendars.office]
weekend = "sat,sun"
dates = { "2026-05-14" = "Ascension Day" }

[jobs.report]
command = ["true"]
cron = "0 8 * * *"
tz = "Europe/Zurich"
calendar = "office"
closed = "shift"
spread = "10m"

[jobs.friday]
command = ["true"]
rrule = "FREQ=MONTHLY;BYDAY=-1FR"
start = 2026-11-27T17:00:00+01:00
tz = "Europe/Zurich"
"""


def test_calendars_rules_and_spread(tmp_path):
    scheduler = load(tmp_path, CALENDAR)
    office = Calendar("office", weekend="sat,sun", dates={"2026-05-14": "Ascension Day"})
    report = cron("0 8 * * *", tz="Europe/Zurich", calendar=office, closed="shift")
    assert scheduler.jobs["report"].trigger == report.spread("10m", "report")
    start = datetime(2026, 11, 27, 17, tzinfo=ZoneInfo("Europe/Zurich"))
    assert scheduler.jobs["friday"].trigger == rrule("FREQ=MONTHLY;BYDAY=-1FR", start=start)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('calendar = "office"', 'calendar = "ofice"', "no calendar 'ofice'; did you mean 'office'"),
        ('calendar = "office"\n', "", "closed goes with a calendar"),
        ('"shift"', '"move"', "closed='move' is not known"),
        ('dates = { "2026-05-14"', 'dates = { "2026-05-34"', "'2026-05-34' is not a date"),
        ("start = 2026-11-27T17:00:00+01:00", "", "rrule needs a start"),
        ('tz = "Europe/Zurich"\n\n', "", "names no zone"),
        ('spread = "10m"', 'spread = "ten"', "not a duration"),
    ],
)
def test_bad_calendars(tmp_path, old, new, message):
    text = CALENDAR.replace(old, new) if old in CALENDAR else CALENDAR.rstrip() + "\n\n"
    text = text.replace('+01:00\ntz = "Europe/Zurich"\n\n', "+01:00\n")
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, text)
