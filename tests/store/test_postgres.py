"""The PostgreSQL store: the conformance suite and the comparison; once more without the fast path."""

from __future__ import annotations

import pytest

from fencepost.testing.conformance import Harness
from tests.protocol.comparison import ComparedStore, compare
from tests.store.on_postgres import a_harness

OTHERS = [pytest.param(version, marks=pytest.mark.slow) for version in (18, "system")]


@pytest.mark.parametrize("postgres_server", [16, *OTHERS], indirect=True)
class TestPostgres(ComparedStore):
    fast = True

    @pytest.fixture
    async def harness(self, postgres_server):
        async with a_harness(postgres_server.url, self.fast) as harness:
            yield harness


@pytest.mark.parametrize("postgres_server", [18], indirect=True)
class TestPostgres18:
    """What of it `make test` shows; `make test-all` runs the whole suite on it."""

    fast, harness = True, TestPostgres.harness

    @pytest.mark.parametrize("seed", range(1000, 1003))
    async def test_it_agrees_with_the_model(self, harness: Harness, seed: int) -> None:
        await compare(harness, seed, steps=120)


class TestPostgresWithCare:
    fast, harness = False, TestPostgres.harness
    test_it_agrees_with_the_model = ComparedStore.test_it_agrees_with_the_model_over_random_operations
