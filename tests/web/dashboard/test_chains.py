"""Chains and priorities on the dashboard, and two people at one form."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import httpx2
import pytest

from fencepost import Scheduler, after
from tests.web.dashboard.reading import Document, page, send
from tests.web.sample import FAR, ended, triggered
from tests.web.serving import QUICK, service


def scheduler() -> Scheduler:
    scheduler = Scheduler("memory://", **QUICK)

    @scheduler.job(FAR, priority=5, id="extract")
    async def extract() -> None: ...

    @scheduler.job(after(extract), overlap="queue", id="load")
    async def load() -> None: ...

    @scheduler.job(after(load), priority=-3, overlap="queue", id="report")
    async def report() -> None:
        raise RuntimeError("no paper")

    return scheduler


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with service(scheduler()) as client:
        yield client


def test_the_page_of_a_fire_shows_those_before_and_after_it(client: httpx2.Client) -> None:
    key = triggered(client, "extract", idempotency_key="tuesday")
    for job in ("load", "report"):
        ended(client, quote(f"{job}!{key.partition('!')[2]}", safe=""))
    for job in ("extract", "load", "report"):
        shown = page(client, f"/fires/{job}!{key.partition('!')[2]}")
        assert "Step Job Fire 1 extract" in shown.text
        for other, state in (("extract", "succeeded"), ("load", "succeeded"), ("report", "failed")):
            assert f"/fires/{quote(other + '!' + key.partition('!')[2], safe='')}" in shown.addresses
            assert state in shown.text
        assert f"{job} this job" in shown.text


def test_the_page_of_a_job_shows_its_place(client: httpx2.Client) -> None:
    shown = page(client, "/jobs/load")
    assert "It follows extract, with the same due times." in shown.text
    assert "load this job, after extract" in shown.text
    assert "report after load" in shown.text
    assert "No fire is to come" not in shown.text
    assert "when extract has ended" in page(client, "/jobs").text


@pytest.mark.parametrize(
    ("asked", "found"),
    [("5", ["extract"]), ("0..", ["extract", "load"]), ("..-1", ["report"]), ("..", None), ("high", None)],
)
def test_jobs_are_found_by_priority(client: httpx2.Client, asked: str, found: list[str] | None) -> None:
    answer = client.get("/api/v1/jobs", params={"priority": asked})
    if found is None:
        assert answer.status_code == 422
        page(client, f"/jobs?priority={asked}", status=422)
        return
    assert [job["id"] for job in answer.json()["items"]] == found
    rows = [each["id"] for each in page(client, f"/jobs?priority={asked}").named("tr") if "id" in each]
    assert rows == [f"job-{id}" for id in found]


def test_the_highest_priority_is_listed_first(client: httpx2.Client) -> None:
    rows = [each["id"] for each in page(client, "/jobs?sort=priority").named("tr") if "id" in each]
    assert rows == ["job-extract", "job-load", "job-report"]


def test_who_comes_second_with_a_form_loses_nothing(client: httpx2.Client) -> None:
    made = {"id": "shared", "task": "extract", "kind": "after", "schedule": "extract", "version": "none"}
    assert send(client, "/define", {**made, "priority": "7", "do": "save"}).status_code == 303
    again = send(client, "/define", {**made, "do": "save"})
    assert again.status_code == 412
    assert "there is a job &#39;shared&#39; already" in again.text

    form = page(client, "/jobs/shared/edit")
    version = next(each["value"] for each in form.named("input") if each["name"] == "version")
    both = {"task": "extract", "kind": "keep", "version": version, "priority": "7"}
    assert send(client, "/jobs/shared/edit", {**both, "owner": "ann", "do": "save"}).status_code == 303
    late = send(client, "/jobs/shared/edit", {**both, "description": "What Bob typed.", "do": "save"})
    assert late.status_code == 412
    shown = Document(late.text)
    assert "has been changed since you read it by api. Nothing was saved." in shown.text
    assert 'owner "ann" null' in shown.text
    assert "What Bob typed." in shown.text
    assert client.get("/api/v1/jobs/shared").json()["description"] == ""

    kept = {each["name"]: each.get("value", "") for each in shown.named("input") if each.get("name")}
    both |= {"version": kept["version"], "owner": "ann", "description": "What Bob typed."}
    assert send(client, "/jobs/shared/edit", {**both, "do": "save"}).status_code == 303
    job = client.get("/api/v1/jobs/shared").json()
    assert (job["owner"], job["description"], job["priority"], job["after"]) == (
        "ann",
        "What Bob typed.",
        7,
        ["extract"],
    )


def test_a_circle_is_named_by_the_api_and_the_form(client: httpx2.Client) -> None:
    circle = "in a circle: extract → load → extract"
    answer = client.patch("/api/v1/jobs/extract", json={"after": ["load"]}, headers={"If-Match": "*"})
    assert answer.status_code == 422
    assert circle in answer.json()["detail"]
    dry = client.patch(
        "/api/v1/jobs/extract?dry_run=true", json={"after": ["load"]}, headers={"If-Match": "*"}
    )
    assert circle in dry.json()["detail"]
    version = client.get("/api/v1/jobs/extract").json()["fingerprint"]
    fields = {"task": "extract", "kind": "after", "schedule": "load", "version": version}
    assert circle in send(client, "/jobs/extract/edit", fields).text
