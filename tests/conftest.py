import pytest

pytest.register_assert_rewrite("fencepost.testing.conformance", "fencepost.testing.comparison")

pytest_plugins = ["tests.servers.fixtures"]
