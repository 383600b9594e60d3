from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.web.sample import sample
from tests.web.serving import service


@pytest.fixture(autouse=True)
def _wrong_tokens_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tests send some; test_tokens.py is about the delay."""
    monkeypatch.setattr("fencepost.web.auth.HELD_BACK", 0.0)


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with service(sample()) as client:
        yield client
