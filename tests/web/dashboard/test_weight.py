"""What the first page weighs when its forty lanes are full: every column of the past has a fire."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from fencepost import Scheduler, every
from fencepost.model import FireRecord, State
from fencepost.store.base import Settle
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import HandClock, Harness
from fencepost.web.dashboard.pages.overview import ROWS
from tests.web.dashboard.reading import HTML, Document
from tests.web.serving import QUICK, service

MOST = 60_000
"""Bytes on the wire, with style sheet, script and mark: as docs/dashboard.md says."""
COLUMN = 15
"""Seconds, of a page that shows an hour."""
COLUMNS = 192
"""Of the past: a fifth of the page is planned fires."""
FAILING = 11
TEAMS = ("billing", "search", "mail", "warehouse", "catalog")


async def fill(path: Path) -> None:
    """Jobs that run all the time, some of whose runs fail."""
    clock = HandClock(datetime.now(UTC) - timedelta(seconds=COLUMN * COLUMNS))
    store = SqliteStore(path, clock=clock)
    await store.open()
    harness = Harness.with_clock(store, clock)
    await harness.elect("warehouse-6d9f7c-x2x4b", "work")
    for number in range(ROWS):
        await harness.define(f"{TEAMS[number % 5]}.nightly-import-{number:02}", every(seconds=COLUMN))
    for round in range(COLUMNS):
        await harness.plan()
        await clock.advance(COLUMN)
        await harness.heartbeat("warehouse-6d9f7c-x2x4b")
        fires = await harness.claims("warehouse-6d9f7c-x2x4b", ROWS)
        await clock.advance(0.3)
        settled = [settling(fire, number * 7 + round) for number, fire in enumerate(fires)]
        await store.update_claims("warehouse-6d9f7c-x2x4b", settled)
    await store.leave("warehouse-6d9f7c-x2x4b")
    await store.close()


def settling(fire: FireRecord, number: int) -> Settle:
    if number % FAILING:
        return Settle(fire.key, fire.token, State.SUCCEEDED)
    error = f"Traceback:\nValueError: row {number} of {fire.job_id} has no price"
    return Settle(fire.key, fire.token, State.FAILED, error=error)


def weight(client: httpx2.Client, address: str) -> int:
    answer = client.get(address, headers=HTML)
    assert answer.status_code == 200
    assert answer.headers.get("content-encoding") == "gzip" or address.endswith(".svg")
    return int(answer.headers["content-length"])


@pytest.mark.slow
async def test_the_first_page_with_forty_full_lanes_is_small(tmp_path: Path) -> None:
    await fill(tmp_path / "jobs.db")
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", **QUICK)
    scheduler.task(id="work")(_nothing)
    with service(scheduler) as client:
        found = Document(client.get("/", headers=HTML).text)
        lanes = [each for each in found.named("tr") if each.get("id", "").startswith("lane-")]
        assert len(lanes) == ROWS
        told = re.compile(r"\S+-import-\d\d: .*?(\d+) succeeded")
        ran = [int(each[1]) for text in found.texts if (each := told.match(text))]
        assert len(ran) == ROWS
        assert min(ran) > 0.8 * COLUMNS
        files = [each for each in found.addresses if "/assets/" in each]
        assert len(files) == 3
        weights = {address: weight(client, address) for address in ("/", *files)}
        assert sum(weights.values()) < MOST, weights


async def _nothing() -> None: ...
