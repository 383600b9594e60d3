"""Inside an application of one's own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from fencepost import ConfigurationError, Scheduler
from tests.web.sample import ended, sample
from tests.web.serving import client_of, served


def test_fastapi_with_the_schedulers_lifespan() -> None:
    scheduler = sample()
    app = FastAPI(lifespan=scheduler.lifespan)
    app.mount("/fencepost", scheduler.asgi())

    @app.post("/orders")
    async def order() -> dict[str, str]:
        handle = await scheduler.trigger("report", args={"region": "de"})
        return {"key": handle.key}

    with served(app) as url, client_of(url) as client:
        key = client.post("/orders").json()["key"]
        assert client.get("/fencepost/readyz").json() == {"ready": True}
        inside = client_of(f"{url}/fencepost")
        assert ended(inside, key)["state"] == "succeeded"
        assert client.get("/fencepost/api/v1/openapi.json").json()["servers"] == [{"url": "/fencepost"}]
        assert client.get("/fencepost/widget.js").headers["content-type"].startswith("text/javascript")
        inside.close()


def test_async_with_inside_the_applications_own_lifespan_closes_the_pool_last() -> None:
    scheduler, order = sample(), []

    @scheduler.on("replica.left")
    def left(event: object) -> None:
        order.append("left")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        order.append("pool opened")
        async with scheduler:
            yield
        order.append("pool closed")

    app = FastAPI(lifespan=lifespan)
    app.mount("/fencepost", scheduler.asgi())
    with served(app) as url, client_of(url) as client:
        assert client.get("/fencepost/api/v1/status").status_code == 200
    assert order == ["pool opened", "left", "pool closed"]


def test_mounted_without_its_lifespan_it_says_so_loudly(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    app.mount("/fencepost", sample().asgi())
    with caplog.at_level(logging.ERROR), served(app) as url, client_of(url) as client:
        assert client.get("/fencepost/readyz").json() == {"ready": False, "reason": "not_started"}
        for path in ("status", "events", "fires"):
            refused = client.get(f"/fencepost/api/v1/{path}")
            assert refused.status_code == 503
            assert "lifespan=scheduler.lifespan" in refused.json()["detail"]
    assert "has not been started in this process" in caplog.text


def test_a_web_application_that_only_looks(tmp_path: Path) -> None:
    """The service runs the jobs; the web application mounts the same scheduler without taking part."""
    store = f"sqlite:///{tmp_path}/jobs.db"
    web = sample(store).asgi(replica=False)
    app = FastAPI(lifespan=web.lifespan)
    app.mount("/fencepost", web)
    with served(sample(store).asgi()), served(app) as url, client_of(url) as client:
        status = client.get("/fencepost/scheduler/status").json()
        assert (status["ready"], status["replica"], len(status["replicas"])) == (True, None, 1)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fencepost.web.app", None)
    with pytest.raises(ConfigurationError, match=r"fencepost\[web\]"):
        Scheduler("memory://").asgi()
