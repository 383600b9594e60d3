"""The PostgreSQL store: the conformance suite and the comparison; once more without the short way for plain steps."""

from __future__ import annotations

import pytest

from fencepost.testing.conformance import StoreConformance
from tests.store.on_postgres import a_harness


@pytest.mark.parametrize("postgres_server", [16, 18, "system"], indirect=True)
class TestPostgres(StoreConformance):
    plainly = True

    @pytest.fixture
    async def harness(self, postgres_server):
        async with a_harness(postgres_server.url, self.plainly) as harness:
            yield harness


class TestPostgresWithCare:
    plainly, harness = False, TestPostgres.harness
    test_it_agrees_with_the_model = StoreConformance.test_it_agrees_with_the_model_over_random_operations
