"""`fencepost serve` as people start a dashboard: for a store alone, and under a prefix."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fencepost import Scheduler
from fencepost.cli import outcome
from tests.web.dashboard.reading import page, send
from tests.web.sample import FAR
from tests.web.serving import QUICK, STARTING, client_of, eventually, server_process
from tests.web.test_shutdown import ready


def stored(folder: Path) -> str:
    """A store with a job that nothing here has the code of."""
    url = f"sqlite:///{folder}/jobs.db"
    scheduler = Scheduler(url, **QUICK)

    @scheduler.job(FAR, id="elsewhere", args={"a": 1})
    async def elsewhere(a: int) -> None: ...

    async def session() -> None:
        async with scheduler:
            while not await scheduler.reader.ask(lambda store: store.jobs()):
                await asyncio.sleep(0.02)

    asyncio.run(session())
    return url


def test_without_code_it_takes_no_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(["serve"]) == 64
    assert "--replica off" in capsys.readouterr().err
    assert outcome(["serve", "app:scheduler", "--store", "memory://"]) == 64
    assert outcome(["serve", "--replica", "off", "--root-path", "no path"]) == 64


def test_a_dashboard_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "typo.db"
    assert outcome(["serve", "--replica", "off", "--store", f"sqlite:///{missing}"]) == 69
    assert not missing.exists()


@pytest.mark.cluster
def test_a_dashboard_for_a_store_alone(tmp_path: Path) -> None:
    command = ["fencepost", "serve", "--replica", "off", "--root-path", "/ops", "--port", "{port}"]
    with server_process(command, tmp_path, store=stored(tmp_path)) as process:
        eventually(lambda: ready(process, ""), STARTING)
        with client_of(process.url) as client:
            shown = page(client, "/ops/jobs/elsewhere")
            assert "no run yet" in shown.text
            assert (
                "as JSON" in page(client, "/ops/jobs/elsewhere/run").text
            )  # its signature is not known here
            assert send(client, "/ops/jobs/elsewhere/run", {"args": '{"a": 2}'}).status_code == 303
            assert send(client, "/ops/jobs/elsewhere/run", {"args": "[]"}).status_code == 422
            assert send(client, "/ops/jobs/elsewhere/pause", {"reason": "no code needed"}).status_code == 303
            assert "no code needed" in page(client, "/ops/").text
        process.terminate()
        assert process.ended() == 0
