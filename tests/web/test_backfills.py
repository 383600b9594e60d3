"""Later, backfill and skip over HTTP, and as forms of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from fencepost import Fire, Scheduler, every
from tests.web.sample import ended
from tests.web.serving import QUICK, eventually, service

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
DAY = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    scheduler = Scheduler("memory://", **QUICK)

    @scheduler.job(every(hours=1, anchor=ANCHOR), id="report", overlap="allow(4)")
    async def report(fire: Fire) -> str:
        return fire.due_at.isoformat()

    @scheduler.task(id="by-hand")
    async def by_hand() -> None: ...

    with service(scheduler) as client:
        yield client


def post(client: httpx2.Client, path: str, **body: Any) -> httpx2.Response:
    return client.post(f"/api/v1/jobs/{path}", json=body)


def test_a_trigger_may_be_due_later(client: httpx2.Client) -> None:
    fire = post(client, "by-hand/trigger", **{"in": "10m", "idempotency_key": "l"}).json()
    assert (fire["key"], fire["state"]) == ("by-hand!l", "pending")
    listed = client.get("/api/v1/fires", params={"state": "pending", "job": "by-hand"}).json()["items"]
    assert [each["key"] for each in listed] == ["by-hand!l"]
    assert client.post("/api/v1/fires/by-hand!l/cancel").json()["state"] == "cancelled"
    at = (datetime.now(UTC) + timedelta(seconds=0.4)).isoformat()
    assert ended(client, post(client, "by-hand/trigger", at=at).json()["key"])["state"] == "succeeded"
    for wrong in ({"in": "soon"}, {"at": "2020-01-01T00:00:00Z"}, {"in": "1h", "at": at}, {"in": "999999h"}):
        assert post(client, "by-hand/trigger", **wrong).status_code == 422, wrong


def test_a_backfill_runs_each_due_time_and_says_how_far_it_is(client: httpx2.Client) -> None:
    asked = post(client, "report/backfill", **DAY, limit=4, name="feb")
    assert asked.status_code == 202, asked.text
    assert asked.json()["total"] == 24
    done = eventually(lambda: (found := _backfill(client, "feb"))["state"] == "done" and found)
    assert (done["ended"], done["left"]) == ({"succeeded": 24}, 0)
    key = "report!backfill-feb:2026-02-01T05:00:00.000000Z"
    fire = client.get(f"/api/v1/fires/{key}").json()
    assert (fire["due_at"], fire["result"]) == ("2026-02-01T05:00:00.000000Z", "2026-02-01T05:00:00+00:00")
    assert (fire["effect_key"], fire["backfill"]) == ("report@2026-02-01T05:00:00.000000Z", "feb")
    assert post(client, "report/backfill", **DAY, name="feb").json()["state"] == "done"
    assert post(client, "report/backfills/feb/cancel").status_code == 409


def test_what_cannot_be_backfilled_is_refused(client: httpx2.Client) -> None:
    assert post(client, "by-hand/backfill", **DAY).status_code == 422
    assert post(client, "none/backfill", **DAY).status_code == 404
    assert post(client, "report/backfill", **{"from": DAY["to"], "to": DAY["from"]}).status_code == 422
    assert post(client, "report/backfill", **{**DAY, "to": "2026-02-01T00:00:00Z"}).status_code == 422
    assert post(client, "report/backfill", **DAY, limit=0).status_code == 422
    assert post(client, "report/backfills/none/pause").status_code == 404


def test_a_backfill_is_paused_resumed_and_cancelled(client: httpx2.Client) -> None:
    held = {"from": "2026-03-01T00:00:00Z", "to": "2026-10-01T00:00:00Z", "name": "long"}
    assert post(client, "report/backfill", **held).status_code == 202
    assert post(client, "report/backfills/long/pause").json()["state"] == "paused"
    assert post(client, "report/backfills/long/resume").json()["state"] == "running"
    assert post(client, "report/backfills/long/cancel").json()["state"] == "cancelled"


def test_a_coming_fire_is_skipped_and_not(client: httpx2.Client) -> None:
    at = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:00:00Z}"
    skipped = post(client, "report/skip", at=at, reason="closed").json()["skips"]
    assert [(each["reason"], each["by"]) for each in skipped] == [("closed", "api")]
    assert "will be skipped: on request: closed" in client.get("/jobs/report").text
    assert post(client, "report/skip", at=at, undo=True).json()["skips"] == []
    wrong = post(client, "report/skip", at=at.replace("00:00Z", "07:00Z"))
    assert wrong.status_code == 422
    assert "has no fire at" in wrong.json()["detail"]
    assert post(client, "report/skip", at="2020-01-01T00:00:00Z").status_code == 422


def test_the_forms_do_the_same(client: httpx2.Client) -> None:
    assert "Backfill…" in client.get("/jobs/report").text
    form = {"from": "2026-02-03T00:00:00Z", "to": "2026-02-03T06:00:00Z", "limit": "2", "name": "form"}
    assert _send(client, "/jobs/report/backfill", form).status_code == 303
    eventually(lambda: _backfill(client, "form")["state"] == "done")
    assert "form" in client.get("/jobs/report/backfill").text
    wrong = _send(client, "/jobs/report/backfill", {**form, "from": "never", "name": "w"})
    assert wrong.status_code == 422
    assert "never" in wrong.text
    at = f"{datetime.now(UTC) + timedelta(hours=3):%Y-%m-%dT%H:00:00Z}"
    assert "Skip it" in client.get("/jobs/report/skip", params={"at": at}).text
    assert _send(client, "/jobs/report/skip", {"at": at, "reason": "by form"}).status_code == 303
    assert "by form" in client.get("/jobs/report").text
    assert _send(client, "/jobs/report/skip", {"at": at, "undo": "yes"}).status_code == 303


def _backfill(client: httpx2.Client, name: str) -> dict[str, Any]:
    items = client.get("/api/v1/jobs/report/backfills").json()["items"]
    found: dict[str, Any] = next(each for each in items if each["name"] == name)
    return found


def _send(client: httpx2.Client, path: str, form: dict[str, str]) -> httpx2.Response:
    return client.post(path, data=form, headers={"Sec-Fetch-Site": "same-origin"}, follow_redirects=False)
