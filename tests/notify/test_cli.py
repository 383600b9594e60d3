"""`fencepost notify test`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.cli import outcome
from tests.notify.receivers import CHECK, FakeHealthchecks, FakeSentry, Receiver, Reply, running

USAGE, CONFIGURATION = 64, 78
KEY = "0123456789abcdef"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running(Receiver()) as started:
        yield started


def told(arguments: list[str], capsys: pytest.CaptureFixture[str], expected: int = 0) -> tuple[str, str]:
    assert outcome(["notify", *arguments]) == expected
    found = capsys.readouterr()
    return found.out, found.err


def code(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, channels: str) -> str:
    text = f"""
from fencepost import Scheduler
from fencepost.notify import *

scheduler = Scheduler(store="sqlite:///jobs.db", dashboard_url="https://ops.example.com")
{channels}
"""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return f"{name}:scheduler"


def test_a_channel_of_the_code(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = code(tmp_path, monkeypatch, "told_app", f"scheduler.notify(slack({receiver.url!r}), on=failed)")
    out, _ = told(["test", target, "slack"], capsys)
    assert out == "slack: delivered; 127.0.0.1 answers 200: ok\n"
    [request] = receiver.requests
    assert request.json["text"] == "Test message: this channel works"
    assert "https://ops.example.com|" in request.body.decode()
    assert not (tmp_path / "jobs.db").exists()


def test_a_channel_that_fails_exits_1(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.answer = lambda _: Reply(404, b"no_service")
    target = code(
        tmp_path, monkeypatch, "failing_app", f"scheduler.notify(slack({receiver.url!r}), on=failed)"
    )
    assert (
        told(["test", target, "slack"], capsys, 1)[0]
        == "slack: not delivered: 127.0.0.1 answers 404: no_service\n"
    )
    found = json.loads(told(["test", target, "slack", "--json"], capsys, 1)[0])
    assert found == {
        "channel": "slack",
        "delivered": False,
        "answers": [],
        "error": "127.0.0.1 answers 404: no_service",
    }


def test_a_channel_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = code(
        tmp_path, monkeypatch, "near_app", 'scheduler.notify(slack("https://x.test/abcdef"), on=failed)'
    )
    assert (
        "there is no channel 'slak'; did you mean 'slack'" in told(["test", target, "slak"], capsys, USAGE)[1]
    )
    assert "name the code that has the channel" in told(["test", "slack"], capsys, USAGE)[1]
    target = code(tmp_path, monkeypatch, "bare_app", "")
    assert "scheduler.notify" in told(["test", target, "slack"], capsys, USAGE)[1]


def test_channels_of_fencepost_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentry, checks = FakeSentry(KEY), FakeHealthchecks()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSN", sentry.dsn)
    (tmp_path / "fencepost.toml").write_text(f"""
[jobs.hello]
command = ["true"]
every = "1h"

[[notify]]
channel = "sentry"
dsn = "${{DSN}}"

[[notify]]
channel = "healthchecks"
url = "{checks.receiver.url}/{CHECK}"
""")
    with running(sentry.receiver), running(checks.receiver):
        assert told(["test", "fencepost.toml", "sentry"], capsys)[0].startswith("sentry: delivered")
        assert (
            told(["test", "healthchecks"], capsys)[0]
            == "healthchecks: delivered; 127.0.0.1 answers 200: OK\n"
        )
    assert sentry.monitors == {}
    assert [ping[1] for ping in checks.pings] == ["log"]
    monkeypatch.delenv("DSN")
    assert "DSN" in told(["test", "fencepost.toml", "sentry"], capsys, CONFIGURATION)[1]
