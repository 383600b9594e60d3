"""Files that the local stores create are their owner's alone: they hold arguments, output and errors of jobs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.model import Job
from fencepost.store.base import PutJob
from fencepost.store.urls import store_from_url


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("url", ["sqlite:///{}/app.db", "file://{}/jobs"])
async def test_what_a_store_creates_is_its_owners_alone(url: str, tmp_path: Path) -> None:
    store = store_from_url(url.format(tmp_path))
    await store.open()
    try:
        await store.put_jobs([PutJob(Job("a", "a"))])
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
        assert len(modes) > 1
        assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
    finally:
        await store.close()


@pytest.mark.usefixtures("open_umask")
async def test_a_database_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    path.touch(mode=0o640)
    store = store_from_url(f"sqlite:///{path}")
    await store.open()
    await store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
