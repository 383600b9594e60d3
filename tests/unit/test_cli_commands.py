"""The commands on a SQLite file with a story in it: what they print, what they change, how they exit."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shlex
import shutil
import sqlite3
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost import Retry, cron, every
from fencepost.cli import outcome
from fencepost.cli.output import length, printable, table
from fencepost.insight.views.times import asked
from fencepost.model import Job, State
from fencepost.model.triggers import zone
from fencepost.replica.plan import expand
from fencepost.store.base import (
    Campaign,
    ChangeJob,
    ClaimRequest,
    FireQuery,
    HeartbeatRequest,
    NewFire,
    PutJob,
    Report,
    RetryLater,
    Settle,
    Suspect,
    Watched,
)
from fencepost.store.sqlite import SqliteStore

USAGE, UNAVAILABLE, CONFIGURATION = 64, 69, 78
DAY = datetime(2026, 11, 15, tzinfo=UTC)
TRACEBACK = "Traceback (most recent call last):\n  File x\nValueError: no \x1b[31m[bold]rows[/bold]\n"

PLAIN = "Traceback (most recent call last):\n  File x\nValueError: no rows\n"


def at(clock: str) -> datetime:
    hours, minutes, *seconds = map(int, clock.split(":"))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=sum(seconds))


def key(job: str, clock: str) -> str:
    return f"{job}@{at(clock):%Y-%m-%dT%H:%M:%S}.000000Z"


@dataclass
class Hand:
    """A clock moved by hand."""

    now: datetime = DAY

    def wall(self) -> datetime:
        return self.now

    def steady(self) -> float:
        return (self.now - DAY).total_seconds() + 1000


class Story:
    """A store driven step by step, as its replicas would."""

    def __init__(self, path: Path) -> None:
        self.clock = Hand()
        self.store = SqliteStore(path, clock=self.clock)
        self.beats = self.claims = 0
        self.term = 0

    async def join(self, name: str, *targets: str) -> None:
        seen = Watched(self.term, 0, 0, gone=True)
        self.beats += 1
        beat = HeartbeatRequest(name, self.beats, 7200, 10, host="box", pid=41, joining=True, targets=targets)
        pulse = await self.store.heartbeat(replace(beat, campaign=Campaign(7200, seen)))
        assert pulse.leader.holder == name
        self.term = pulse.leader.term

    async def work(self, name: str, clock: str, room: int = 10) -> dict[str, int]:
        """At this time plan what is due and claim it: job by token."""
        self.clock.now = at(clock)
        while (due := await self.store.due_jobs(600, 100)).jobs:
            plans = [expand(record, due.now, 600, ()) for record in due.jobs]
            if not any(plan.rows for plan in plans):
                break
            await self.store.plan_fires(plans)
        self.claims += 1
        claimed = await self.store.claim_fires(ClaimRequest(name, self.claims, room, self.term))
        return {claim.fire.key: claim.fire.token for claim in claimed.claims}

    async def end(self, name: str, claimed: dict[str, int], *keys: str, error: str | None = None) -> None:
        state = State.FAILED if error else State.SUCCEEDED
        reason = "raised an exception" if error else None
        settles = [Settle(key, claimed[key], state, reason, error) for key in keys]
        assert all((await self.store.update_claims(name, settles)).accepted)

    async def tell(self) -> None:
        store, targets = self.store, ("report", "poll", "batch", "hand", "old")
        await store.open()
        await self.join("r1", *targets)
        hourly = cron("0 * * * *", "Asia/Kolkata")  # half an hour off UTC
        jobs = [
            Job("report", "report", cron("0 * * * *", "Europe/Zurich"), args={"region": "ch"}),
            Job("poll", "poll", every(minutes=10)),
            Job("batch", "batch", cron("0 * * * *"), misfire="skip"),
            Job("hand", "hand", retry=Retry(attempts=2)),
            Job("old", "old", hourly),
            Job("strange", "nobody:knows"),
        ]
        await store.put_jobs([PutJob(job, by="r1") for job in jobs])
        first = await self.work("r1", "00:10")
        await self.work("r1", "00:20")
        self.clock.now = at("00:25")
        await self.end("r1", first, key("poll", "00:10"))
        claimed = await self.work("r1", "00:30")
        await self.end("r1", claimed, key("poll", "00:30"), error=TRACEBACK)
        await self.end("r1", claimed, key("old", "00:30"))
        self.clock.now = at("00:35")
        await store.change_job(ChangeJob("poll", "pause", "migrating [red]", "ann@desk"))
        claimed = await self.work("r1", "01:00")
        await self.end("r1", claimed, key("report", "01:00"), key("batch", "01:00"))
        self.clock.now = at("01:05")
        await store.change_job(ChangeJob("poll", "resume", by="ann@desk"))
        await store.change_job(ChangeJob("old", "remove", by="ann@desk"))
        await self.work("r1", "01:10")
        await self.second_half()
        await store.close()

    async def second_half(self) -> None:
        """r1 dies; r2 notices and leaves; three hours later r3 starts."""
        store = self.store
        self.clock.now = at("01:12")
        await self.join("r2", "report", "poll", "batch", "hand")
        swept = await store.sweep("r2", self.term, [Suspect("r1", 0, 0, dead=True)])
        assert swept
        assert swept.expired == ("r1",)
        await store.leave("r2")
        self.clock.now = at("04:05")
        await self.join("r3", "report", "poll", "batch", "hand")
        claimed = await self.work("r3", "04:05")
        await self.end("r3", claimed, key("report", "04:00"), key("poll", "04:00"))
        self.clock.now = at("04:06")
        await store.add_fire(NewFire("hand!first", "hand", {"n": 1}, by="ann@desk"))
        claimed = await self.work("r3", "04:06")
        later = RetryLater("hand!first", claimed["hand!first"], 30, PLAIN)
        await store.update_claims("r3", [later])
        claimed = await self.work("r3", "04:07")
        await self.end("r3", claimed, "hand!first", error=PLAIN)
        claimed = await self.work("r3", "04:10")
        token = claimed[key("poll", "04:10")]
        progress = Report(key("poll", "04:10"), token, {"done": 1, "total": 3}, saves=True, checkpoint=[7])
        await store.update_claims("r3", [progress])
        self.clock.now = at("04:12")


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self):
        assert not self.err, self.err
        return json.loads(self.out)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "story.db"
    asyncio.run(Story(path).tell())
    return path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand(at("04:12"))
    monkeypatch.setattr("fencepost.store.sqlite.store.SystemClock", lambda: hand)
    return hand


@pytest.fixture
def database(told: Path, tmp_path: Path, clock: Hand, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("FENCEPOST_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCEPOST_STORE", "sqlite:///app.db")
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    monkeypatch.setattr(
        import_module("fencepost.cli.cancel"), "POLLS", 0
    )  # no replica is up that would end it
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    return Path(shutil.copy(told, tmp_path / "app.db"))


@pytest.fixture
def cli(database: Path, capsys: pytest.CaptureFixture[str]):
    def call(*arguments: str) -> Result:
        code = outcome(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Result(code, out, err)

    return call


def ask(path: Path, clock: Hand, what):
    async def session():
        store = SqliteStore(path, clock=clock)
        await store.open()
        try:
            return await what(store)
        finally:
            await store.close()

    return asyncio.run(session())


# status and jobs


def test_status_as_json_has_the_shape_of_the_contract(cli):
    status = cli("status", "--json").data
    assert status["store"] == "sqlite:///app.db"
    assert {name: status["leader"][name] for name in ("replica", "host", "pid", "term")} == {
        "replica": "r3",
        "host": "box",
        "pid": 41,
        "term": 3,
    }
    assert [(replica["replica"], replica["state"]) for replica in status["replicas"]] == [("r3", "alive")]
    jobs = {job["id"]: job for job in status["jobs"]}
    assert sorted(jobs) == ["batch", "hand", "poll", "report", "strange"]
    assert jobs["poll"]["state"] == "running"
    assert jobs["poll"]["active"][0]["progress"] == {"done": 1, "total": 3}
    assert jobs["poll"]["next_run_at"] == "2026-11-15T04:20:00.000000Z"
    assert jobs["poll"]["schedule"] == "every 10 minutes"
    assert jobs["report"]["last"]["state"] == "succeeded"
    assert jobs["strange"]["orphaned"]
    assert jobs["strange"]["state"] == "orphaned"
    assert jobs["hand"]["schedule"] is None
    assert jobs["hand"]["last"]["reason"] == "raised an exception"


def test_status_for_people(cli):
    done = cli("status")
    assert done.code == 0
    assert "leader  r3 (term 3)" in done.out
    assert "every 10 minutes" in done.out
    assert "cron 0 * * * * in Europe/Zurich" in done.out
    assert "orphaned: no live replica knows its task" in done.out
    assert "failed: raised an exception (5 min ago)" in done.out
    assert not done.err


def test_no_color_and_no_escape_codes_in_a_pipe(cli, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    for command in (["status"], ["jobs"], ["fires"], ["show", "hand!first"]):
        assert "\x1b" not in cli(*command).out


def test_a_pause_is_durable_and_shown_with_reason_and_until(cli):
    paused = cli("pause", "report", "--reason", "moving [house]", "--until", "2h", "--json").data
    assert paused["paused"]["until"] == "2026-11-15T06:12:00.000000Z"
    [job] = [job for job in cli("status", "--json").data["jobs"] if job["id"] == "report"]
    assert job["state"] == "paused"
    assert job["paused"] == {
        "since": "2026-11-15T04:12:00.000000Z",
        "until": "2026-11-15T06:12:00.000000Z",
        "reason": "moving [house]",
        "by": "me@here",
    }
    assert job["next_run_at"] == "2026-11-15T07:00:00.000000Z"
    assert "paused until 2026-11-15 06:12:00Z by me@here: moving [house]" in cli("status").out
    assert "will be skipped: the job was paused from" in cli("why", "report", "2026-11-15T05:00Z").out
    assert "is resumed; next at 2026-11-15 05:00:00Z" in cli("resume", "report").out
    assert "was not paused" in cli("resume", "report").out
    assert not cli("resume", "report", "--json").data["was_paused"]


def test_a_pause_without_end_has_no_next_fire(cli):
    assert cli("pause", "report").out == "report is paused until it is resumed\n"
    [job] = [job for job in cli("jobs", "--json").data if job["id"] == "report"]
    assert job["next_run_at"] is None
    assert job["paused"]["until"] is None


def test_a_second_pause_keeps_what_it_does_not_name(cli):
    cli("pause", "report", "--reason", "moving", "--until", "2h")
    again = cli("pause", "report").out
    assert "already paused since 2026-11-15 04:12:00Z" in again
    assert 'stays paused until 2026-11-15 06:12:00Z: "moving"' in again
    told = cli("pause", "report", "--reason", "still moving", "--json").data
    assert told["was_paused"]
    assert (told["paused"]["reason"], told["paused"]["until"]) == (
        "still moving",
        "2026-11-15T06:12:00.000000Z",
    )


def test_jobs_lists_shows_and_removes(cli):
    assert [job["id"] for job in cli("jobs", "--json").data] == ["batch", "hand", "poll", "report", "strange"]
    assert cli("jobs").out == cli("jobs", "list").out
    shown = cli("jobs", "show", "poll", "--json").data
    assert [event["kind"] for event in shown["history"]] == ["defined", "paused", "resumed"]
    assert shown["trigger"] == {"type": "every", "seconds": 600}
    assert "migrating [red]" in cli("jobs", "show", "poll").out
    done = cli("jobs", "rm", "strange")
    assert (done.code, done.out, done.err) == (0, "strange is removed\n", "")
    assert "comes back at the next start" in cli("jobs", "rm", "poll").err
    assert [job["id"] for job in cli("jobs", "--json").data] == ["batch", "hand", "report"]
    assert cli("jobs", "rm", "poll").code == USAGE


# fires and show


def test_fires_are_the_ledger_newest_first_without_what_is_only_planned(cli):
    fires = cli("fires", "--limit", "3", "--json").data
    assert [fire["key"] for fire in fires] == [key("poll", "04:10"), "hand!first", key("report", "04:00")]
    planned = cli("fires", "--planned", "--limit", "1", "--json").data
    assert planned[0]["state"] == "pending"
    assert cli("fires", "--state", "pending", "--json").data


def test_fires_as_json_have_the_fields_of_the_contract(cli):
    [fire] = cli("fires", "--job", "hand", "--json").data
    assert {
        *("key", "job_id", "due_at", "state", "reason", "count", "token", "attempt", "replica"),
        *("started_at", "finished_at", "error", "attempts", "first_due_at", "last_due_at"),
    } <= fire.keys()
    assert (fire["state"], fire["attempt"], fire["token"]) == ("failed", 2, 2)
    assert [attempt["outcome"] for attempt in fire["attempts"]] == ["retry", "failed"]


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["--state", "lost"], [key("poll", "01:10")]),
        (
            ["--state", "lost", "--state", "failed", "--job", "poll"],
            [key("poll", "01:10"), key("poll", "00:30")],
        ),
        (["--job", "report", "--since", "3h"], [key("report", "04:00"), key("report", "02:00")]),
        (["--job", "report", "--until", "2026-11-15T02:00:00Z"], [key("report", "01:00")]),
        (["--job", "old", "--since", "2026-11-15T05:00:00+04:30"], [key("old", "00:30")]),
        (["--job", "strange"], []),
    ],
)
def test_fires_can_be_chosen(cli, options, keys):
    assert [fire["key"] for fire in cli("fires", *options, "--json").data] == keys


def test_fires_for_people(cli):
    out = cli("fires", "--limit", "100").out
    assert f"coalesced ({key('report', '04:00')}); 2 fires through 2026-11-15 03:00:00Z" in out
    assert "ValueError: no \\x1b[31m[bold]rows[/bold]" in out
    assert "ValueError: no rows; ann@desk" in out
    assert cli("fires", "--job", "strange").out == "no such fires\n"


def test_show_has_everything(cli):
    shown = cli("show", key("poll", "04:10"), "--json").data
    assert (shown["checkpoint"], shown["progress"]) == ([7], {"done": 1, "total": 3})
    out = cli("show", "hand!first").out
    for part in ("manual", "ann@desk", '{"n": 1}', "retry", "Traceback (most recent call last)"):
        assert part in out
    assert "\x1b" not in out
    out = cli("show", key("poll", "00:40")).out
    assert "2026-11-15 01:00:00.000Z (3 fires)" in out


@pytest.mark.parametrize(
    "command", [("status",), ("jobs",), ("fires",), ("fires", "--planned"), ("show", "hand!first")]
)
def test_80_columns_are_enough(cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = cli(*command).out
    assert max(map(len, text.splitlines())) <= 80
    assert "2026-11-15T04:10:00.000000Z" not in text
    words = ("2 min ago",) if command[0] == "fires" else ("7 min ago",) if command[0] != "show" else ()
    assert all(word in text for word in words)


def test_a_column_is_not_squeezed_below_8_characters(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    row = ("a_job_with_a_rather_long_name", *["some words that wrap " * 3] * 3, "last words")
    table(("job", "state", "schedule", "last", "next"), [row])
    rule = capsys.readouterr().out.splitlines()
    assert max(map(len, rule)) <= 80
    header = rule[0]
    starts = [header.index(name) for name in ("state", "schedule", "last", "next")]
    widths = [after - before - 2 for before, after in itertools.pairwise([*starts, 82])]
    assert min(widths) >= 8, header


def test_a_short_key_of_the_table_can_be_pasted(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for line in cli("fires").out.splitlines()[2:]:
        if not line.startswith(" "):
            assert cli("show", line.split()[0], "--json").data["state"] in line


def test_times_in_another_zone(cli):
    assert "2026-11-15 05:12:00+01:00" in cli("status", "--tz", "Europe/Zurich").out
    assert "2026-11-15 05:07:00" in cli("show", "hand", "--tz", "Europe/Zurich").out
    assert "2026-11-15 04:12:00Z" in cli("status").out  # it does not stay
    assert cli("fires", "--tz", "local").code == 0
    refused = cli("status", "--tz", "Europe/Zurch")
    assert refused.code == USAGE
    assert "did you mean 'Europe/Zurich'?" in refused.err


@pytest.mark.parametrize("command", ["status", "fires"])
def test_watch_shows_it_again_until_ctrl_c(cli, command, monkeypatch):
    pauses = iter([None, None])

    def sleep(seconds):
        if next(pauses, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr("fencepost.cli.views.time.sleep", sleep)
    done = cli(command, "--watch")
    assert done.code == 130
    assert done.out.count("poll") == 3 * cli(command).out.count("poll")
    assert cli(command, "--watch", "--json").code == USAGE


# why


@pytest.mark.parametrize(
    ("job", "when", "verdict", "says"),
    [
        ("report", "02:00", "succeeded", "01:00:00Z, 02:00:00 in Europe/Zurich:"),
        (
            "report",
            "2026-11-15T01:00Z",
            "succeeded",
            "It ran: started 2026-11-15 01:00:00.000Z on r1, took 0 ms",
        ),
        (
            "report",
            "04:00",
            "missed",
            "one of 2 from 2026-11-15 02:00:00Z to 2026-11-15 03:00:00Z: nobody could",
        ),
        (
            "report",
            "04:00",
            "missed",
            f"coalesced into {key('report', '04:00')}, which succeeded at 2026-11-15 04:05:00Z.",
        ),
        ("poll", "00:10", "succeeded", "took 15 min"),
        (
            "poll",
            "00:20",
            "skipped",
            f"{key('poll', '00:10')} was still active, from 2026-11-15 00:10:00Z to 2026-11-15 00:25:00Z.",
        ),
        ("poll", "00:30", "failed", "raised an exception: ValueError: no \\x1b[31m[bold]rows[/bold]."),
        (
            "poll",
            "00:50",
            "skipped",
            'the job was paused from 2026-11-15 00:35:00Z until 2026-11-15 01:05:00Z by ann@desk, "migrating [red]".',
        ),
        ("poll", "01:10", "lost", "its replica r1 died in mid-run; noticed 2026-11-15 01:12:00Z."),
        ("poll", "04:10", "running", "since 2026-11-15 04:10:00Z (2 min) on r3"),
        ("poll", "2026-11-15T04:20Z", "not due", "It is not due yet: it comes in 8 min."),
        ("poll", "2027-11-15T04:20Z", "not due", "It is not due yet: it comes in 365 d"),
        (
            "poll",
            "00:15",
            "not in the calendar",
            "every 10 minutes, with the one before at 2026-11-15 00:10:00Z and the one after at 2026-11-15 00:20:00Z.",
        ),
        ("batch", "03:00", "missed", "nobody could start it within 30 s, and the misfire policy is 'skip'"),
        ("poll", "2026-11-14T23:00Z", "before its time", "first stored at 2026-11-15 00:00:00Z."),
        ("old", "06:00", "succeeded", "06:00:00 in Asia/Kolkata"),
        ("old", "08:00", "removed", "removed at 2026-11-15 01:05:00Z by ann@desk."),
        ("strange", "03:00", "no schedule", "it runs when triggered"),
        ("hand", "04:06", "failed", "the manual fire of 2026-11-15 04:06:00Z:"),
        ("hand", "04:06", "failed", "attempt 2"),
    ],
)
def test_why_has_an_answer(cli, job, when, verdict, says):
    done = cli("why", job, when)
    assert (done.code, done.err) == (0, "")
    assert says in done.out
    answer = cli("why", job, when, "--json").data
    assert answer["verdict"] == verdict
    assert answer["job_id"] == job


def test_why_names_the_neighbours_and_the_fire_referred_to(cli):
    answer = cli("why", "poll", "00:15", "--json").data
    assert (answer["before"], answer["after"]) == (
        "2026-11-15T00:10:00.000000Z",
        "2026-11-15T00:20:00.000000Z",
    )
    answer = cli("why", "poll", "00:20", "--json").data
    assert answer["refers_to"]["key"] == key("poll", "00:10")
    assert answer["fire"]["key"] == answer["fire"]["job_id"] + "@" + answer["due_at"]


def test_a_fire_that_the_ledger_does_not_have_is_unaccounted_or_forgotten(cli, database, monkeypatch):
    with sqlite3.connect(database) as db:
        assert db.execute("delete from fencepost_fires where key = ?", (key("poll", "00:30"),)).rowcount == 1
    db.close()
    done = cli("why", "poll", "00:30")
    assert done.code == 1
    assert "this is a fault" in done.out
    assert cli("why", "poll", "00:30", "--json").data["verdict"] == "unaccounted"
    monkeypatch.setenv("FENCEPOST_RETENTION", "1h")
    done = cli("why", "poll", "00:30")
    assert done.code == 0
    assert "is forgotten" in done.out


def test_while_nobody_runs_what_is_due_is_not_decided(cli, clock):
    clock.now = at("09:30")
    done = cli("why", "poll", "09:20")
    assert done.code == 0
    assert (
        "no replica is running. The next one to start decides it by the job's misfire policy, 'latest'"
        in done.out
    )
    assert cli("status", "--json").data["replicas"][0]["state"] == "overdue"
    assert "running, but its replica is overdue" in cli("status").out


def test_of_several_fires_in_a_minute_the_first_is_told_and_the_next_named(cli, database, clock):
    quick = PutJob(Job("quick", "quick", every(seconds=20)))
    ask(database, clock, lambda store: store.put_jobs([quick]))
    clock.now += timedelta(minutes=5)
    assert "ask for 2026-11-15T04:13:20Z" in cli("why", "quick", "04:13").out
    assert "ask for" not in cli("why", "quick", "2026-11-15T04:13:20Z").out
    assert cli("why", "quick", "04:13:20", "--json").data["due_at"] == "2026-11-15T04:13:20.000000Z"


def test_a_time_of_day_in_a_gap_or_a_fold_of_the_clock():
    zurich = zone("Europe/Zurich")
    gap = asked("2026-03-29T02:30", datetime(2026, 4, 1, tzinfo=UTC), zurich)
    assert gap.instants == (datetime(2026, 3, 29, 1, tzinfo=UTC),)
    fold = asked("02:30", datetime(2026, 10, 25, 12, tzinfo=UTC), zurich)
    assert fold.instants == (
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    )
    assert asked("3:07", datetime(2026, 10, 25, 12, tzinfo=UTC), zone("UTC")).instants[0].hour == 3


# trigger, retry, cancel


def test_trigger_prints_the_key_and_stores_the_arguments(cli, database, clock):
    done = cli("trigger", "hand", "--arg", "n=2", "--arg", "name=x=y", "--args", '{"n": 1, "deep": [1]}')
    assert (done.code, done.err) == (0, "")
    added = done.out.strip()
    assert added.startswith("hand!")
    [fire] = ask(database, clock, lambda store: store.find_fires(FireQuery(key=added)))
    assert fire.args == {"n": 2, "name": "x=y", "deep": [1]}
    assert fire.by == "me@here"


def test_the_same_idempotency_key_adds_one_fire(cli):
    first = cli("trigger", "hand", "--idempotency-key", "today", "--json").data
    again = cli("trigger", "hand", "--idempotency-key", "today", "--json").data
    assert first == again
    assert first["key"] == "hand!today"
    assert first["args"] is None


def test_refuse_and_an_active_run_is_exit_2(cli):
    done = cli("trigger", "poll", "--if-active", "refuse")
    assert done.code == 2
    assert done.err == f"fencepost: Another run is already active: {key('poll', '04:10')}\n"
    assert not done.out
    assert cli("trigger", "poll", "--if-active", "queue").code == 0


def test_waiting_ends_by_outcome_or_timeout(cli, clock, monkeypatch):
    again = ("trigger", "hand", "--arg", "n=1", "--idempotency-key", "first")
    assert cli(*again, "--wait").code == 1
    assert cli(*again).code == 0  # it was added, once
    done = cli("trigger", "hand", "--idempotency-key", "later", "--timeout", "0.05")
    assert done.code == 1
    assert done.out == "hand!later\n"
    assert "has not ended within 0.05 s; it goes on" in done.err
    assert "no live replica knows" not in done.err
    assert "no live replica knows the task 'nobody:knows'" in cli("trigger", "strange").err


def test_retry_adds_a_manual_fire_with_the_same_arguments(cli):
    added = cli("retry", "hand!first", "--json").data
    assert added["key"] != "hand!first"
    assert (added["args"], added["by"], added["scheduled"]) == ({"n": 1}, "me@here", False)
    assert (added["asked_by"], added["retry_of"], added["effect_key"]) == (
        "me@here",
        "hand!first",
        "hand!first",
    )
    first = cli("show", "hand!first", "--json").data
    assert (first["state"], first["due_at"]) == ("failed", added["due_at"])
    assert cli("retry", key("poll", "04:10")).code == 2
    chained = cli("cancel", added["key"]) and cli("retry", added["key"], "--json").data
    assert (chained["retry_of"], chained["effect_key"]) == (added["key"], "hand!first")
    assert f"retry of  {added['key']}" in cli("show", chained["key"]).out


def test_retry_of_a_success_needs_to_say_that_effects_happen_anew(cli):
    done = key("report", "01:00")
    refused = cli("retry", done)
    assert refused.code == USAGE
    assert "has succeeded" in refused.err
    assert "--again" in refused.err
    again = cli("retry", done, "--again", "--json").data
    assert again["key"].startswith("report!")
    assert (again["retry_of"], again["effect_key"], again["due_at"]) == (
        done,
        again["key"],
        "2026-11-15T01:00:00.000000Z",
    )


def test_an_idempotency_key_is_good_for_one_request(cli):
    retry = ("retry", "hand!first", "--idempotency-key", "once")
    assert cli(*retry).out == cli(*retry).out == "hand!once\n"
    for other in (
        ("trigger", "hand", "--arg", "n=1", "--idempotency-key", "once"),
        ("trigger", "hand", "--arg", "n=2", "--idempotency-key", "first"),
        ("trigger", "hand", "--idempotency-key", "first"),
        (*retry, "--again"),
    ):
        refused = cli(*other)
        assert refused.code == USAGE, other
        assert "use a new one" in refused.err


def test_cancel_closes_what_waits_and_asks_for_what_runs(cli):
    cli("trigger", "hand", "--idempotency-key", "later")
    assert cli("cancel", "hand!later").out == "hand!later is cancelled\n"
    assert cli("cancel", "hand!later").code == 0
    assert "r3 is asked to end it" in cli("cancel", key("poll", "04:10")).out
    assert cli("show", key("poll", "04:10"), "--json").data["cancel_requested"]
    done = cli("cancel", key("poll", "00:10"))
    assert (done.code, done.out) == (1, f"{key('poll', '00:10')} had ended already: succeeded\n")
    done = cli("cancel", key("poll", "04:20"))
    assert done.code == USAGE
    assert "pause its job" in done.err


def test_a_run_whose_replica_is_dead_is_settled_on_demand(cli, monkeypatch):
    running = key("poll", "04:10")
    refused = cli("cancel", running, "--owner-is-dead")
    assert (refused.code, refused.out) == (USAGE, "")
    assert "runs on r3 (box, pid 41, " in refused.err
    assert "may happen twice" in refused.err
    assert "confirm with --yes" in refused.err
    assert cli("show", running, "--json").data["state"] == "running"

    done = cli("cancel", running, "--owner-is-dead", "--yes")
    assert (done.code, done.out) == (0, f"{running} is lost\n")
    lost = cli("show", running, "--json").data
    assert (lost["state"], lost["reason"]) == ("lost", "its replica was declared dead")
    assert lost["error"] == lost["attempts"][-1]["error"] == "r3 was declared dead by me@here"
    assert "r3 was declared dead by me@here in mid-run" in cli("why", "poll", "04:10").out
    again = cli("cancel", running, "--owner-is-dead", "--yes")
    assert (again.code, again.out) == (1, f"{running} had ended already: lost\n")
    assert cli("cancel", running).code == 1


def test_what_no_replica_runs_has_no_dead_owner(cli):
    cli("trigger", "hand", "--idempotency-key", "later")
    refused = cli("cancel", "hand!later", "--owner-is-dead", "--yes")
    assert refused.code == USAGE
    assert "no replica runs it; leave out --owner-is-dead" in refused.err


# Where the store comes from


@pytest.fixture
def app(database: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "app_of_cli_commands"
    (database.parent / f"{name}.py").write_text(
        "from fencepost import Scheduler, every\n"
        "scheduler = Scheduler()\n"
        "@scheduler.task(id='hand')\n"
        "def hand(n: int = 0): ...\n"
        "@scheduler.job(every(minutes=10), id='poll')\n"
        "def poll(): ...\n"
        "@scheduler.job(every(minutes=7), id='other')\n"
        "def other(): ...\n"
    )
    monkeypatch.syspath_prepend(str(database.parent))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return f"{name}:scheduler"


def test_every_command_takes_a_target_as_well(cli, app, monkeypatch):
    assert cli("status", app, "--json").data["jobs"]
    assert cli("jobs", app, "--json").data
    assert cli("jobs", "show", app, "poll").code == 0
    assert cli("fires", app, "--json").data
    assert cli("show", app, "hand!first", "--json").data
    assert cli("why", app, "poll", "00:20").code == 0
    assert cli("pause", app, "poll").code == 0
    assert cli("resume", app, "poll").code == 0
    assert cli("trigger", app, "hand").code == 0
    assert cli("retry", app, "hand!first").code == 0
    assert cli("cancel", app, key("poll", "04:10")).code == 0


def test_a_target_lets_trigger_check_the_arguments(cli, app):
    done = cli("trigger", app, "hand", "--arg", "m=1")
    assert done.code == USAGE
    assert "task hand has no parameter m; it takes n" in done.err


def test_the_store_may_be_named_and_wins_over_the_environment(cli, app, database, monkeypatch):
    monkeypatch.setenv("FENCEPOST_STORE", "sqlite:///elsewhere.db")
    assert cli("status").code == UNAVAILABLE
    assert cli("status", "--store", "sqlite:///app.db").code == 0
    assert cli("status", app).code == CONFIGURATION
    monkeypatch.delitem(sys.modules, app.partition(":")[0])  # each command is a process of its own
    assert cli("status", app, "--store", "sqlite:///app.db").code == 0
    assert sorted(database.parent.glob("*.db")) == [database]


def test_preview_uses_the_anchor_in_the_store(cli, app, database, monkeypatch):
    arguments = ("--from", "2026-11-15T05:03:00Z", "--count", "2", "--json")
    assert cli("preview", app, "poll", *arguments).data == [
        {"due_at": "2026-11-15T05:10:00.000000Z"},
        {"due_at": "2026-11-15T05:20:00.000000Z"},
    ]
    done = cli("preview", app, "other", *arguments)
    assert json.loads(done.out)[0] == {"due_at": "2026-11-15T05:10:00.000000Z"}
    assert "starts when the job is first stored" in done.err
    database.unlink()
    done = cli("preview", app, "poll", *arguments)
    assert json.loads(done.out)[0] == {"due_at": "2026-11-15T05:13:00.000000Z"}
    assert "starts when the job is first stored" in done.err
    assert not database.exists()


def test_preview_says_what_the_calendar_leaves_out(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fencepost.toml").write_text("""
store = "memory://"
[calendars.office]
dates = { "2026-05-14" = "Ascension Day", "2026-05-15" = "Bridge" }
[jobs.report]
command = ["true"]
cron = "0 */8 * * *"
tz = "Europe/Zurich"
calendar = "office"
""")
    arguments = ("--from", "2026-05-13T15:00:00Z", "--count", "2")
    assert cli("preview", "fencepost.toml", "report", *arguments, "--json").data[1:] == [
        {"due_at": "2026-05-16T06:00:00.000000Z"}
    ]
    assert cli("preview", "fencepost.toml", "report", *arguments, "--json").data[0] == {
        "due_at": "2026-05-15T22:00:00.000000Z",
        "left_out": [
            {"at": f"2026-05-{day}:00:00.000000Z", "why": why, "moved_to": None}
            for why, days in (
                ("Ascension Day", ("13T22", "14T06", "14T14")),
                ("Bridge", ("14T22", "15T06", "15T14")),
            )
            for day in days
        ],
    }
    shown = " ".join(cli("preview", "fencepost.toml", "report", *arguments).out.split())
    assert "2026-05-14 00:00:00+02:00 left out: Ascension Day, and 2 more" in shown
    assert "2026-05-15 00:00:00+02:00 left out: Bridge, and 2 more" in shown
    assert "cron 0 */8 * * * in Europe/Zurich; left out when office is closed" in shown


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["status", "a", "b"], USAGE, "Unexpected 'b'"),
        (["show"], USAGE, "Missing argument 'KEY'"),
        (["why"], USAGE, "Missing argument 'JOB'"),
        (["why", "pol", "03:00"], USAGE, "did you mean 'poll'?"),
        (["why", "poll", "25:00"], USAGE, "write 03:00"),
        (["why", "poll", "soon"], USAGE, "write 03:00"),
        (["why", "poll", "2026-11-15"], USAGE, "write 03:00"),
        (["why", "poll", "0001-01-01T00:00Z"], USAGE, "out of range"),
        (["why", "poll", "9999-12-31T23:59Z"], USAGE, "out of range"),
        (["show", "hand!frist"], USAGE, "did you mean 'hand!first'?"),
        (["show", "poll@2026-11-15T00:20:01.000000Z"], USAGE, "did you mean"),
        (["show", "gone@2026-11-15T00:20:00.000000Z"], USAGE, "fencepost why gone"),
        (["show", "nonsense"], USAGE, "`fencepost fires` lists them"),
        (["cancel", "hand!nothing"], USAGE, "there is no fire"),
        (["retry", "hand!nothing"], USAGE, "there is no fire"),
        (["pause", "reprot"], USAGE, "did you mean 'report'?"),
        (["pause", "re port"], USAGE, "there is no job"),
        (["pause", "report", "--until", "yesterday"], USAGE, "or give a duration such as 2h"),
        (["pause", "report", "--until", "2026-11-15T04:00:00Z"], USAGE, "has passed"),
        (["resume", "nothing"], USAGE, "`fencepost jobs` lists"),
        (["jobs", "rm", "nothing"], USAGE, "there is no job"),
        (["jobs", "rm"], USAGE, "Missing argument 'ID'"),
        (["jobs", "show", "nothing"], USAGE, "there is no job"),
        (["fires", "--job", "nothing"], USAGE, "there is no job"),
        (["fires", "--state", "odd"], USAGE, "--state"),
        (["fires", "--limit", "0"], USAGE, "--limit"),
        (["fires", "--since", "later"], USAGE, "--since"),
        (["fires", "--since", "2026-11-15T00:00:00"], USAGE, "append Z"),
        (["trigger", "nothing"], USAGE, "there is no job"),
        (["trigger", "old"], USAGE, "there is no job"),
        (["trigger", "hand", "--arg", "n"], USAGE, "name=value"),
        (["trigger", "hand", "--args", "{"], USAGE, "is not JSON"),
        (["trigger", "hand", "--args", "[1]"], USAGE, "must be a JSON object"),
        (["trigger", "hand", "--idempotency-key", "a b"], USAGE, "--idempotency-key"),
        (["trigger", "hand", "--here"], USAGE, "fencepost trigger app:scheduler JOB --here"),
        (["trigger", "hand", "--if-active", "maybe"], USAGE, "--if-active"),
        (["status", "nowhere:scheduler"], USAGE, "there is no module 'nowhere'"),
        (["status", "--store", "sqlite:///none.db"], UNAVAILABLE, "there is no none.db yet"),
        (["fires", "--store", "sqlite:///none.db"], UNAVAILABLE, "fencepost run app:scheduler"),
        (["pause", "poll", "--store", "sqlite:///none.db"], UNAVAILABLE, "FENCEPOST_STORE"),
        (["status", "--store", "sqlite:///no/folder.db"], UNAVAILABLE, "there is no no/folder.db"),
        (["status", "--store", "memory://"], CONFIGURATION, "lives inside one process"),
        (["status", "--store", "mongodb://me:secret@x"], CONFIGURATION, "no store for"),
        (["status", "--namespace", "other"], CONFIGURATION, "namespace 'other'"),
        (["status", "--namespace", "b a d"], CONFIGURATION, "is not a namespace"),
        (["status", "--store", "sqlite:///text.db"], CONFIGURATION, "not a database"),
    ],
)
def test_what_goes_wrong_ends_with_its_code_and_a_remedy(cli, database, arguments, code, says):
    (database.parent / "text.db").write_text("this is no database, and long enough to be read as one" * 100)
    done = cli(*arguments)
    assert done.code == code, done
    assert says in done.err
    assert "secret" not in done.err
    assert not done.out
    assert not (database.parent / "none.db").exists()


def test_a_database_of_somebody_else_stays_as_it_is(cli, database):
    other = database.parent / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("create table theirs (x)")
    db.close()
    before = other.read_bytes()
    done = cli("status", "--store", "sqlite:///other.db")
    assert done.code == CONFIGURATION
    assert "nothing of Fencepost" in done.err
    assert other.read_bytes() == before


def test_an_interrupt_is_130(cli, monkeypatch):
    async def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("fencepost.cli.status"), "read_overview", interrupted)
    assert cli("status").code == 130


# Small things


def test_lengths_are_short():
    lengths = [0.12, 1.5, 61, 3600, 7805, 90_000, 86_400 * 30]
    shown = [length(timedelta(seconds=each)) for each in lengths]
    assert shown == ["120 ms", "1.5 s", "1 min 1 s", "1 h", "2 h 10 min", "1 d 1 h", "30 d"]


def test_nothing_that_steers_a_terminal_is_printed():
    assert printable("a\x1b]0;x\x07\tb\nc\u202e") == "a\\x1b]0;x\\x07\tb\nc\\x202e"


# The documentation

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def shown(cli, line: str) -> str:
    """What a line typed into a shell shows."""
    typed, echo, _ = line.removeprefix("$ fencepost ").partition("; echo $?")
    done = cli(*shlex.split(typed))
    text = done.out + done.err + (f"{done.code}\n" if echo else "")
    return "\n".join(part.rstrip() for part in text.strip().splitlines() if part.strip())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0][2:])
def test_the_documentation_shows_what_is_printed(cli, example, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("secrets.token_hex", lambda size: "5f1c9a0e7b3d2846")
    commands = [line for line in example.splitlines() if line.startswith("$ ")]
    printed = "\n".join(f"{line}\n{shown(cli, line)}" for line in commands)
    assert printed == "\n".join(line for line in example.splitlines() if line)


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


def test_jobs_are_listed_by_tag_and_owner(cli, database, clock):
    labelled = Job(
        "poll", "poll", every(minutes=10), tags=("fast",), owner="ann", description="Looks for mail."
    )
    ask(database, clock, lambda store: store.put_jobs([PutJob(labelled, replace=True)]))
    for choice in ("tag:fast", "owner:Ann", "p*"):
        assert [job["id"] for job in cli("jobs", "--only", choice, "--json").data] == ["poll"]
    assert cli("jobs", "--only", "p*", "--only", "tag:slow").out == "no job fits p* and tag:slow\n"
    shown = cli("jobs", "show", "poll", "--json").data
    assert (shown["tags"], shown["owner"], shown["description"]) == (["fast"], "ann", "Looks for mail.")
    assert "Looks for mail." in cli("jobs", "show", "poll").out
    assert cli("jobs", "--only", "tags:fast").code == 64


def test_a_job_is_added_changed_and_removed(cli):
    made = cli(
        "jobs", "add", "nightly", "--task", "report", "--cron", "30 2 * * *", "--arg", "region=de", "--json"
    ).data
    assert (made["outcome"], made["after"]["args"]) == ("created", {"region": "de"})
    assert made["fires_after"][0] == "2026-11-16T02:30:00.000000Z"
    again = cli("jobs", "add", "nightly", "--task", "report", "--every", "1h")
    assert again.code == 64
    assert "fencepost jobs edit nightly" in again.err
    shown = cli(
        "jobs", "edit", "nightly", "--set", "misfire=skip", "--tag", "x", "--every", "6h", "--dry-run"
    )
    assert "nightly would be changed" in shown.out
    assert "2026-11-16 02:30:00Z" in shown.out
    assert cli("jobs", "show", "nightly", "--json").data["misfire"] == "latest"
    changed = cli("jobs", "edit", "nightly", "--set", "misfire=skip", "--tag", "x", "--json").data
    assert changed["before"] == {"misfire": "latest", "tags": None}
    shown = cli("jobs", "show", "nightly", "--json").data
    assert (shown["misfire"], shown["tags"], shown["args"]) == ("skip", ["x"], {"region": "de"})
    assert [(event["kind"], event["by"]) for event in shown["history"]] == [
        ("defined", "me@here"),
        ("changed", "me@here"),
    ]
    assert cli("jobs", "rm", "nightly").code == 0
    assert (
        cli("jobs", "edit", "nightly", "--every", "1h").err
        == "fencepost: there is no job 'nightly' in the store\n"
    )


def test_jobs_come_from_a_file_all_or_none(cli, tmp_path):
    toml, bad = tmp_path / "jobs.toml", tmp_path / "bad.json"
    toml.write_text(
        '[jobs.a]\ntask = "report"\nevery = "1h"\n[jobs.b]\ntask = "poll"\nat = 2030-01-01T00:00:00Z\n'
    )
    bad.write_text('{"jobs": {"c": {"task": "poll", "every": "1h"}, "d": {"task": "pol", "every": "1h"}}}')
    refused = cli("jobs", "add", "--from-file", str(bad))
    assert (refused.code, "d: no live replica has the task 'pol'; did you mean 'poll'?" in refused.err) == (
        64,
        True,
    )
    assert [each["outcome"] for each in cli("jobs", "add", "--from-file", str(toml), "--json").data] == [
        "created"
    ] * 2
    assert {"a", "b"} <= {job["id"] for job in cli("jobs", "--json").data}
    assert "c" not in {job["id"] for job in cli("jobs", "--json").data}
    assert [each["outcome"] for each in cli("jobs", "add", "--from-file", str(toml), "--json").data] == [
        "unchanged"
    ] * 2
    bad.write_text('{"jobs": {"c": {"command": ["true"], "every": "1h"}}}')
    assert "a command cannot be stored with a job" in cli("jobs", "add", "--from-file", str(bad)).err
    assert "leave out --every" in cli("jobs", "add", "--from-file", str(toml), "--every", "1h").err
    assert cli("jobs", "add", "--from-file", str(tmp_path / "none.toml")).code == 78


def test_the_difference_between_code_and_store(cli, tmp_path, monkeypatch):
    (tmp_path / "compared.py").write_text(
        "from fencepost import Scheduler, cron, every\n"
        "scheduler = Scheduler()\n"
        "@scheduler.job(every(minutes=20), id='poll', timeout=60)\n"
        "def poll(): ...\n"
        "@scheduler.job(cron('0 * * * *', tz='Europe/Zurich'), id='report', args={'region': 'ch'})\n"
        "def report(region): ...\n"
        "@scheduler.job(every(hours=1), id='fresh')\n"
        "def fresh(): ...\n"
        "@scheduler.job(cron('0 * * * *'), id='batch', misfire='skip')\n"
        "def batch(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert cli("jobs", "edit", "batch", "--set", "misfire=all").code == 0
    found = cli("jobs", "diff", "compared:scheduler", "--json")
    assert found.code == 1
    told = {each["job_id"]: each for each in found.data}
    assert sorted(told) == ["batch", "fresh", "hand", "poll", "strange"]
    assert (told["fresh"]["differs"], told["fresh"]["start"]) == ("only in the code", "store it")
    assert (told["poll"]["differs"], told["poll"]["start"]) == ("trigger, timeout", "replace what is stored")
    assert told["batch"]["before"] == {"misfire": "all"}
    assert told["batch"]["start"].startswith("be refused: the stored definition was made by hand")
    assert told["strange"]["start"].startswith("leave it: no live replica knows its task")
    assert "replace what is stored" in cli("jobs", "diff", "compared:scheduler").out
    assert cli("jobs", "diff").code == 64
