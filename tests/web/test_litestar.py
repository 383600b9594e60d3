"""Inside a Litestar application, behind a real server."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from litestar import Litestar, post

from fencepost.litestar import FencepostPlugin
from fencepost.web.auth import Caller
from tests.web.sample import ended, sample, triggered
from tests.web.serving import client_of, served


def test_the_scheduler_lives_with_the_application_and_its_service_is_mounted() -> None:
    scheduler = sample()

    @post("/orders")
    async def order() -> dict[str, str]:
        return {"key": (await scheduler.trigger("report", args={"region": "de"})).key}

    app = Litestar([order], plugins=[FencepostPlugin(scheduler)])
    with served(app) as url, client_of(url) as client, client_of(f"{url}/fencepost") as inside:
        key = client.post("/orders").json()["key"]
        assert inside.get("/readyz").json() == {"ready": True}
        assert ended(inside, key)["state"] == "succeeded"
        assert ended(inside, triggered(inside, "report"))["state"] == "succeeded"
        assert inside.get("/api/v1/openapi.json").json()["servers"] == [{"url": "/fencepost"}]
        with inside.stream("GET", "/api/v1/events") as stream:
            assert next(line for line in stream.iter_lines() if line.startswith("event")) == "event: hello"
    assert scheduler.replica is None


def test_elsewhere_with_the_applications_sign_in_or_not_at_all() -> None:
    scheduler = sample()
    plugin = FencepostPlugin(scheduler, path="/ops/jobs", authorize=lambda request: Caller("read", "ann"))
    with served(Litestar(plugins=[plugin])) as url, client_of(url) as client:
        assert client.get("/ops/jobs/api/v1/me").json()["name"] == "ann"
        assert client.post("/ops/jobs/api/v1/jobs/report/trigger").status_code == 403
    with served(Litestar(plugins=[FencepostPlugin(scheduler, path=None)])) as url, client_of(url) as client:
        assert client.get("/fencepost/readyz").status_code == 404
        assert scheduler.replica is not None


@pytest.mark.slow
def test_its_command_line_has_ours(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        textwrap.dedent("""
            from litestar import Litestar
            from fencepost import Scheduler, every
            from fencepost.litestar import FencepostPlugin

            scheduler = Scheduler(store="sqlite:///jobs.db")

            @scheduler.job(every(hours=1), id="hourly")
            async def hourly(): ...

            app = Litestar(plugins=[FencepostPlugin(scheduler)])
        """)
    )
    command = [sys.executable, "-m", "litestar", "fencepost", "preview", "hourly", "--count", "2", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("due_at") == 2
