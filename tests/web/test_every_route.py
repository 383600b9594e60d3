"""Every route as everybody: nobody, a wrong token, each role, a token for some jobs, and a browser on another site.

Routes are taken from the application, so that a new one is walked without being named here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Fire, Pipeline, Scheduler
from fencepost.notify import call, lost
from fencepost.web.access import Caller, Role
from fencepost.web.api import ENDPOINTS
from fencepost.web.endpoint import Endpoint
from fencepost.web.gate import OPEN
from tests.web.sample import FAR, ended, triggered
from tests.web.serving import QUICK, eventually, service
from tests.web.test_auth import bearer
from tests.web.test_tokens import tokens_file

STREAM = "/api/v1/events"
CALLERS = [
    Caller("read", "reader"),
    Caller("operate", "operator"),
    Caller("admin", "administrator"),
    Caller("operate", "team", ("team.*",)),
]
OUR = {"id": "team.job", "key": "team.job!done", "backfill": "b", "rule": "r"}
HIDDEN = {"id": "secret.job", "key": "secret.job!done", "backfill": "b", "rule": "r"}
MISSING = {"id": "team.none", "key": "team.none!x", "backfill": "b", "rule": "r"}
WITH_JOB = [each.path for each in ENDPOINTS if each.query and "job" in each.query.model_fields]
DOCUMENTS = ("/api/v1/openapi.json", "/widget.js")
ROUTES = [(each.method, each.path) for each in ENDPOINTS if each.path != STREAM]
ROUTES += [("GET", path) for path in DOCUMENTS]
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/api/v1/fires/{key}/retry"): {"again": True},
    ("POST", "/api/v1/fires/{key}/update"): {"token": 1, "worker": "w", "update": {"is": "Report"}},
    ("PUT", "/api/v1/jobs/{id}"): {"task": "team.job", "args": {"of": "x"}},
    ("PUT", "/api/v1/notifications/rules/{rule}"): {"channel": "hook", "on": ["lost"], "jobs": "secret.job"},
    ("POST", "/api/v1/jobs/{id}/backfill"): {"from": "1d"},
    ("POST", "/api/v1/jobs/{id}/skip"): {"at": "2100-01-01T00:00:00Z"},
}
"""What a route needs beside its path to do something."""


def scheduler(**options: Any) -> Scheduler:
    scheduler = Scheduler("memory://", **QUICK, **options)

    for id in ("team.job", "secret.job"):

        @scheduler.job(FAR, id=id, args={"of": id})
        async def job(of: str) -> str:
            return of

    @scheduler.task(id="secret.held")
    async def held(fire: Fire) -> None:
        fire.report(done=1, total=2, message="a secret is held")
        await asyncio.sleep(60)

    @scheduler.task(id="secret.failing")
    async def failing() -> None:
        raise ValueError("a secret failure")

    pipeline = Pipeline("secret.pipeline")

    @pipeline.phase("only")
    def only() -> None: ...

    scheduler.task(pipeline, id="secret.pipeline")
    scheduler.notify(call(print, name="hook"), on=lost, jobs="secret.held")
    return scheduler


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx2.Client, dict[str, str]]]:
    folder: Path = tmp_path_factory.mktemp("tokens")
    path, made = tokens_file(folder, *CALLERS)
    tokens = {caller.name: token for caller, token in zip(CALLERS, made, strict=True)}
    with service(scheduler(tokens_file=str(path))) as client:
        admin = bearer(tokens["administrator"])
        client.headers.update(admin)
        for id in ("team.job", "secret.job"):
            ended(client, triggered(client, id, idempotency_key="done"))
        ended(client, triggered(client, "secret.failing"))
        running = triggered(client, "secret.held")
        eventually(lambda: client.get(f"/api/v1/fires/{running}").json()["progress"])
        client.headers.pop("authorization")
        yield client, tokens


@pytest.fixture
def client(served: tuple[httpx2.Client, dict[str, str]]) -> httpx2.Client:
    return served[0]


@pytest.fixture
def tokens(served: tuple[httpx2.Client, dict[str, str]]) -> dict[str, str]:
    return served[1]


def ask(
    client: httpx2.Client, method: str, path: str, headers: dict[str, str], names: dict[str, str] = OUR
) -> httpx2.Response:
    body = {"json": BODIES.get((method, path), {})} if method != "GET" else {}
    return client.request(method, path.format_map(names), headers=headers, **body)


def everything(client: httpx2.Client, tokens: dict[str, str]) -> str:
    """What stands in the store, as far as requests could change it."""
    admin = bearer(tokens["administrator"])
    ids = [job["id"] for job in client.get("/api/v1/jobs", headers=admin).json()["items"]]
    jobs = [client.get(f"/api/v1/jobs/{id}", headers=admin).json() for id in ids]
    fires = client.get("/api/v1/fires?planned=true&limit=1000", headers=admin).json()
    return json.dumps([jobs, fires], sort_keys=True)


def is_idle(client: httpx2.Client, tokens: dict[str, str], id: str) -> bool:
    """Its runs have ended, and a reading that is shared for a second says so."""
    admin = bearer(tokens["administrator"])
    fires = client.get("/api/v1/fires", params={"job": id}, headers=admin).json()["items"]
    job = client.get(f"/api/v1/jobs/{id}", headers=admin).json()
    return not job["active"] and all(fire["finished_at"] for fire in fires)


def needed(method: str, path: str) -> Role:
    found: Endpoint | None = next(
        (each for each in ENDPOINTS if (each.method, each.path) == (method, path)), None
    )
    return found.needs if found else "read"


def _there_is_none(path: str, answer: httpx2.Response) -> bool:
    """No backfill of that name; no past of the job that could be run."""
    none = {404: "backfills/" in path, 422: path.endswith("/backfill")}
    return none.get(answer.status_code, False)


def test_nobody_and_a_wrong_token_are_told_nothing(client: httpx2.Client, tokens: dict[str, str]) -> None:
    before = everything(client, tokens)
    for headers in ({}, bearer("wrong"), {"Authorization": "Basic YTpi"}, {"Cookie": "token=x"}):
        for method, path in [*ROUTES, ("GET", STREAM)]:
            answer = ask(client, method, path, headers)
            assert answer.status_code == (200 if path in OPEN else 401), (method, path)
            assert "team" not in answer.text
            assert "secret" not in answer.text
    assert everything(client, tokens) == before


def test_a_reader_sees_everything_and_changes_nothing(client: httpx2.Client, tokens: dict[str, str]) -> None:
    before, reader = everything(client, tokens), bearer(tokens["reader"])
    for method, path in ROUTES:
        answer = ask(client, method, path, reader)
        expected = 200 if needed(method, path) == "read" else 403
        assert answer.status_code == expected, (method, path, answer.text)
    for path in {path for _, path in ROUTES} - set(OPEN):
        for method in ("PUT", "PATCH", "DELETE", "POST"):
            assert ask(client, method, path, reader).status_code == 403, (method, path)
    assert everything(client, tokens) == before


@pytest.mark.parametrize("name", ["operator", "administrator"])
def test_those_who_act_are_refused_what_takes_more(
    client: httpx2.Client, tokens: dict[str, str], name: str
) -> None:
    caller = next(each for each in CALLERS if each.name == name)
    for method, path in ROUTES:
        answer = ask(client, method, path, bearer(tokens[name]))
        refused = not caller.may(needed(method, path))
        assert (answer.status_code == 403) == refused, (method, path, answer.text)
        # 428: a change of a job names the version that it is of.
        known = answer.status_code in (200, 202, 403, 409, 428)
        assert known or _there_is_none(path, answer), (method, path, answer.text)
    eventually(lambda: is_idle(client, tokens, "team.job"))


def test_a_browser_on_another_site_changes_nothing(client: httpx2.Client, tokens: dict[str, str]) -> None:
    before, operator = everything(client, tokens), bearer(tokens["operator"])
    for sent in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
    ):
        for method, path in ROUTES:
            if method != "GET":
                assert ask(client, method, path, {**operator, **sent}).status_code == 403, (method, path)
            answer = client.options(path.format_map(OUR), headers={**operator, **sent})
            assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert everything(client, tokens) == before


def test_a_token_for_some_jobs_sees_and_touches_no_other(
    client: httpx2.Client, tokens: dict[str, str]
) -> None:
    before, team = everything(client, tokens), bearer(tokens["team"])
    for method, path in ROUTES:
        if "{" in path:
            hidden, missing = (ask(client, method, path, team, names) for names in (HIDDEN, MISSING))
            expected = 403 if needed(method, path) == "admin" else 404
            assert hidden.status_code == missing.status_code == expected, (method, path)
            assert without(hidden.text, HIDDEN) == without(missing.text, MISSING)
        elif path not in DOCUMENTS:
            answers = [ask(client, method, path, team)]
            if path in WITH_JOB:
                answers.append(client.get(path, params={"job": "secret.job"}, headers=team))
                answers.append(client.get(path, params={"job": "secret.jo"}, headers=team))
            for answer in answers:
                assert answer.status_code in (200, 404), (method, path, answer.text)
                assert "secret" not in answer.text.replace("'secret.job'", "").replace("'secret.jo'", "")
    assert everything(client, tokens) == before


def without(text: str, names: dict[str, str]) -> str:
    return text.replace(names["key"], "…").replace(names["id"], "…")


def test_a_token_for_some_jobs_sees_and_acts_on_those(client: httpx2.Client, tokens: dict[str, str]) -> None:
    team = bearer(tokens["team"])
    status = client.get("/api/v1/status", headers=team).json()
    assert [job["id"] for job in status["jobs"]] == ["team.job"]
    [replica] = status["replicas"]
    assert (replica["tasks"], replica["running"]) == (["team.job"], [])
    assert client.get("/scheduler/status", headers=team).json()["jobs"] == {"idle": 1}
    assert 'fencepost_runs_total{job_name="team.job",outcome="succeeded"}' in (
        client.get("/metrics", headers=team).text
    )
    for method, path in ROUTES:
        if "{" in path:
            answer = ask(client, method, path, team)
            expected = (403,) if needed(method, path) == "admin" else (200, 202, 409)
            assert _there_is_none(path, answer) or answer.status_code in expected, (method, path)


def test_not_even_the_next_page_tells_of_another_job(client: httpx2.Client, tokens: dict[str, str]) -> None:
    for _ in range(2):
        answer = client.post("/api/v1/jobs/secret.job/trigger", headers=bearer(tokens["administrator"]))
        assert answer.status_code == 202
    hidden, missing = (
        client.get("/api/v1/fires", params={"job": id, "limit": 1}, headers=bearer(tokens["team"]))
        for id in ("secret.job", "team.none")
    )
    assert hidden.json() == missing.json() == {"items": [], "next": None}


def test_live_events_of_other_jobs_are_not_told(client: httpx2.Client, tokens: dict[str, str]) -> None:
    admin, team = bearer(tokens["administrator"]), bearer(tokens["team"])
    told: list[str] = []
    with client.stream("GET", STREAM, headers=team) as stream:
        lines = stream.iter_lines()
        while "hello" not in next(lines):
            pass
        for id in ("secret.job", "team.job"):
            answer = client.post(f"/api/v1/jobs/{id}/trigger", headers=admin)
            assert answer.status_code == 202
        while not any("team.job" in line for line in told):
            told.append(next(lines))
    assert not [line for line in told if "secret" in line]
