"""What `serve` logs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

import pytest

from fencepost import Event, Settings, State
from fencepost.model import FireRecord
from fencepost.runs.events import log_event
from fencepost.web.logs import Formatter, mask_of

DUE = datetime(2026, 11, 15, 3, tzinfo=UTC)


def test_an_event_is_one_json_object(caplog: pytest.LogCaptureFixture) -> None:
    fire = FireRecord(
        "report@x", "report", DUE, state=State.FAILED, reason="raised an exception", token=7, attempt=1
    )
    with caplog.at_level(logging.INFO, "fencepost"):
        log_event(Event("failed", "r1", fire))
        log_event(Event("leader.elected", "r1", detail="term 3"))
    run, leader = (json.loads(Formatter("json", str).format(record)) for record in caplog.records)
    assert run | {"time": ""} == {
        "time": "",
        "level": "error",
        "logger": "fencepost",
        "message": "failed report@x token 7 (raised an exception)",
        "event": "run.failed",
        "replica": "r1",
        "job_id": "report",
        "fire": "report@x",
        "token": 7,
        "attempt": 1,
        "reason": "raised an exception",
    }
    assert datetime.fromisoformat(run["time"]).tzinfo is not None
    assert (leader["event"], leader["level"]) == ("leader.elected", "info")


def test_an_exception_stays_in_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "x.py", 1, "%s", ("boom",), (ValueError, error, error.__traceback__)
        )
    text = Formatter("json", str).format(record)
    assert "\n" not in text
    assert "two\nlines" in json.loads(text)["exception"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_known_secrets_are_taken_out(format: Literal["text", "json"]) -> None:
    settings = Settings.load(
        env={},
        store="postgresql://app:pass-word@db/app",
        auth_token="the-operators",
        read_token="the-readers",
    )
    secrets = ("pass-word", "the-operators", "the-readers")
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, " ".join(secrets), (), None)
    assert "*** *** ***" in Formatter(format, mask_of(settings)).format(record)
