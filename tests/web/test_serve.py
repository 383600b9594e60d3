"""`fencepost serve` as a process: what it refuses, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from pathlib import Path

import httpx2
import pytest

from fencepost.cli import outcome
from tests.web.serving import QUICK, STARTING, client_of, eventually, server_process
from tests.web.test_shutdown import ready

pytestmark = pytest.mark.cluster

SERVE = ["fencepost", "serve", "tests.web.apps.host:scheduler", "--port", "{port}"]
TOKEN = "the token of an operator"


def settings(folder: Path, **more: object) -> dict[str, object]:
    return {**QUICK, "store": f"sqlite:///{folder}/jobs.db", **more}


@pytest.fixture
def _tidy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands in this process: a module of their own, in an empty folder."""
    (tmp_path / "tidy.py").write_text("from fencepost import Scheduler\nscheduler = Scheduler()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tidy", raising=False)


@pytest.mark.usefixtures("_tidy")
def test_all_addresses_demand_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["serve", "tidy:scheduler", "--host", "0.0.0.0"]) == 78
    assert "FENCEPOST_AUTH_TOKEN" in capsys.readouterr().err


@pytest.mark.usefixtures("_tidy")
def test_a_port_that_is_taken_is_found_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert outcome(["serve", "tidy:scheduler", "--port", str(taken.getsockname()[1])]) == 78
    assert "--port" in capsys.readouterr().err
    assert not (tmp_path / "fencepost.db").exists()


def test_without_a_replica_it_serves_and_logs_json_without_secrets(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    command = [*SERVE, "--replica", "off", "--log-format", "json"]
    with server_process(command, tmp_path, **settings(tmp_path, auth_token_file=token)) as process:
        eventually(lambda: ready(process, ""), STARTING)
        with client_of(process.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            assert client.get("/api/v1/replicas").json()["items"] == []
            assert client.get("/scheduler/status").json()["replica"] is None
        process.terminate()
        assert process.ended() == 0
    lines = process.told().splitlines()
    assert all(json.loads(line)["level"] for line in lines)
    assert TOKEN not in process.told()


def test_it_ends_although_its_store_never_answered(tmp_path: Path) -> None:
    store = "redis://127.0.0.1:1/0"
    with server_process(SERVE, tmp_path, **settings(tmp_path, store=store, ready_delay=0)) as process:
        eventually(lambda: "store.degraded" in process.told(), STARTING)
        with client_of(process.url) as client:
            eventually(lambda: unready(client) == {"ready": False, "reason": "store_lost"}, STARTING)
        begun = time.monotonic()
        process.terminate()
        assert process.ended() == 0
        assert time.monotonic() - begun < 8.0


def unready(client: httpx2.Client) -> object:
    try:
        return client.get("/readyz").json()
    except httpx2.ConnectError:
        return None  # it listens when it has tried the store


def test_a_second_sigterm_does_not_wait(tmp_path: Path) -> None:
    with server_process(SERVE, tmp_path, **settings(tmp_path, ready_delay=60, grace_period=90)) as process:
        eventually(lambda: ready(process, ""), STARTING)
        process.terminate()
        eventually(lambda: not ready(process, ""))
        process.terminate()
        assert process.ended() == 0


def test_ctrl_c_does_not_wait_and_ends_streams(tmp_path: Path) -> None:
    with server_process(SERVE, tmp_path, **settings(tmp_path, ready_delay=60, grace_period=90)) as process:
        eventually(lambda: ready(process, ""), STARTING)
        with client_of(process.url) as client, client.stream("GET", "/api/v1/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            begun = time.monotonic()
            process.popen.send_signal(signal.SIGINT)
            assert process.ended() == 130
            assert time.monotonic() - begun < 4.0
            list(lines)  # it ended as it should: a stream that was cut off would raise
