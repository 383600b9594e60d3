from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.web.sample import sample
from tests.web.serving import service


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with service(sample()) as client:
        yield client
