"""Pages of the ledger for a token that sees some jobs: full, complete, and silent about all other jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler
from fencepost.insight import pages
from fencepost.store.base import FireQuery
from fencepost.store.memory import MemoryStore
from fencepost.testing.conformance import HandClock, Harness
from fencepost.web.access import Caller
from tests.web.sample import ended, triggered
from tests.web.serving import QUICK, service
from tests.web.test_auth import bearer
from tests.web.test_tokens import tokens_file

LEDGER = ["secret", "team.a", "secret", "secret", "team.b", "secret", "team.a", "secret", "secret"]
"""The jobs of its fires, oldest first."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[httpx2.Client, dict[str, str]]]:
    """With the headers of the team's token."""
    path, (all, team) = tokens_file(tmp_path, Caller("operate", "all"), Caller("read", "team", ("team.*",)))
    scheduler = Scheduler("memory://", tokens_file=str(path), **QUICK)
    for id in {*LEDGER}:
        scheduler.task(id=id)(_nothing)
    with service(scheduler) as client:
        client.headers.update(bearer(all))
        for id in LEDGER:
            ended(client, triggered(client, id))
        yield client, bearer(team)


async def _nothing() -> None: ...


def walked(client: httpx2.Client, headers: dict[str, str], limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in range(20):
        page = client.get("/api/v1/fires", params={"limit": limit, **cursor}, headers=headers).json()
        found.append(page)
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_pages_are_full_and_cursors_are_of_fires_that_are_seen(
    served: tuple[httpx2.Client, dict[str, str]], limit: int
) -> None:
    client, team = served
    seen = walked(client, team, limit)
    fires = [fire for page in seen for fire in page["items"]]
    assert [fire["job_id"] for fire in fires] == ["team.a", "team.b", "team.a"]
    assert all(len(page["items"]) == limit for page in seen[:-1])
    shown = {fire["asked_at"] for fire in fires}
    assert {page["next"].partition("~")[0] for page in seen[:-1]} <= shown


def test_a_page_reads_only_so_much(
    served: tuple[httpx2.Client, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends early, and the next one goes on from there."""
    monkeypatch.setattr(pages, "BATCH", 2)
    monkeypatch.setattr(pages, "MOST_READ", 2)
    client, team = served
    seen = walked(client, team, 1)
    assert [fire["job_id"] for page in seen for fire in page["items"]] == ["team.a", "team.b", "team.a"]
    assert [] in [page["items"] for page in seen]


async def test_fires_of_one_instant_are_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than a page may read: each page gets further all the same."""
    monkeypatch.setattr(pages, "BATCH", 3)
    monkeypatch.setattr(pages, "MOST_READ", 3)
    clock = HandClock()
    harness = Harness.with_clock(MemoryStore(clock=clock), clock)
    for number in range(12):
        await harness.define(f"job{number:02}")
        await harness.trigger(f"job{number:02}")
    assert len({fire.due_at for fire in await harness.store.find_fires(FireQuery())}) == 1
    found: list[str] = []
    query, skip = FireQuery(limit=2), 0
    for _ in range(3):
        rows, next = await pages.page_of_fires(harness.store, query, skip, lambda fire: fire.job_id > "job06")
        found += [fire.job_id for fire in rows]
        if next is not None:
            query, skip = replace(query, until=next[0] + pages.INSTANT), next[1]
    assert next is None
    assert sorted(found) == [f"job{number:02}" for number in range(7, 12)]
