"""Fencepost's API, health and metrics beside a guarded scheduler, in its own application."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
import threading
import urllib.request
from contextlib import asynccontextmanager

import pytest
import uvicorn
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI

from fencepost.apscheduler import guard
from tests.guard.kit import QUICK, eventually
from tests.servers.ports import Port


async def poll():
    pass


@pytest.fixture
def served(url, ledger):
    """An application as in docs/guard.md, on a server of its own; asks it."""
    scheduler = AsyncIOScheduler(timezone="UTC")
    scheduler.add_job(poll, "interval", seconds=1, id="poll", misfire_grace_time=30)
    service = guard(scheduler, url, **QUICK).native.asgi(replica=False)

    @asynccontextmanager
    async def lifespan(app):
        scheduler.start()
        async with service.lifespan(app):
            yield
        scheduler.shutdown()

    app = FastAPI(lifespan=lifespan)
    app.mount("/fencepost", service)
    port = Port()
    server = uvicorn.Server(uvicorn.Config(app, port=port.number, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started)
    try:
        yield lambda path: _get(f"http://127.0.0.1:{port.number}/fencepost{path}")
    finally:
        server.should_exit = True
        thread.join(20)
        port.release()
        assert not ledger.roster().replicas  # the service's lifespan has drained the guard


def _get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def test_guarded_jobs_are_served_and_measured_like_our_own(served, ledger):
    eventually(lambda: ledger.of("poll"))
    assert json.loads(served("/readyz")) == {"ready": True}
    assert [job["id"] for job in json.loads(served("/api/v1/jobs"))["items"]] == ["poll"]
    eventually(lambda: 'fencepost_runs_total{job_name="poll",outcome="succeeded"}' in served("/metrics"))
