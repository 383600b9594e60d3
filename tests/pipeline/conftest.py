from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Pipeline, Scheduler, every
from tests.pipeline.http_server import HttpServer


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer() as server:
        yield server


@pytest.fixture
async def scheduled(tmp_path: Path):
    """Starts a scheduler with this pipeline and stops it in the end."""
    started: list[Scheduler] = []

    async def start(pipeline: Pipeline, store: str | None = None, **policies: Any) -> Scheduler:
        scheduler = Scheduler(
            store=store or f"sqlite:///{tmp_path}/fencepost.db",
            run_ttl="2s",
            leader_ttl="2s",
            heartbeat="0.5s",
            drain_timeout="0.2s",
        )
        scheduler.job(every(days=300), **policies)(pipeline)
        started.append(scheduler)
        await scheduler.start()
        return scheduler

    yield start
    for scheduler in started:
        await scheduler.stop()
