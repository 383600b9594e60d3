"""`Type=notify` and `WatchdogSec=`, with a socket in systemd's place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

APP = """
from fencepost import Scheduler, every
scheduler = Scheduler(store="sqlite:///jobs.db")
@scheduler.job(every(hours=1))
def hourly(): ...
"""
WATCHDOG = 0.3
SILENCE = 2.0
"""Seconds without a sign of life that prove that there will be none: several times `WATCHDOG`."""


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        yield receiver


def hears(systemd: socket.socket, wanted: str) -> None:
    while systemd.recv(100) != wanted.encode():
        pass


@pytest.mark.parametrize("command", ["run", "serve"])
def test_it_says_when_it_is_ready_alive_and_stopping(
    command: str, systemd: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": str(int(WATCHDOG * 1e6)),
        "FENCEPOST_PORT": "0",
    }
    unit = subprocess.Popen(
        [sys.executable, "-m", "fencepost", command, "app:scheduler"], cwd=tmp_path, env=environment
    )
    try:
        assert systemd.recv(100) == b"READY=1"
        for _ in range(3):
            hears(systemd, "WATCHDOG=1")
        os.kill(unit.pid, signal.SIGTERM)
        hears(systemd, "STOPPING=1")
        assert unit.wait(60) == 0
    finally:
        unit.kill()
        unit.wait()


def test_a_stopped_process_gives_no_sign_of_life(systemd: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    unit = subprocess.Popen(
        [sys.executable, "-m", "fencepost", "run", "app:scheduler"], cwd=tmp_path, env=environment
    )
    try:
        hears(systemd, "WATCHDOG=1")
        os.kill(unit.pid, signal.SIGSTOP)
        systemd.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            hears(systemd, "READY=1")  # it goes on to listen, past what was on its way, and hears nothing
    finally:
        unit.kill()
        unit.wait()
