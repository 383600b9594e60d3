"""Rules that take long are checked on one store by `make test`, and on all by `make test-all`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.unreadable import (
    Place,
    file_place,
    mysql_place,
    postgres_place,
    redis_place,
    sqlite_place,
)

LONG = ("test_ten_thousand_jobs_in_batches", "test_a_secondly_job_after_a_week_is_one_row")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.startswith(LONG) and item.parent is not None and item.parent.name != "TestSqlite":
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def place(request: pytest.FixtureRequest, store: str) -> Iterator[Place]:
    """Of the store that the test names, and a way to damage rows in it."""
    if store in ("sqlite", "file"):
        folder = request.getfixturevalue("tmp_path")
        yield sqlite_place(folder) if store == "sqlite" else file_place(folder)
    else:
        url = request.getfixturevalue(f"{'valkey' if store == 'redis' else store}_url")
        yield {"redis": redis_place, "postgres": postgres_place, "mysql": mysql_place}[store](url)
