"""`backfill`, `skip` and `trigger --in` on a SQLite file."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli import outcome
from fencepost.model import Job
from fencepost.model.triggers import cron, every
from fencepost.store.base import PutJob
from fencepost.store.sqlite import SqliteStore

USAGE = 64


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCEPOST_STORE", "sqlite:///app.db")
    asyncio.run(_jobs())

    def run(*words: str, code: int = 0) -> Any:
        assert outcome(list(words)) == code
        shown = capsys.readouterr()
        return json.loads(shown.out) if "--json" in words and not code else shown.out + shown.err

    return run


async def _jobs() -> None:
    store = SqliteStore(Path("app.db"))
    await store.open()
    hourly = every(hours=1, anchor=datetime(2026, 1, 1, tzinfo=UTC))
    jobs = [Job("report", "report", hourly), Job("hand", "hand"), Job("poll", "poll", cron("* * * * *"))]
    await store.put_jobs([PutJob(job) for job in jobs])
    await store.close()


def test_a_backfill_is_started_shown_paused_and_cancelled(run: Any) -> None:
    asked = ("--from", "2026-02-01", "--to", "2026-02-02T06:00", "--tz", "Europe/Zurich", "--name", "feb")
    started = run("backfill", "report", *asked, "--limit", "2", "--json")
    assert (started["total"], started["since"]) == (30, "2026-01-31T23:00:00.000000Z")
    assert [each["name"] for each in run("backfill", "list", "--json")] == ["feb"]
    assert "feb" in run("backfill", "list")
    assert run("backfill", "pause", "report", "feb", "--json")["state"] == "paused"
    assert "paused" in run("backfill", "show", "report", "feb")
    assert run("backfill", "resume", "report", "feb", "--json")["state"] == "running"
    assert run("backfill", "cancel", "report", "feb", "--json")["state"] == "cancelled"
    assert "has ended" in run("backfill", "cancel", "report", "feb", code=USAGE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("hand", "--from", "7d"), "has no schedule"),
        (("report", "--from", "2026-02-01T00:10Z", "--to", "2026-02-01T00:20Z"), "has no fire between"),
        (("report", "--from", "2026-02-02", "--to", "2026-02-01"), "no past range"),
        (("report", "--from", "yesterday"), "is no time"),
        (("report", "--from", "7d", "--limit", "0"), "between 1 and 100"),
        (("poll", "--from", "2026-01-01"), "more than 100,000"),
        (("report", "--from", "7d", "--name", "a b"), "not usable"),
    ],
)
def test_what_cannot_be_backfilled_is_said(run: Any, words: tuple[str, ...], told: str) -> None:
    assert told in run("backfill", *words, code=USAGE)


def test_a_coming_fire_is_skipped_and_not(run: Any) -> None:
    at = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:00}"
    assert "will be skipped" in run("skip", "report", "--at", at, "--reason", "closed")
    [skip] = run("skip", "report", "--at", at, "--reason", "closed", "--json")["skips"]
    assert skip["reason"] == "closed"
    assert "will run" in run("skip", "report", "--at", at, "--undo")
    assert "no fire at" in run("skip", "report", "--at", at.replace(":00", ":07"), code=USAGE)
    assert run("skip", "report", "--json")["skips"]


def test_a_fire_is_asked_for_later_listed_and_cancelled(run: Any) -> None:
    run("trigger", "hand", "--in", "10m", "--idempotency-key", "soon")
    run("trigger", "hand", "--at", "18:00", "--tz", "Asia/Tokyo", "--idempotency-key", "tokyo")
    fires = {each["key"]: each for each in run("fires", "--state", "pending", "--json")}
    assert fires.keys() == {"hand!soon", "hand!tokyo"}
    assert fires["hand!tokyo"]["due_at"].endswith("T09:00:00.000000Z")
    run("cancel", "hand!soon")
    assert [each["key"] for each in run("fires", "--state", "pending", "--json")] == ["hand!tokyo"]
    assert "exclude" in run("trigger", "hand", "--in", "1h", "--at", "18:00", code=USAGE)
