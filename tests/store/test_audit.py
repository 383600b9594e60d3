"""The audit on real stores: a story full of incidents is accounted for, and every planted defect is found by name."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fencepost.cli import outcome
from fencepost.insight.audit import Kind, audit
from fencepost.model import State, changed
from fencepost.model.retry import Retry
from fencepost.model.triggers import every
from fencepost.store.base import GiveBack, RetryLater, Settle
from fencepost.store.codec import micros
from fencepost.store.file import FileStore
from fencepost.store.memory import MemoryStore
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance.harness import NOON, HandClock, Harness


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def key(minutes: float, job: str = "poll") -> str:
    return f"{job}@{at(minutes):%Y-%m-%dT%H:%M:%S}.000000Z"


class Story:
    """An hour of two jobs, `poll` every minute and `old` every five, told step by step."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    async def until(self, minutes: float) -> None:
        await self.harness.plan()
        await self.harness.elapse((at(minutes) - await self.harness.now()).total_seconds())
        await self.harness.plan()

    async def run(self, *minutes: float) -> None:
        """Each of these is claimed on time, and succeeds."""
        for minute in minutes:
            await self.until(minute)
            for fire in await self.harness.claims("a"):
                assert await self.harness.settle(fire)

    async def tell(self) -> None:
        harness = self.harness
        term = await harness.elect("leader", "nothing")
        await harness.join("a")
        await harness.define(
            "poll", every(minutes=1, anchor=NOON), after_crash="rerun", retry=Retry(attempts=3)
        )
        await harness.define("old", every(minutes=5, anchor=NOON))
        await harness.define("later", every(hours=5))
        await self.run(1, 2, 3)
        await self.until(4)
        fire = await harness.claim("a")
        assert await harness.update(RetryLater(fire.key, fire.token, 5))
        await self.run(4.2)
        await harness.pause("poll")
        await self.run(5, 6, 7, 7.5)
        await harness.resume("poll")
        await self.run(8)
        await harness.join("b")
        await self.until(9)
        fire = (await harness.claims("b"))[0]
        await harness.bury("leader", term, "b")
        await self.run(9.3, 10)
        await self.until(11)
        fire = await harness.claim("a")
        assert await harness.update(GiveBack(fire.key, fire.token))
        fire = await harness.claim("a")
        assert await harness.update(Settle(fire.key, fire.token, State.FAILED, "raised an exception", "oh"))
        await harness.remove("old")
        await harness.trigger("poll")
        await self.run(11.5)
        await harness.advance(19 * 60)  # everybody is busy elsewhere until 12:30:30
        await harness.heartbeat("a")
        await self.run(30.6)
        await harness.define("poll", every(minutes=2, anchor=NOON), after_crash="rerun")
        await self.run(32, 34, 35)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=["memory", "sqlite", "file", "file with many snapshots"])
def store(request, tmp_path, clock):
    if request.param == "memory":
        return MemoryStore(clock)
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "story.db", clock=clock)
    many = request.param != "file"
    return FileStore(tmp_path, "default", clock, 0 if many else 1_000_000, 0 if many else 1000)


async def test_a_story_full_of_incidents_is_accounted_for(store, clock):
    await store.open()
    await Story(Harness.with_clock(store, clock)).tell()
    report = await audit(store, since=NOON)
    await store.close()
    assert report.clean, report.findings
    # poll: 30 of the first definition, 2 of the second. old: 12:05 and 12:10, then it was removed.
    assert report.expected == 30 + 2 + 2
    assert report.states == {
        State.SUCCEEDED: 3 + 1 + 1 + 2 + 1 + 2 + 2,
        State.FAILED: 1,
        State.SKIPPED: 3,
        State.MISSED: 18,
    }
    assert (report.pending, report.manual, report.jobs) == (0, 1, 3)
    assert [(event.job_id, event.kind) for event in report.events] == [
        ("later", "defined"),
        ("poll", "defined"),
        ("poll", "paused"),
        ("poll", "resumed"),
        ("poll", "defined"),
        ("old", "defined"),
        ("old", "removed"),
    ]


async def test_one_job_alone(store, clock):
    await store.open()
    await Story(Harness.with_clock(store, clock)).tell()
    report = await audit(store, since=NOON, job_id="old")
    await store.close()
    assert report.clean
    assert (report.jobs, report.expected, report.manual, report.ran) == (1, 2, 0, 2)


# --- planted in a database -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("story") / "story.db"

    async def tell() -> None:
        clock = HandClock()
        store = SqliteStore(path, clock=clock)
        await store.open()
        await Story(Harness.with_clock(store, clock)).tell()
        await store.close()

    asyncio.run(tell())
    return path


COLUMNS = (
    "key, job_id, due_at, scheduled, state, reason, refers_to, count, last_due_at, token, replica, claim_no"
)
COLUMNS += ", attempt, crashes, settled, not_before, started_at, finished_at, cancel_requested, extra"


