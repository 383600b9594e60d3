from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.kit import Ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    opened = Ledger(url)
    yield opened
    opened.close()
