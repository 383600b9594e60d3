"""The API behind the dashboard: what it shows, what it refuses, and acting on many with one request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler, cron, every
from fencepost.web import audits
from fencepost.web.access import Caller
from fencepost.web.problems import Problem
from tests.web.sample import ended, sample, triggered
from tests.web.serving import QUICK, client_of, eventually, service
from tests.web.test_auth import bearer
from tests.web.test_tokens import tokens_file


def scheduler(store: str, **options: Any) -> Scheduler:
    made = Scheduler(store, **{**QUICK, **options})

    @made.job(every(seconds=1), id="tick")
    async def tick() -> None: ...

    @made.job(every(seconds=1), id="broken")
    async def broken() -> None:
        raise ValueError("the disk is full")

    @made.job(cron("30 2 * * *", tz="Europe/Zurich"), id="report")
    async def report() -> None: ...

    return made


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx2.Client]:
    folder: Path = tmp_path_factory.mktemp("pictures")
    url = "memory://" if request.param == "memory" else f"sqlite:///{folder}/a.db"
    with service(scheduler(url)) as client:
        eventually(lambda: overview(client)["fates"].get("failed", 0) >= 2)
        yield client


def asked(client: httpx2.Client, path: str, **params: Any) -> Any:
    answer = client.get(f"/api/v1/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def overview(client: httpx2.Client) -> Any:
    return asked(client, "overview", span="10m")


def test_the_overview_tells_of_fates_and_needs(client: httpx2.Client) -> None:
    found = overview(client)
    assert found["verdict"] == "yes"
    assert found["sentence"].startswith("Yes. ")
    assert found["fates"]["succeeded"] >= 2
    [need] = [need for need in found["needs"] if need["kind"] == "failing"]
    assert (need["job_id"], need["action"], need["detail"]) == (
        "broken",
        "retry",
        "ValueError: the disk is full",
    )
    assert found["leader"]["replica"] == found["replicas"][0]["replica"]
    assert found["jobs"]["idle"] >= 1
    assert 0 <= found["lateness"]["p50_seconds"] <= found["lateness"]["p99_seconds"]


def test_lanes_have_marks_and_ticks(client: httpx2.Client) -> None:
    found = asked(client, "lanes", span="10m")
    lanes = {lane["job"]["id"]: lane for lane in found["items"]}
    assert set(lanes) == {"tick", "broken", "report"}
    assert {mark["state"] for mark in lanes["broken"]["marks"]} <= {"failed", "running"}
    assert lanes["broken"]["marks"][0]["error_line"] == "ValueError: the disk is full"
    assert lanes["tick"]["planned"]
    assert lanes["report"]["marks"] == []
    assert all(tick["due_at"] > found["now"] for tick in lanes["tick"]["planned"])
    page = asked(client, "lanes", span="10m", limit=1)
    assert [lane["job"]["id"] for lane in page["items"]] == ["broken"]
    rest = asked(client, "lanes", span="10m", cursor=page["next"])
    assert [lane["job"]["id"] for lane in rest["items"]] == ["report", "tick"]
    assert [lane["job"]["id"] for lane in asked(client, "lanes", q="rep")["items"]] == ["report"]


def test_a_summary_by_bucket(client: httpx2.Client) -> None:
    found = asked(client, "fires/summary", bucket="1m", since="10m", job="broken")
    assert found["bucket_seconds"] == 60
    assert set(found["total"]) <= {"failed", "running"}
    assert sum(sum(each["states"].values()) for each in found["items"]) == sum(found["total"].values())


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("overview", {"span": "5m"}),
        ("overview", {"span": "31d"}),
        ("overview", {"span": "soon"}),
        ("lanes", {"span": "1s"}),
        ("lanes", {"columns": "10000"}),
        ("lanes", {"until": "tomorrow"}),
        ("fires/summary", {"bucket": "1ms"}),
        ("fires/summary", {"bucket": "1s", "since": "30d"}),
        ("fires/summary", {"since": "1h", "until": "2h"}),
        ("jobs/tick/preview", {"count": "0"}),
        ("jobs/tick/why", {"at": "breakfast"}),
        ("audit", {"since": "1h", "until": "2h"}),
    ],
)
def test_what_cannot_be_drawn_is_refused(client: httpx2.Client, path: str, params: dict[str, str]) -> None:
    answer = client.get(f"/api/v1/{path}", params=params)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


def test_why_and_preview(client: httpx2.Client) -> None:
    latest = asked(client, "jobs/broken/why")
    assert latest["verdict"] in ("failed", "running", "not decided")
    found = asked(client, "jobs/report/why", at="02:30")
    assert found["zone"] == "Europe/Zurich"
    assert found["verdict"] == "before its time"
    planned = asked(client, "jobs/report/preview", count=200)
    assert (planned["zone"], len(planned["items"])) == ("Europe/Zurich", 200)
    walls = {each["local"][11:16] for each in planned["items"]}
    assert walls == {"02:30", "03:00"}  # once a year the clock skips it
    assert len({each["local"][-6:] for each in planned["items"]}) == 2
    for path in ("jobs/none/why", "jobs/none/preview"):
        assert client.get(f"/api/v1/{path}").status_code == 404


def test_the_audit_answers_when_it_has_ended(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "PATIENCE", 0.0)

    def done() -> Any:
        found = asked(client, "audit", since="1h")
        return found if found["state"] == "done" else None

    found = eventually(done)
    assert found["report"]["clean"], found
    assert found["report"]["expected"] >= 4
    assert found["verdict"].startswith("Every fire that was due is accounted for once")
    only = eventually(lambda: asked(client, "audit", since="2h", job="report")["report"])
    assert (only["jobs"], only["expected"]) == (1, 0)


def test_the_doctor_and_the_terms(client: httpx2.Client) -> None:
    def failing() -> Any:
        found = asked(client, "doctor")
        return None if found["ok"] else found

    found = eventually(failing)  # a job has failed three times
    assert {"store", "clocks", "cluster", "jobs"} <= {each["section"] for each in found["findings"]}
    assert any("broken" in each["what"] for each in found["findings"] if each["level"] == "problem")
    terms = asked(client, "terms")
    [term] = terms["items"]
    assert (term["number"], term["until"], terms["next"]) == (1, None, None)
    assert term["replica"] == asked(client, "replicas")["leader"]["replica"]


# --- acting on many -----------------------------------------------------------------------------------


@pytest.fixture
def team(tmp_path: Path) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """A client for every job, and one for `report` alone."""
    path, (all_jobs, some) = tokens_file(
        tmp_path, Caller("operate", "all"), Caller("operate", "some", ("report",))
    )
    with service(sample(tokens_file=str(path))) as client, client_of(str(client.base_url)) as other:
        client.headers.update(bearer(all_jobs))
        other.headers.update(bearer(some))
        yield client, other


def posted(client: httpx2.Client, path: str, **body: Any) -> list[Any]:
    answer = client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    items: list[Any] = answer.json()["items"]
    return items


def paused(client: httpx2.Client) -> dict[str, Any]:
    jobs = client.get("/api/v1/jobs").json()["items"]
    return {job["id"]: job["paused"] for job in jobs if job["paused"]}


def test_many_jobs_are_paused_and_resumed(team: tuple[httpx2.Client, httpx2.Client]) -> None:
    client, other = team
    done = posted(
        client, "jobs/pause", ids=["report", "none", "nasty", "report"], reason="moving", until="2h"
    )
    assert [(each["id"], each["ok"], each["status"]) for each in done] == [
        ("report", True, 200),
        ("none", False, 404),
        ("nasty", True, 200),
    ]
    assert set(paused(client)) == {"report", "nasty"}
    assert {(each["reason"], each["by"]) for each in paused(client).values()} == {("moving", "all")}
    some = posted(other, "jobs/resume", ids=["report", "nasty"])
    assert [(each["ok"], each["status"]) for each in some] == [(True, 200), (False, 404)]
    assert some[1]["detail"] == "there is no job 'nasty' in the store"
    assert set(paused(client)) == {"nasty"}


def test_many_jobs_are_run_and_many_fires_retried(team: tuple[httpx2.Client, httpx2.Client]) -> None:
    client, other = team
    failed = ended(client, triggered(client, "nasty"))["key"]
    done = posted(client, "jobs/trigger", ids=["report", "nasty", "none"])
    assert [(each["ok"], each["status"]) for each in done] == [(True, 202), (True, 202), (False, 404)]
    fires = [ended(client, each["fire"]["key"]) for each in done[:2]]
    assert [fire["state"] for fire in fires] == ["succeeded", "failed"]
    keys = [failed, fires[0]["key"], "report!missing"]
    again = posted(client, "fires/retry", keys=keys)
    assert [each["status"] for each in again] == [202, 409, 404]
    assert again[0]["fire"]["retry_of"] == failed
    hidden = posted(other, "fires/retry", keys=[failed], again=True)
    assert [(each["ok"], each["status"]) for each in hidden] == [(False, 404)]


def test_too_many_at_once_are_refused(team: tuple[httpx2.Client, httpx2.Client]) -> None:
    client, _ = team
    answer = client.post("/api/v1/jobs/pause", json={"ids": [f"job{n}" for n in range(101)]})
    assert answer.status_code == 422
    assert client.post("/api/v1/jobs/pause", json={"ids": ["a/b"]}).status_code == 422
    past = client.post("/api/v1/jobs/pause", json={"ids": ["report"], "until": "2020-01-01T00:00:00Z"})
    assert past.status_code == 422
    assert paused(client) == {}


def test_what_many_did_is_logged(
    team: tuple[httpx2.Client, httpx2.Client], caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = team
    with caplog.at_level("INFO", "fencepost"):
        posted(client, "jobs/pause", ids=["report", "none"])
        eventually(lambda: "pause report" in caplog.text)
    assert "pause none" not in caplog.text


async def test_an_audit_of_another_window_waits_its_turn() -> None:
    made = audits.Audits(Slow())  # type: ignore[arg-type]
    caller = Caller("read")
    assert (await made.answer(caller, "1h", None, None, 0.0))["state"] == "running"
    assert (await made.answer(caller, "1h", None, None, 0.0))["progress"]["doing"] == "starting"
    with pytest.raises(Problem, match="another audit is running"):
        await made.answer(caller, "2h", None, None, 0.0)


class Slow:
    """A desk whose store does not answer."""

    scheduler = None

    async def in_background(self, work: Any) -> Any:
        await asyncio.sleep(60)