def copied(source: str, **values: object) -> str:
    """A row like that of `source`, with other values."""
    chosen = [repr(values[name]) if name in values else name for name in COLUMNS.split(", ")]
    row = f"select {', '.join(chosen)} from fencepost_fires where key = '{source}'"
    return f"insert into fencepost_fires ({COLUMNS}) {row}"


def set_row(key: str, values: str) -> str:
    return f"update fencepost_fires set {values} where key = '{key}'"


NEVER_STARTED = {"state": "skipped", "reason": "overlap", "token": 0, "settled": 0, "attempt": 0}


def skipped_at(minutes: float, job: str = "poll") -> str:
    """A fire that never started, where the calendar has none."""
    row = copied(key(3), key=key(minutes, job), job_id=job, due_at=micros(at(minutes)), **NEVER_STARTED)
    return f"{row}; {set_row(key(minutes, job), 'extra = null, replica = null, started_at = null')}"


A_CLAIM = "token = 1000, settled = 1000, attempt = 1, replica = 'a'"
CLAIMED_IN_PAUSE = f"state = 'succeeded', {A_CLAIM}, reason = null, count = 1, last_due_at = null"
CLAIMED_IN_PAUSE += f", started_at = {micros(at(5))}, finished_at = {micros(at(5.1))}"

DEFECTS = {
    "a fire was removed": (
        f"delete from fencepost_fires where key = '{key(2)}'",
        {Kind.UNACCOUNTED: [key(2)]},
    ),
    "the first and the last one were removed": (
        f"delete from fencepost_fires where key in ('{key(1)}', '{key(34)}')",
        {Kind.UNACCOUNTED: [key(1), key(34)]},
    ),
    "neighbours were removed": (
        f"delete from fencepost_fires where key in ('{key(2)}', '{key(3)}')",
        {Kind.UNACCOUNTED: [key(2)]},
    ),
    "all fires of a removed job's last minutes": (
        f"delete from fencepost_fires where key = '{key(10, 'old')}'",
        {Kind.UNACCOUNTED: [key(10, "old")]},
    ),
    "a row stands for fewer than there are": (
        set_row(key(12), "count = 10"),
        {Kind.UNACCOUNTED: [key(12)]},
    ),
    "a row stands for more than there are": (
        set_row(key(12), "count = 30"),
        {Kind.OUTSIDE: [key(12)]},
    ),
    "one run stands for many": (
        set_row(key(12), f"state = 'succeeded', {A_CLAIM}, started_at = finished_at"),
        {Kind.UNACCOUNTED: [key(12)], Kind.TOKENS: [key(30)]},
    ),
    "two rows have one due time": (
        copied(key(2), key="poll@again"),
        {Kind.DOUBLED: ["poll@again"], Kind.TOKENS: ["poll@again", "poll@again"]},
    ),
    "a row reaches into its neighbour": (
        set_row(key(5), f"count = 4, last_due_at = {micros(at(8))}"),
        {Kind.DOUBLED: [key(8)]},
    ),
    "two attempts overlap": (
        set_row(key(4), f"extra = json_set(extra, '$.attempts[0].finished_at', {micros(at(4.5))})"),
        {Kind.DOUBLED: [key(4)]},
    ),
    "run again although it had succeeded": (
        set_row(key(4), "extra = json_set(extra, '$.attempts[0].outcome', 'succeeded')"),
        {Kind.DOUBLED: [key(4)]},
    ),
    "the end of the first attempt is not on record": (
        set_row(key(4), "extra = json_remove(extra, '$.attempts[0]')"),
        {Kind.DOUBLED: [key(4)]},
    ),
    "a manual fire was run twice at once": (
        set_row("poll!by-hand", "attempt = 2"),
        {Kind.DOUBLED: ["poll!by-hand"], Kind.TOKENS: ["poll!by-hand"]},
    ),
    "a fire between two of the calendar": (skipped_at(2.5), {Kind.OUTSIDE: [key(2.5)]}),
    "a fire of the old definition after the new one": (skipped_at(33), {Kind.OUTSIDE: [key(33)]}),
    "a fire inside a stretch": (skipped_at(12.5), {Kind.OUTSIDE: [key(12.5)]}),
    "a fire after the job was removed": (skipped_at(15, "old"), {Kind.OUTSIDE: [key(15, "old")]}),
    "a fire of a job nobody defined": (skipped_at(15, "ghost"), {Kind.OUTSIDE: [key(15, "ghost")]}),
    "a fire that fell due in a pause was claimed": (
        set_row(key(5), CLAIMED_IN_PAUSE),
        {Kind.PAUSE_IGNORED: [key(5)], Kind.UNACCOUNTED: [key(6)], Kind.TOKENS: [key(8)]},
    ),
    "a retry was claimed in a pause": (
        set_row(key(4), f"extra = json_set(extra, '$.attempts[1].started_at', {micros(at(5.5))})")
        + "; update fencepost_events set event = json_set(event, '$.token', 4) where event like '%paused%'",
        {Kind.PAUSE_IGNORED: [key(4)]},
    ),
    "a token was given out twice": (
        set_row(key(34), "token = 3, settled = 3"),
        {Kind.TOKENS: [key(34), key(34)]},
    ),
    "tokens began anew": (
        set_row(key(34), "token = 0 + 1, settled = 0 + 1"),
        {Kind.TOKENS: [key(34), key(34)]},
    ),
    "an attempt has a lower token than the one before": (
        set_row(key(4), "extra = json_set(extra, '$.attempts[0].token', 900)"),
        {Kind.TOKENS: [key(4), key(8)]},
    ),
    "nobody decides what is due": (
        set_row(key(34), "state = 'pending', token = 0, settled = 0, attempt = 0, started_at = null")
        + f"; {set_row(key(34), 'finished_at = null, replica = null')}",
        {Kind.OVERDUE: [key(34)]},
    ),
}


