"""The whole suite on a standby that was promoted, found by a URL that names both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.testing.conformance import Harness
from tests.protocol.comparison import ComparedStore
from tests.servers import postgres
from tests.servers.standby import Standby
from tests.store.on_postgres import a_harness


@pytest.fixture(scope="session")
def promoted_url() -> Iterator[str]:
    with postgres(16) as primary, Standby(primary) as standby:
        standby.wait_in_step()
        primary.kill()
        standby.promote()
        hosts = ",".join(f"{each.host}:{each.port}" for each in (primary, standby))
        yield f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


@pytest.mark.slow
class TestPromoted(ComparedStore):
    @pytest.fixture
    async def harness(self, promoted_url: str) -> AsyncIterator[Harness]:
        async with a_harness(promoted_url) as harness:
            yield harness
