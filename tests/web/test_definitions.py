"""Jobs created, changed and removed over HTTP, by real clients of a real server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Scheduler, every
from fencepost.web.access import Caller
from tests.web.sample import ended, sample, triggered
from tests.web.serving import QUICK, service
from tests.web.test_auth import bearer
from tests.web.test_tokens import tokens_file

ANN, BOB, OPERATOR = Caller("admin", "ann"), Caller("admin", "bob"), Caller("operate", "op")
TEAM = Caller("admin", "team", ("team.*",))
DEFINITION = {"every": "1h", "args": {"region": "ch"}}


@pytest.fixture
def callers(tmp_path: Path) -> Iterator[tuple[httpx2.Client, dict[str, dict[str, str]]]]:
    known = [ANN, BOB, OPERATOR, TEAM]
    path, made = tokens_file(tmp_path, *known)
    headers = {caller.name: bearer(token) for caller, token in zip(known, made, strict=True)}
    with service(sample(tokens_file=str(path))) as client:
        yield client, headers


def test_a_job_is_created_runs_is_changed_and_removed(client: httpx2.Client) -> None:
    made = client.put("/api/v1/jobs/hourly", json={"task": "report", "every": "1h", "args": {"region": "de"}})
    assert made.status_code == 200, made.text
    assert (made.json()["outcome"], made.json()["fires_before"]) == ("created", [])
    assert len(made.json()["fires_after"]) == 10
    assert ended(client, triggered(client, "hourly"))["state"] == "succeeded"
    job = client.get("/api/v1/jobs/hourly")
    assert (job.json()["source"], job.json()["args"]) == ("api", {"region": "de"})
    assert job.json()["fingerprint"] == made.json()["version"]
    assert made.headers["etag"] == f'"{made.json()["version"]}"'
    changes = {"cron": "30 2 * * *", "tz": "Europe/Zurich", "timeout": "5m", "tags": ["night"]}
    changed = client.patch("/api/v1/jobs/hourly", json=changes, headers={"If-Match": job.headers["etag"]})
    assert changed.status_code == 200, changed.text
    assert changed.json()["before"] | {"trigger": 0} == {"timeout": None, "tags": None, "trigger": 0}
    assert changed.json()["after"]["timeout"] == 300
    assert changed.json()["fires_before"] != changed.json()["fires_after"]
    job = client.get("/api/v1/jobs/hourly")
    assert (job.json()["schedule"], job.json()["timeout"]) == ("cron 30 2 * * * in Europe/Zurich", 300)
    assert job.json()["args"] == {"region": "de"}  # what a change does not name stays
    back = client.patch("/api/v1/jobs/hourly", json={"timeout": None}, headers={"If-Match": "*"})
    assert back.json()["after"] == {"timeout": None}
    gone = client.delete("/api/v1/jobs/hourly", headers={"If-Match": back.headers["etag"]})
    assert (gone.status_code, gone.json()["comes_back"]) == (200, False)
    assert client.get("/api/v1/jobs/hourly").status_code == 404
    assert client.delete("/api/v1/jobs/hourly", headers={"If-Match": "*"}).status_code == 404


def test_two_people_who_change_one_job_at_once(
    callers: tuple[httpx2.Client, dict[str, dict[str, str]]],
) -> None:
    """Both have read the same version. One is refused, reads again and tries again; the history names both."""
    client, headers = callers
    seen = client.get("/api/v1/jobs/report", headers=headers["ann"]).headers["etag"]

    def change(name: str, etag: str) -> httpx2.Response:
        with httpx2.Client(base_url=client.base_url) as own:
            sent = {**headers[name], "If-Match": etag}
            return own.patch("/api/v1/jobs/report", json={"owner": name}, headers=sent)

    with ThreadPoolExecutor(2) as both:
        answers = dict(zip(("ann", "bob"), both.map(change, ("ann", "bob"), (seen, seen)), strict=True))
    assert sorted(answer.status_code for answer in answers.values()) == [200, 412]
    [winner] = [name for name, answer in answers.items() if answer.status_code == 200]
    [loser] = [name for name, answer in answers.items() if answer.status_code == 412]
    assert f"by {winner}" in answers[loser].json()["detail"]
    job = client.get("/api/v1/jobs/report", headers=headers["ann"])
    assert job.json()["owner"] == winner
    assert change(loser, job.headers["etag"]).status_code == 200
    history = client.get("/api/v1/jobs/report", headers=headers["ann"]).json()["history"]
    told = [(each["by"], each["before"], each["after"]) for each in history[-2:]]
    assert told == [
        (winner, {"owner": None}, {"owner": winner}),
        (loser, {"owner": winner}, {"owner": loser}),
    ]
    everywhere = client.get("/api/v1/history", headers=headers["ann"]).json()["items"]
    assert [each["by"] for each in everywhere if each["kind"] == "changed"] == [loser, winner]


def test_a_change_says_which_version_it_is_of(client: httpx2.Client) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        body: dict[str, Any] = {"json": DEFINITION} if method != "DELETE" else {}
        path = "/api/v1/jobs/report"
        without = client.request(method, path, **body)
        assert without.status_code == 428, without.text
        assert "If-Match" in without.json()["detail"]
        other = client.request(method, path, headers={"If-Match": '"0123456789abcdef"'}, **body)
        assert other.status_code == 412
    new = client.put("/api/v1/jobs/report", json=DEFINITION, headers={"If-None-Match": "*"})
    assert new.status_code == 412
    missing = client.patch("/api/v1/jobs/none", json={}, headers={"If-Match": "*"})
    assert missing.status_code == 404


def test_the_same_sent_twice_is_done_once(client: httpx2.Client) -> None:
    seen = client.get("/api/v1/jobs/report").headers["etag"]
    sent = [
        client.patch("/api/v1/jobs/report", json={"owner": "x"}, headers={"If-Match": seen}) for _ in (1, 2)
    ]
    assert [answer.json()["outcome"] for answer in sent] == ["changed", "unchanged"]


def test_a_dry_run_shows_the_fires_old_and_new_and_changes_nothing(client: httpx2.Client) -> None:
    before = client.get("/api/v1/jobs/report").json()
    asked = {"cron": "0 8 * * mon", "tz": "Europe/Zurich"}
    told = client.patch("/api/v1/jobs/report", params={"dry_run": "true"}, json=asked).json()
    assert (told["outcome"], told["dry_run"], told["version"]) == ("changed", True, before["fingerprint"])
    assert told["fires_before"] == ["2100-01-01T00:00:00.000000Z"]
    assert len(told["fires_after"]) == 10
    assert {fire[11:16] for fire in told["fires_after"]} <= {"06:00", "07:00"}
    made = client.put("/api/v1/jobs/new", params={"dry_run": "true"}, json={"task": "hold", "every": 60})
    assert made.json()["outcome"] == "created"
    assert client.get("/api/v1/jobs/report").json() == before
    assert client.get("/api/v1/jobs/new").status_code == 404


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"task": "repot", "every": "1h"}, "no live replica has the task 'repot'; did you mean 'report'?"),
    ({"command": ["rm", "-rf", "/"], "every": "1h"}, "command: Extra inputs"),
    ({"task": "report", "evry": "1h"}, "evry"),
    ({"task": "report", "every": "1h", "cron": "* * * * *", "args": {"region": "ch"}}, "needs one of"),
    ({"task": "report", "every": "1h"}, "task report lacks region; it takes region"),
    ({"task": "report", "every": "1h", "args": {"regoin": 1}}, "lacks region"),
    ({"task": "report", "cron": "61 * * * *", "args": {"region": "ch"}}, "61"),
    ({"task": "hold", "at": "2030-01-01T00:00:00"}, "offset"),
    ({"task": "hold", "every": "1h", "overlap": "often"}, "overlap='often' is not known"),
    ({"task": "hold", "every": "1h", "retry": {"attemps": 3}}, "attemps"),
    ({"task": "hold", "every": "1h", "calendar": "nowhere"}, "nowhere"),
    ({"task": "hold", "every": "1h", "tags": ["not good"]}, "the tag 'not good' is not usable"),
    ({"task": "hold", "trigger": {"type": "nonsense"}}, "'nonsense' is no trigger type"),
    (
        {"task": "hold", "trigger": {"type": "every", "seconds": 1}, "cron": "* * * * *"},
        "give trigger, or",
    ),
    ({"task": "hold", "spread": "5m"}, "spread goes with a schedule"),
]


def test_what_does_not_fit_is_refused_in_the_words_of_code(client: httpx2.Client) -> None:
    for given, says in REFUSALS:
        answer = client.put("/api/v1/jobs/new", json=given)
        assert answer.status_code == 422, answer.text
        assert says in answer.json()["detail"], answer.text
    assert client.get("/api/v1/jobs/new").status_code == 404


def test_only_admins_define_jobs_and_only_those_they_see(
    callers: tuple[httpx2.Client, dict[str, dict[str, str]]],
) -> None:
    client, headers = callers
    body = {"task": "hold", "every": "1h"}
    assert client.put("/api/v1/jobs/x", json=body, headers=headers["op"]).status_code == 403
    assert client.put("/api/v1/jobs/x", json=body, headers=headers["team"]).status_code == 404
    refused = client.put("/api/v1/jobs/team.x", json=body, headers=headers["team"])
    assert (refused.status_code, "known: none" in refused.text) == (422, True), (
        "a task of jobs that it does not see"
    )
    assert client.put("/api/v1/jobs/team.first", json=body, headers=headers["ann"]).status_code == 200
    assert client.put("/api/v1/jobs/team.x", json=body, headers=headers["team"]).status_code == 200
    for method in ("PATCH", "DELETE"):
        sent = {**headers["team"], "If-Match": "*"}
        answer = client.request(method, "/api/v1/jobs/report", json={}, headers=sent)
        assert answer.status_code == 404
    assert client.get("/api/v1/jobs/report", headers=headers["ann"]).status_code == 200


def test_code_does_not_undo_it_and_what_it_says_of_itself(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"

    def application() -> Scheduler:
        scheduler = Scheduler(store, **QUICK)
        scheduler.job(every(hours=1), id="poll")(lambda: None)
        return scheduler

    with service(application()) as client:
        asked = client.patch("/api/v1/jobs/poll", json={"every": "5m"}, headers={"If-Match": "*"})
        assert asked.status_code == 200
    with service(application()) as client:
        job = client.get("/api/v1/jobs/poll").json()
        assert (job["schedule"], job["source"]) == ("every 5 minutes", "api")
        gone = client.delete("/api/v1/jobs/poll", headers={"If-Match": "*"})
        assert gone.json()["comes_back"] is False  # made by hand; the code stores its own at its next start
    with service(application()) as client:
        assert client.get("/api/v1/jobs/poll").json()["schedule"] == "every hour"


def test_a_service_without_the_code_defines_what_a_replica_offers(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    with service(sample(store)), service(Scheduler(store, **QUICK), replica=False) as client:
        made = client.put("/api/v1/jobs/other", json={"task": "hold", "every": "1h"})
        assert made.status_code == 200, made.text
        refused = client.put("/api/v1/jobs/more", json={"task": "unheard", "every": "1h"})
        assert refused.status_code == 422
        assert "known: hold, nasty, report" in refused.json()["detail"]