def planted(told: Path, folder: Path, sql: str) -> Path:
    path = folder / "planted.db"
    with closing(sqlite3.connect(told)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
        changes = copy.total_changes
        copy.executescript(sql)
        assert copy.total_changes > changes, "the defect was not planted"
    return path


def now() -> HandClock:
    return HandClock(at(35))


@pytest.mark.parametrize("name", DEFECTS)
async def test_a_planted_defect_is_found_by_name(name, told, tmp_path):
    sql, expected = DEFECTS[name]
    store = SqliteStore(planted(told, tmp_path, sql), clock=now())
    await store.open()
    report = await audit(store, since=NOON)
    await store.close()
    found = {
        kind: [finding.key for finding in findings] for kind, findings in report.findings.items() if findings
    }
    assert found == expected
    accounted = report.states.total() + report.pending
    assert report.expected == accounted + report.found[Kind.OVERDUE] + report.found[Kind.UNACCOUNTED]


def test_the_command_exits_1_and_lists_what_is_wrong(told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fencepost.store.sqlite.store.SystemClock", now)
    monkeypatch.setenv("COLUMNS", "250")
    url = f"sqlite:///{planted(told, tmp_path, DEFECTS['neighbours were removed'][0])}"
    assert outcome(["audit", "--store", url]) == 1
    out, err = capsys.readouterr()
    assert not err
    assert f"{key(2)}" in out
    assert "2 in no row of the ledger" in out
    assert outcome(["audit", "--store", url, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["clean"], found["expected"], found["ran"]) == (False, 34, 11)
    assert found["unaccounted"] == [
        {
            "key": key(2),
            "job_id": "poll",
            "due_at": "2026-11-15T12:02:00.000000Z",
            "last_due_at": "2026-11-15T12:03:00.000000Z",
            "count": 2,
            "why": "it was due, and no row of the ledger has it",
        }
    ]
    assert found["doubled"] == []
    assert found["found"]["unaccounted"] == 2
    assert outcome(["audit", "--store", url, "--since", "2026-11-15T12:04:00Z"]) == 0
    assert outcome(["audit", "--store", url, "--until", "2026-11-15T12:02:00Z"]) == 0
    assert outcome(["audit", "--store", url, "--job", "old"]) == 0


def test_the_command_says_what_it_could_not_check_and_shows_progress_on_a_terminal_only(
    told, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("fencepost.store.sqlite.store.SystemClock", now)
    url = f"sqlite:///{planted(told, tmp_path, 'update fencepost_fires set claim_no = claim_no')}"
    assert outcome(["audit", "--store", url, "--since", "90d"]) == 0
    out, err = capsys.readouterr()
    assert "Every fire that was due is accounted for once." in out
    assert err == "the ledger keeps 30 d: only what was due from 2026-10-16 12:45:00Z on was checked\n"
    assert outcome(["audit", "--store", url, "--job", "pol"]) == 64
    assert "did you mean 'poll'?" in capsys.readouterr().err
    assert outcome(["audit", "--store", url, "--since", "1h", "--until", "2h"]) == 64
    assert "since must be before until" in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert outcome(["audit", "--store", url, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["clean"]
    assert "comparing with the calendars" in err


async def test_defects_in_memory_are_found_as_well(clock):
    store = MemoryStore(clock)
    await Story(Harness.with_clock(store, clock)).tell()
    fires = store.state.fires.rows
    store.state.fires.drop(fires[key(3)])
    store.state.fires.put(changed(fires[key(1)], key="poll@again", token=500))
    report = await audit(store, since=NOON)
    assert [finding.key for finding in report.findings[Kind.UNACCOUNTED]] == [key(3)]
    assert [finding.key for finding in report.findings[Kind.DOUBLED]] == ["poll@again"]
