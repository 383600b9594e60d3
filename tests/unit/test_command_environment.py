"""What a command finds in its environment, and what stays behind."""

from __future__ import annotations

import pytest

from fencepost.runs.bodies.command import Command
from fencepost.runs.fake import FakeFire

TOKENS = (
    "FENCEPOST_AUTH_TOKEN",
    "FENCEPOST_READ_TOKEN",
    "FENCEPOST_AUTH_TOKEN_FILE",
    "FENCEPOST_READ_TOKEN_FILE",
    "FENCEPOST_TOKENS_FILE",
)


def test_a_command_does_not_inherit_the_services_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TOKENS:
        monkeypatch.setenv(name, "hunter2hunter2")
    monkeypatch.setenv("FENCEPOST_STORE", "memory://")
    found = Command.of(["env"]).environment(FakeFire())
    assert "hunter2hunter2" not in found.values()
    assert found["FENCEPOST_STORE"] == "memory://"
    given = Command.of(["env"], env={"FENCEPOST_AUTH_TOKEN": "given"})
    assert given.environment(FakeFire())["FENCEPOST_AUTH_TOKEN"] == "given"
