"""Rules that take long are checked on one store by `make test`, and on all by `make test-all`."""

from __future__ import annotations

import pytest

LONG = ("test_ten_thousand_jobs_in_batches", "test_a_secondly_job_after_a_week_is_one_row")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.startswith(LONG) and item.parent is not None and item.parent.name != "TestSqlite":
            item.add_marker(pytest.mark.slow)
