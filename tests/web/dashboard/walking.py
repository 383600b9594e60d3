"""What the walk needs: a cluster with jobs and fires in every state, and a page that notes every complaint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Browser, BrowserContext, Page

from tests.web.dashboard.past import write_past
from tests.web.serving import ROOT, STARTING, client_of, eventually, server_process

APP, RIVAL = "tests.web.apps.many:scheduler", "tests.web.dashboard.rival:scheduler"
LONG = 240.0
"""Seconds: the machine may be busy with other tests."""
WANTED = {"succeeded", "failed", "skipped", "running", "lost", "missed", "cancelled"}


@contextmanager
def replicas(folder: Path, app: str, *names: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """By host name."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FENCEPOST_STORE": f"sqlite:///{folder}/jobs.db"}
    started = {}
    try:
        for name in names:
            with (folder / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", "fencepost", "run", app]
                own = {**env, "POD_NAME": name}
                started[name] = subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=log)
        yield started
    finally:
        for each in started.values():
            each.kill()
            each.wait(STARTING)


@contextmanager
def a_cluster(folder: Path) -> Iterator[httpx2.Client]:
    """A service and two replicas; the one that led has been killed in the middle of a run. Another application
    declares a job of theirs."""
    command = ["fencepost", "serve", APP, "--port", "{port}"]
    settings = {"store": f"sqlite:///{folder}/jobs.db"}
    write_past(folder / "jobs.db")
    with replicas(folder, APP, "r0", "r1") as by_host:
        first = eventually(lambda: led_by(folder, by_host), LONG)
        with server_process(command, folder, {"POD_NAME": "web"}, **settings) as process:
            eventually(lambda: answers(process.url), LONG)
            with client_of(process.url) as client:
                newest(client, "stop-sync", "running")
                newest(client, "on-the-leader", "running")
                by_host[first].send_signal(signal.SIGKILL)
                client.post("/api/v1/jobs/mailing/pause", json={"reason": "<b>moving</b>", "until": "1h"})
                client.post("/api/v1/jobs/housekeeping/pause", json={})
                client.post("/api/v1/jobs/manual/trigger", json={"args": {"name": "<i>ann</i>"}})
                newest(client, "on-the-leader", "lost")
                with replicas(folder, RIVAL, "rival"):
                    client.post(f"/api/v1/fires/{newest(client, 'queued', 'running')}/cancel")
                    eventually(lambda: states(client) >= WANTED, LONG)
                    eventually(lambda: client.get("/api/v1/jobs/far").json()["conflicts"], LONG)
                    yield client


def led_by(folder: Path, by_host: dict[str, Any]) -> str | None:
    words = [sys.executable, "-m", "fencepost", "status", "--store", f"sqlite:///{folder}/jobs.db", "--json"]
    found = subprocess.run(
        words, capture_output=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    for host in by_host:
        if f'"host": "{host}"'.encode() in found.stdout.partition(b'"replicas"')[0]:
            return host
    return None


def url(client: httpx2.Client, path: str) -> str:
    return str(client.base_url).rstrip("/") + path


def answers(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/readyz", trust_env=False).is_success
    except httpx2.TransportError:
        return False


def states(client: httpx2.Client) -> set[str]:
    """Those of which there is a fire."""
    return {state for state in WANTED if client.get(f"/api/v1/fires?state={state}&limit=1").json()["items"]}


def newest(client: httpx2.Client, job: str, *states: str, reason: str | None = None) -> str:
    """The key of its newest fire in the first of these states that there is, for this reason."""

    def found() -> str | None:
        for state in states:
            asked = {"job": job, "state": state, "limit": 1 if reason is None else 50}
            for fire in client.get("/api/v1/fires", params=asked).json()["items"]:
                if reason in (None, fire["reason"]):
                    return str(fire["key"])
        return None

    return str(eventually(found, LONG))


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[tuple[BrowserContext, Page, list[str]]]:
    context = browser.new_context(locale="en-GB", timezone_id="America/New_York", **options)
    context.set_default_timeout(120_000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield context, page, said
    finally:
        context.close()


def complaints(found: Any) -> list[str]:
    """Of axe: each rule that is broken, with the first element."""
    return [f"{each['id']}: {each['nodes'][0]['html'][:300]}" for each in found.response["violations"]]


def too_wide(page: Page) -> list[str]:
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [f"{wide} px too wide"] if wide > 0 else []
