"""Jobs that only run when triggered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2

from fencepost import Fire, Scheduler, at
from tests.web.serving import QUICK, eventually

FAR = at(datetime(2100, 1, 1, tzinfo=UTC))
NASTY = "<img src=x onerror=alert(1)>"


def sample(store: str = "memory://", **options: Any) -> Scheduler:
    scheduler = Scheduler(store, **{**QUICK, **options})

    @scheduler.job(FAR, id="report", args={"region": "ch"})
    async def report(region: str) -> None: ...

    @scheduler.task(id="nasty")
    async def nasty() -> None:
        raise ValueError(NASTY)

    @scheduler.task(id="hold")
    async def hold(fire: Fire) -> None:
        fire.report(done=1, total=4, message="holding")
        await asyncio.sleep(60)

    return scheduler


def ended(client: httpx2.Client, key: str) -> dict[str, Any]:
    """The fire, when it is final. That of a job that follows another is added when that one ends."""

    def final() -> dict[str, Any] | None:
        answer = client.get(f"/api/v1/fires/{key}")
        fire: dict[str, Any] = answer.json()
        return fire if answer.status_code != 404 and fire["finished_at"] else None

    found: dict[str, Any] = eventually(final)
    return found


def triggered(client: httpx2.Client, job: str, **body: Any) -> str:
    answer = client.post(f"/api/v1/jobs/{job}/trigger", json=body)
    assert answer.status_code == 202, answer.text
    key: str = answer.json()["key"]
    return key
