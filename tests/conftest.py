import gc

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("fencepost.testing.conformance", "fencepost.testing.comparison")

pytest_plugins = ["tests.servers.fixtures"]

# On a busy machine a draw may wait for its turn for a second. That says nothing about the strategy.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector need not look through them again and again."""
    gc.collect()
    gc.freeze()
