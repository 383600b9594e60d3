"""The compose file of examples/single_instance: its command, environment and health check, as processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.web.serving import ROOT, STARTING, ServerProcess, client_of, eventually, server_process

EXAMPLE = ROOT / "examples" / "single_instance"
COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLE / "docker-compose.yml").read_text())
APP: dict[str, Any] = COMPOSE["services"]["app"]

pytestmark = pytest.mark.cluster


def environment(folder: Path, **shell: str) -> dict[str, str]:
    """As compose hands it to the container; `/data` is this folder."""
    found = {
        name: re.sub(r"\$\{(\w+):-([^}]*)\}", lambda named: shell.get(named[1]) or named[2], str(text))
        for name, text in APP["environment"].items()
    }
    here = {name: text.replace("/data", str(folder)) for name, text in found.items()}
    return {**here, "PYTHONPATH": str(EXAMPLE), "FENCEPOST_READY_DELAY": "0"}


def command() -> list[str]:
    return ["{port}" if word == "8000" else word.replace("0.0.0.0", "127.0.0.1") for word in APP["command"]]


def healthy(server: ServerProcess) -> bool:
    """By the health check of the file, at our port."""
    port = server.url.rpartition(":")[2]
    words = [sys.executable, *(word.replace("8000", port) for word in APP["healthcheck"]["test"][2:])]
    return subprocess.run(words, capture_output=True, timeout=STARTING, check=False).returncode == 0


def test_a5_a_single_container_and_one_too_many(tmp_path: Path) -> None:
    """A5: the container is healthy and schedules; a second one on the same volume is healthy and stands by; when the
    first is killed it takes over."""
    folders = [tmp_path / name for name in ("data", "one", "two")]
    for folder in folders:
        folder.mkdir()
    data, one, two = folders
    with server_process(command(), one, environment(data)) as first, client_of(first.url) as client:
        eventually(lambda: healthy(first), STARTING)
        eventually(lambda: client.get("/fencepost/scheduler/status").json()["is_leader"], STARTING)
        with server_process(command(), two, environment(data)) as second, client_of(second.url) as other:
            eventually(lambda: healthy(second), STARTING)
            assert not other.get("/fencepost/scheduler/status").json()["is_leader"]
            first.popen.kill()
            first.popen.wait()
            eventually(lambda: other.get("/fencepost/scheduler/status").json()["is_leader"])
            assert not healthy(first)
            second.terminate()
            assert second.ended() is not None


def test_a1_the_gate_refuses_what_the_shell_declares(tmp_path: Path) -> None:
    """A1: `BAN_LIST_WORKERS=4 docker compose up` ends, and says why; the default is 1."""
    assert environment(tmp_path)["BAN_LIST_WORKERS"] == "1"
    with server_process(command(), tmp_path, environment(tmp_path, BAN_LIST_WORKERS="4")) as server:
        assert server.ended() != 0
        assert "set BAN_LIST_WORKERS=1" in server.told()


def test_a5_the_file_says_what_compose_understands() -> None:
    assert COMPOSE.keys() == {"name", "services", "volumes"}
    assert all(isinstance(word, str) for word in APP["command"])
    assert (EXAMPLE / APP["build"]["context"] / APP["build"]["dockerfile"]).exists()
    assert all(port.startswith("127.0.0.1:") for port in APP["ports"])
    [volume] = APP["volumes"]
    assert volume == "data:/data"
    assert APP["environment"]["BAN_LIST_DB"].startswith("/data/"), "on the volume"
