"""The API over a real server."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import httpx2
import pytest

from fencepost import Pipeline, Scheduler, every
from fencepost.web.answers import PipelineStatus
from fencepost.web.gate import PROBES
from tests.web.sample import NASTY, ended, sample, triggered
from tests.web.serving import QUICK, eventually, service


def test_a_trigger_runs_the_job_and_the_ledger_says_who_asked(client: httpx2.Client) -> None:
    fire = ended(client, triggered(client, "report", args={"region": "de"}))
    assert fire["state"] == "succeeded"
    assert fire["args"] == {"region": "de"}
    assert fire["by"] == "api"


def test_the_same_idempotency_key_adds_one_fire(client: httpx2.Client) -> None:
    answers = [
        client.post("/api/v1/jobs/report/trigger", json={"idempotency_key": "monday"}),
        client.post("/api/v1/jobs/report/trigger", headers={"Idempotency-Key": "monday"}),
        client.post("/api/v1/jobs/report/trigger", json={"idempotency_key": "monday"}),
    ]
    assert {answer.json()["key"] for answer in answers} == {"report!monday"}
    assert len(client.get("/api/v1/fires", params={"job": "report"}).json()["items"]) == 1
    both = client.post(
        "/api/v1/jobs/report/trigger",
        json={"idempotency_key": "monday"},
        headers={"Idempotency-Key": "tuesday"},
    )
    assert both.status_code == 422


def test_an_active_run_refuses_another_if_asked_to(client: httpx2.Client) -> None:
    key = triggered(client, "hold")
    eventually(lambda: client.get(f"/api/v1/fires/{key}").json()["state"] == "running")
    answer = client.post("/api/v1/jobs/hold/trigger", json={"if_active": "refuse"})
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert key in answer.json()["detail"]


def test_a_run_is_seen_with_its_progress_and_can_be_cancelled(client: httpx2.Client) -> None:
    key = triggered(client, "hold")
    fire = eventually(lambda: (found := client.get(f"/api/v1/fires/{key}").json())["progress"] and found)
    assert fire["progress"] == {"done": 1, "total": 4, "message": "holding"}
    assert client.post(f"/api/v1/fires/{key}/cancel").status_code == 202
    assert ended(client, key)["state"] == "cancelled"
    assert client.post(f"/api/v1/fires/{key}/cancel").status_code == 409


def test_a_retry_is_a_fire_of_its_own(client: httpx2.Client) -> None:
    key = triggered(client, "report", args={"region": "de"})
    ended(client, key)
    refused = client.post(f"/api/v1/fires/{key}/retry")
    assert refused.status_code == 409
    assert "has succeeded" in refused.json()["detail"]
    answer = client.post(f"/api/v1/fires/{key}/retry", json={"again": True})
    assert answer.status_code == 202
    again = ended(client, answer.json()["key"])
    assert (again["args"], again["by"], again["asked_by"]) == ({"region": "de"}, "api", "api")
    assert (again["retry_of"], again["effect_key"]) == (key, again["key"])
    assert again["due_at"] == client.get(f"/api/v1/fires/{key}").json()["due_at"]


def test_an_idempotency_key_is_good_for_one_request(client: httpx2.Client) -> None:
    key = triggered(client, "report", args={"region": "de"})
    ended(client, key)
    retry, again = f"/api/v1/fires/{key}/retry", {"again": True}
    answers = [client.post(retry, json=again, headers={"Idempotency-Key": "once"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json()["key"] for answer in answers] == ["report!once", "report!once"]
    for args in ({"region": "ch"}, None):
        other = client.post(
            "/api/v1/jobs/report/trigger", json={"args": args}, headers={"Idempotency-Key": "once"}
        )
        assert other.status_code == 409
        assert "idempotency key" in other.json()["detail"]
    name = key.partition("!")[2]
    body = {"args": {"region": "ch"}, "idempotency_key": name}
    assert client.post("/api/v1/jobs/report/trigger", json=body).status_code == 409
    assert (
        client.post("/api/v1/jobs/report/trigger", json={**body, "args": {"region": "de"}}).status_code == 202
    )


def test_a_pause_has_a_reason_and_an_end(client: httpx2.Client) -> None:
    answer = client.post("/api/v1/jobs/report/pause", json={"reason": "migrating", "until": "2h"})
    assert answer.status_code == 200
    pause = client.get("/api/v1/jobs/report").json()["paused"]
    assert pause == answer.json()["paused"]
    assert (pause["reason"], pause["by"], pause["until"] > pause["since"]) == ("migrating", "api", True)
    assert [job["id"] for job in client.get("/api/v1/jobs?state=paused").json()["items"]] == ["report"]
    assert client.post("/api/v1/jobs/report/resume").json() == {"job_id": "report", "paused": None}
    assert client.get("/api/v1/jobs/report").json()["paused"] is None
    kinds = [event["kind"] for event in client.get("/api/v1/jobs/report").json()["history"]]
    assert kinds == ["defined", "paused", "resumed"]


def test_what_does_not_fit_is_refused_with_the_place_and_the_remedy(client: httpx2.Client) -> None:
    for path, body, status, told in [
        ("jobs/report/trigger", {"args": {"planet": "mars"}}, 422, "it takes region"),
        ("jobs/report/trigger", {"arguments": {}}, 422, "arguments"),
        ("jobs/report/trigger", {"if_active": "panic"}, 422, "if_active"),
        ("jobs/nobody/trigger", {}, 404, "no job 'nobody'"),
        ("jobs/report/pause", {"until": "2020-01-01T00:00:00Z"}, 422, "has passed"),
        ("jobs/report/pause", {"until": "soon"}, 422, "duration such as 2h"),
        ("jobs/report/pause", {"reason": "\x00"}, 422, "reason"),
        ("jobs/nobody/pause", {}, 404, "no job"),
        ("fires/report!none/cancel", None, 404, "no fire"),
        ("fires/report!none/retry", None, 404, "no fire"),
    ]:
        answer = client.post(f"/api/v1/{path}", json=body)
        assert (answer.status_code, told in answer.text) == (status, True), (path, answer.text)
        assert answer.json()["status"] == status
    for path in (
        "fires?limit=0",
        "fires?since=yesterday",
        "fires?state=gone",
        "fires?cursor=x",
        "status?x=1",
    ):
        assert client.get(f"/api/v1/{path}").status_code == 422, path
    assert client.get("/api/v1/nothing").status_code == 404
    assert client.delete("/api/v1/status").status_code == 405


def test_text_that_is_no_json_or_too_long_is_refused(client: httpx2.Client) -> None:
    json_type = {"Content-Type": "application/json"}
    path = "/api/v1/jobs/report/trigger"
    for body in (
        b"{",
        b"[]",
        b'{"args": {"region": NaN}}',
        b'{"args": {"region": "\\ud800"}}',
        b"[" * 50_000,
    ):
        assert client.post(path, content=body, headers=json_type).status_code == 422, body[:40]
    assert client.post(path, content=b" " * 200_000, headers=json_type).status_code == 413
    assert client.post(path, json={"args": {"region": "x" * 70_000}}).status_code == 422
    many = {f"X-{number}": "x" * 1_000 for number in range(40)}
    assert client.get("/api/v1/status", headers=many).status_code == 431


def test_pages_of_the_ledger_fit_together(client: httpx2.Client) -> None:
    keys = {triggered(client, "report") for _ in range(7)}
    for key in keys:
        ended(client, key)
    found, cursor = [], None
    while True:
        query = {"limit": "3", "job": "report", **({"cursor": cursor} if cursor else {})}
        page = client.get("/api/v1/fires", params=query).json()
        found += [fire["key"] for fire in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert len(found) == 7
    assert set(found) == keys
    assert client.get("/api/v1/fires?state=failed").json()["items"] == []
    assert len(client.get("/api/v1/fires?since=1h&state=succeeded&state=failed").json()["items"]) == 7
    assert client.get("/api/v1/fires?until=1h").json()["items"] == []


def test_planned_fires_are_shown_when_asked_for(client: httpx2.Client) -> None:
    assert client.get("/api/v1/fires").json()["items"] == []
    assert client.get("/api/v1/jobs/report").json()["next_run_at"] == "2100-01-01T00:00:00.000000Z"


def test_jobs_are_paged_and_searched(client: httpx2.Client) -> None:
    first = client.get("/api/v1/jobs?limit=2").json()
    assert [job["id"] for job in first["items"]] == ["hold", "nasty"]
    second = client.get("/api/v1/jobs", params={"limit": 2, "cursor": first["next"]}).json()
    assert ([job["id"] for job in second["items"]], second["next"]) == (["report"], None)
    assert [job["id"] for job in client.get("/api/v1/jobs?q=rep").json()["items"]] == ["report"]


def test_what_has_not_changed_is_not_sent_again(client: httpx2.Client) -> None:
    for path in (
        "/api/v1/status",
        "/api/v1/fires",
        "/api/v1/jobs/report",
        "/widget.js",
        "/api/v1/openapi.json",
    ):
        tag = client.get(path).headers["etag"]
        unchanged = client.get(path, headers={"If-None-Match": tag})
        assert (unchanged.status_code, unchanged.content) == (304, b""), path
    tag = client.get("/api/v1/fires").headers["etag"]
    ended(client, triggered(client, "report"))
    assert client.get("/api/v1/fires", headers={"If-None-Match": tag}).status_code == 200


def test_known_tags_may_be_listed_and_compare_weakly(client: httpx2.Client) -> None:
    for path in ("/api/v1/jobs", "/widget.js"):
        tag = client.get(path).headers["etag"].removeprefix("W/")
        for known in (tag, f"W/{tag}", f'"x", W/{tag}', f'{tag}, "y"', "*"):
            assert client.get(path, headers={"If-None-Match": known}).status_code == 304, known
        for other in ('"x"', tag.strip('"'), f'"x{tag[1:]}'):
            assert client.get(path, headers={"If-None-Match": other}).status_code == 200, other


def test_jobs_by_several_states_and_in_any_case(client: httpx2.Client) -> None:
    client.post("/api/v1/jobs/nasty/pause")

    def ids(query: str) -> list[str]:
        return [job["id"] for job in client.get(f"/api/v1/jobs?{query}").json()["items"]]

    assert ids("state=paused") == ["nasty"]
    assert ids("state=paused&state=idle") == ["hold", "nasty", "report"]
    assert ids("q=REP") == ["report"]
    assert client.get("/api/v1/jobs?state=nonsense").status_code == 422
    assert client.get("/api/v1/jobs?state=idle&state=nonsense").status_code == 422


@pytest.mark.parametrize("path", PROBES)
def test_probes_do_not_mind_a_query(client: httpx2.Client, path: str) -> None:
    assert client.get(f"{path}?x=1").status_code == 200


FAR_AWAY = ["/api/v1/fires?since=36500d"]
STRANGE = [
    "/api/v1/fires?cursor=9999-12-31T23:59:59.999999Z~1",
    "/api/v1/fires?cursor=%00",
    "/api/v1/fires?job=%00",
    "/api/v1/fires?since=%00",
    "/api/v1/fires/a%00b!c",
    "/api/v1/fires/report!%00",
    "/api/v1/fires/report",
    "/api/v1/jobs/a%00b",
    "/api/v1/jobs/report%0a",
    "/api/v1/jobs?q=%00",
    "/api/v1/jobs?cursor=%00",
    "/api/system/pipeline_status?job=%00",
]


def check_strange(client: httpx2.Client) -> None:
    for path in STRANGE:
        answer = client.get(path)
        assert 400 <= answer.status_code < 500, (path, answer.text)
    for path in FAR_AWAY:
        assert client.get(path).status_code == 200, path
    for path in ("fires/report!%00/cancel", "fires/a%00b@c/retry", "jobs/%00/trigger", "jobs/%00/pause"):
        assert client.post(f"/api/v1/{path}").status_code == 404, path


def test_the_store_says_when_it_last_heard_of_a_replica(client: httpx2.Client) -> None:
    def heard() -> datetime:
        answer = client.get("/api/v1/replicas").json()
        [replica], now = answer["items"], datetime.fromisoformat(answer["now"])
        renewed = datetime.fromisoformat(replica["renewed_at"])
        assert datetime.fromisoformat(replica["joined_at"]) <= renewed <= now
        return renewed

    first = heard()
    eventually(lambda: heard() > first)


def test_an_error_of_a_job_is_data_and_nothing_else(client: httpx2.Client) -> None:
    fire = ended(client, triggered(client, "nasty"))
    assert NASTY in fire["error"]
    answer = client.get(f"/api/v1/fires/{fire['key']}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    refused = client.post(f"/api/v1/jobs/{NASTY}/trigger")
    assert refused.headers["content-type"] == "application/problem+json"


def test_replicas_and_leader(client: httpx2.Client) -> None:
    found = eventually(lambda: (got := client.get("/api/v1/replicas").json())["leader"] and got)
    [replica] = found["items"]
    assert (replica["replica"], replica["leader"]) == (found["leader"]["replica"], True)


def test_a_service_without_a_replica_reads_and_acts_on_the_same_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    with service(sample(store)) as busy, service(sample(store), replica=False) as idle:
        assert len(eventually(lambda: idle.get("/api/v1/replicas").json()["items"])) == 1
        assert idle.get("/readyz").json() == {"ready": True}
        assert idle.get("/scheduler/status").json()["replica"] is None
        key = triggered(idle, "report")
        assert ended(busy, key)["state"] == "succeeded"


def test_the_status_of_a_pipeline_has_the_fields_it_promises() -> None:
    scheduler, pipeline = Scheduler("memory://", **QUICK), Pipeline("import")
    pipeline.phase("load", rewrites=["stops"])(lambda: None)
    scheduler.job(every(days=300), id="import")(pipeline)
    with service(scheduler) as client:
        path = "/api/system/pipeline_status"
        before = client.get(path).json()
        assert (before["status"], before["data_updated_at"]) == ("idle", None)
        assert before["next_run_at"] is not None
        ended(client, triggered(client, "import"))
        answer = client.get(path)
        PipelineStatus.model_validate(answer.json())
        assert answer.json()["data_updated_at"] is not None
        assert answer.json()["refresh_scope_tables_rewritten"] == ["stops"]
        assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
        assert client.get(f"{path}?job=nobody").status_code == 404


def test_which_pipeline_must_be_said_where_there_are_several(client: httpx2.Client) -> None:
    answer = client.get("/api/system/pipeline_status")
    assert answer.status_code == 404
    assert "which pipeline?" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["file", "sqlite", "valkey", "postgres"])
def test_it_is_the_same_on_every_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    local = {"file": f"file://{tmp_path}/jobs", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    url = local[kind] if kind in local else request.getfixturevalue(f"{kind}_url")
    with service(sample(url)) as client:
        for region in ("a\x00b", "\u00fc\U0001f600"):
            assert ended(client, triggered(client, "report", args={"region": region}))["state"] == "succeeded"
        assert ended(client, triggered(client, "nasty"))["state"] == "failed"
        client.post("/api/v1/jobs/report/pause", json={"until": "8999-01-01T00:00:00Z"})
        assert client.get("/api/v1/jobs/report").json()["state"] == "paused"
        for query in ("since=36500d", "since=1900-01-01T00:00:00Z&until=8999-12-31T00:00:00Z"):
            assert len(client.get(f"/api/v1/fires?{query}&limit=2").json()["items"]) == 2
        check_strange(client)
        assert client.get("/metrics").status_code == 200


def test_jobs_are_found_by_tag_and_owner(tmp_path: Path) -> None:
    scheduler = sample()

    @scheduler.job(every(hours=1), id="nightly", tags=["night", "db"], owner="Ann", description="Saves all.")
    def nightly() -> None: ...

    def ids(**asked: str | list[str]) -> list[str]:
        return [job["id"] for job in client.get("/api/v1/jobs", params=asked).json()["items"]]

    with service(scheduler) as client:
        assert ids(tag="db") == ids(tag=["db", "night"]) == ids(owner="ann") == ["nightly"]
        assert ids(tag="other") == ids(tag=["db", "other"]) == ids(owner="bob") == []
        job = client.get("/api/v1/jobs/nightly").json()
        assert (job["tags"], job["owner"], job["description"]) == (["db", "night"], "Ann", "Saves all.")
