"""What tests with real processes share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "file", "valkey", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store that processes can share, of each kind."""
    if request.param in ("sqlite", "file"):
        return f"{request.param}:///{tmp_path}/store"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found
