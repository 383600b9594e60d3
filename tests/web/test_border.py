"""Jobs that a token may see beside jobs that it may not: they share a limit, and follow each other. Whatever such a
token asks for, on every route, page and stream, no answer names a job that it may not see.

Routes and pages are taken from the application, so that a new one is walked without being named here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Fire, Scheduler, after, every, limit
from fencepost.insight.visible import UNSEEN
from fencepost.notify import DeliveryFailed, Notice, call, failed, succeeded
from fencepost.web.access import Caller
from fencepost.web.dashboard.pages import PAGES
from tests.web.dashboard.reading import HTML, send
from tests.web.sample import FAR, ended, triggered
from tests.web.serving import QUICK, eventually, service
from tests.web.test_auth import bearer
from tests.web.test_every_route import BODIES, ROUTES, STREAM
from tests.web.test_tokens import tokens_file

ADMIN = Caller("admin", "administrator")
TEAM, CHIEF = Caller("operate", "team", ("team.*",)), Caller("admin", "chief", ("team.*",))
HIDDEN = ("vault", "7661756c742e")
"""Part of every id that the team may not see, as it is and in hexadecimal digits, as in cursors."""
ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
WAREHOUSE = limit("warehouse", 1)
QUERIES: dict[str, list[str]] = {
    "/api/v1/jobs/{id}/why": ["", "?at=2026-01-01T00:00:00Z"],
    "/api/v1/notifications": ["", "?limit=1", "?limit=2"],
    "/api/v1/fires": ["", "?planned=true", "?limit=1"],
    "/api/v1/audit": ["?since=1h"],
    "/jobs/{id}": ["", "?at=00:00"],
    "/find": ["?q=ault", "?q=v", "?q=team"],
    "/audit": ["?run=1"],
    "/bulk": ["?do=run&job=team.job"],
}


def scheduler(**options: Any) -> Scheduler:
    scheduler = Scheduler("memory://", **QUICK, **options)

    for id in ("team.job", "vault.job"):

        @scheduler.job(every(hours=1, anchor=ANCHOR), id=id)
        async def job() -> None: ...

    @scheduler.job(FAR, id="vault.held", limits=[WAREHOUSE])
    async def held(fire: Fire) -> None:
        await asyncio.sleep(120)

    @scheduler.task(id="vault.failing")
    async def failing() -> None:
        raise ValueError("it failed")

    @scheduler.job(FAR, id="team.limited", limits=[WAREHOUSE])
    async def limited() -> None: ...

    @scheduler.job(after("vault.job"), id="team.child")
    async def child() -> None: ...

    @scheduler.job(after("team.job", "vault.job", on="ended"), id="team.both")
    async def both() -> None: ...

    @scheduler.job(after("team.job"), id="vault.child")
    async def grandchild() -> None: ...

    @scheduler.job(after("vault.child"), id="team.last")
    async def last() -> None: ...

    async def receiver(notice: Notice) -> None:
        raise DeliveryFailed("it is down")

    scheduler.notify(call(receiver), on=failed | succeeded)
    return scheduler


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx2.Client, dict[str, str]]]:
    folder: Path = tmp_path_factory.mktemp("tokens")
    callers = (ADMIN, TEAM, CHIEF)
    path, made = tokens_file(folder, *callers)
    tokens = {caller.name: token for caller, token in zip(callers, made, strict=True)}
    with service(scheduler(tokens_file=str(path))) as client:
        client.headers.update(bearer(tokens["administrator"]))
        prepare(client)
        client.headers.pop("authorization")
        yield client, tokens


def prepare(client: httpx2.Client) -> None:
    """What refers to a hidden job in every way there is."""
    held = triggered(client, "vault.held")
    eventually(lambda: client.get(f"/api/v1/fires/{held}").json()["state"] == "running")
    triggered(client, "team.limited", idempotency_key="waits")
    eventually(lambda: "limit warehouse" in client.get("/api/v1/jobs/team.limited/why").json()["answer"])
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    skips = [{"name": "warehouse", "size": 1, "full": "skip"}]
    put(client, "team.follows", task="team.job", trigger={"type": "after", "parents": ["vault.late"]})
    put(client, "vault.late", task="vault.failing", at=[soon])
    put(client, "team.skips", task="team.job", at=[soon], limits=skips)
    put(client, "team.follows", description="changed", version="*")
    for id in ("team.follows", "team.skips"):
        eventually(partial(is_closed, client, id))
    triggered(client, "team.job", idempotency_key="done")
    ended(client, triggered(client, "vault.job", idempotency_key="done"))
    ended(client, "team.child!done")
    ended(client, "team.both!done")
    for id in ("team.job", "vault.job"):
        start = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T02:00:00Z", "name": "b"}
        assert client.post(f"/api/v1/jobs/{id}/backfill", json=start).status_code == 202
    eventually(lambda: len(client.get("/api/v1/notifications").json()["items"]) > 3)


def put(client: httpx2.Client, id: str, version: str | None = None, **words: Any) -> None:
    headers = {"If-Match": version} if version else {}
    method = "PATCH" if version else "PUT"
    answer = client.request(method, f"/api/v1/jobs/{id}", json=words, headers=headers)
    assert answer.status_code == 200, answer.text


def is_closed(client: httpx2.Client, id: str) -> bool:
    rows = client.get("/api/v1/fires", params={"job": id}).json()["items"]
    return any(fire["reason"] for fire in rows)


@pytest.fixture
def client(served: tuple[httpx2.Client, dict[str, str]]) -> httpx2.Client:
    return served[0]


@pytest.fixture
def tokens(served: tuple[httpx2.Client, dict[str, str]]) -> dict[str, str]:
    return served[1]


def addresses(
    client: httpx2.Client, path: str, headers: dict[str, str], *, acting: bool = False
) -> Iterator[str]:
    """Of every job and every fire that the caller sees; to act on, of one fire of each job."""
    names: list[dict[str, str]] = [{"rule": "nightly"}]
    if "{id}" in path:
        jobs = client.get("/api/v1/jobs", headers=headers).json()["items"]
        names = [{"id": job["id"], "backfill": "b"} for job in jobs]
    elif "{key}" in path:
        rows = client.get("/api/v1/fires?planned=true&limit=1000", headers=headers).json()["items"]
        keys = {fire["job_id"] if acting else fire["key"]: fire["key"] for fire in rows}
        names = [{"key": key} for key in keys.values()]
    assert names
    for each in names:
        for query in QUERIES.get(path, [""]):
            yield path.format_map(each) + query


def leaks(answer: httpx2.Response) -> list[tuple[str, ...]]:
    """The request, and the lines of the answer that name a hidden job."""
    request = f"{answer.request.method} {answer.request.url}"
    assert answer.status_code < 500, (request, answer.text)
    said = f"{answer.headers}\n{answer.text}"
    named = [line for line in said.splitlines() if any(each in line for each in HIDDEN)]
    return [(request, *(around(line) for line in named))] if named else []


def around(line: str) -> str:
    place = min(found for each in HIDDEN if (found := line.find(each)) >= 0)
    return line[max(0, place - 100) : place + 100]


@pytest.mark.parametrize("name", ["team", "chief"])
def test_nothing_that_is_read_names_a_hidden_job(
    client: httpx2.Client, tokens: dict[str, str], name: str
) -> None:
    headers, found = bearer(tokens[name]), []
    for method, path in ROUTES:
        if method == "GET":
            for address in addresses(client, path, headers):
                found += leaks(client.get(address, headers=headers))
    for each in PAGES:
        for address in addresses(client, each.path, headers):
            found += leaks(client.get(address, headers={**HTML, **headers}))
    assert not found


def test_sentences_say_that_a_job_is_hidden(client: httpx2.Client, tokens: dict[str, str]) -> None:
    team = bearer(tokens["team"])

    def get(path: str) -> Any:
        return client.get(f"/api/v1/{path}", headers=team).json()

    def why(id: str) -> str:
        found: str = get(f"jobs/{id}/why")["answer"]
        return found

    assert get("jobs/team.child")["trigger"] == {"type": "after", "parents": [UNSEEN], "on": "succeeded"}
    assert get("jobs/team.child")["schedule"] == f"after {UNSEEN}"
    assert get("jobs/team.both")["schedule"] == f"after team.job and {UNSEEN}, however they end"
    assert get("fires/team.child!done")["by"] == f"after {UNSEEN}"
    assert why("team.limited").endswith(f"It waits for limit warehouse: 1 of 1 used by {UNSEEN}.")
    [skipped] = get("fires?job=team.skips")["items"]
    assert (skipped["reason"], skipped["refers_to"]) == ("limit full", UNSEEN)
    assert why("team.skips").endswith(f"a limit of the job was full, used by {UNSEEN}.")
    [followed] = get("fires?job=team.follows")["items"]
    assert followed["refers_to"] == UNSEEN
    assert f"it runs after {UNSEEN}, which did not let it go" in why("team.follows")
    assert get("limits") == {"items": []}
    notices = get("notifications")
    assert {each["job_id"] for each in notices["items"]} <= {
        "team.job",
        "team.child",
        "team.both",
        "team.last",
    }


def test_those_who_see_everything_read_every_name(client: httpx2.Client, tokens: dict[str, str]) -> None:
    """Also after a token that does not has read the same, from what is shared by all."""
    admin, team = bearer(tokens["administrator"]), bearer(tokens["team"])
    for headers in (team, admin, team, admin):
        read = [
            client.get("/api/v1/jobs/team.child", headers=headers).json()["schedule"],
            client.get("/api/v1/jobs?q=team.child", headers=headers).json()["items"][0]["schedule"],
            client.get("/api/v1/jobs/team.child/why", headers=headers).json()["answer"],
            client.get("/jobs/team.child", headers={**HTML, **headers}).text,
            client.get("/api/v1/lanes?q=team.follows", headers=headers).text,
        ]
        told = "vault." if headers is admin else UNSEEN
        assert all(told in each for each in read), (told, read)


def test_a_definition_is_no_oracle(client: httpx2.Client, tokens: dict[str, str]) -> None:
    """A hidden job and one that does not exist are answered alike, also in a dry run."""
    chief = bearer(tokens["chief"])
    for query in ("", "?dry_run=true"):
        for words in ({"trigger": {"type": "after", "parents": ["{}"]}}, {"task": "{}"}):
            answers = []
            for id in ("vault.job", "vault.none"):
                body = {"task": "team.job", **filled(words, id)}
                answer = client.put(f"/api/v1/jobs/team.spy{query}", headers=chief, json=body)
                answers.append((answer.status_code, answer.text.replace(id, "…")))
            assert answers[0] == answers[1], words
            assert answers[0][0] == 422, answers
    # What it has already may stay, and what it sees may be named.
    kept = client.patch(
        "/api/v1/jobs/team.child", headers={**chief, "If-Match": "*"}, json={"owner": "chief"}
    )
    assert kept.status_code == 200, kept.text
    admin = bearer(tokens["administrator"])
    assert client.get("/api/v1/jobs/team.child", headers=admin).json()["trigger"]["parents"] == ["vault.job"]
    seen = {"task": "team.job", "trigger": {"type": "after", "parents": ["team.job"]}}
    assert client.put("/api/v1/jobs/team.spy?dry_run=true", headers=chief, json=seen).status_code == 200
    again = client.get("/api/v1/jobs/team.child", headers=chief).json()["trigger"]
    answer = client.patch(
        "/api/v1/jobs/team.child", headers={**chief, "If-Match": "*"}, json={"trigger": again}
    )
    assert answer.status_code == 422, "the words for a hidden job are no job"


def filled(words: Any, id: str) -> Any:
    if isinstance(words, dict):
        return {name: filled(value, id) for name, value in words.items()}
    return [filled(each, id) for each in words] if isinstance(words, list) else words.replace("{}", id)


def test_live_events_name_no_hidden_job(client: httpx2.Client, tokens: dict[str, str]) -> None:
    admin, team = bearer(tokens["administrator"]), bearer(tokens["team"])
    told: list[str] = []
    with client.stream("GET", STREAM, headers=team) as stream:
        lines = stream.iter_lines()
        while "hello" not in next(lines):
            pass
        body = {"idempotency_key": "told"}
        for id in ("team.job", "vault.job"):
            answer = client.post(f"/api/v1/jobs/{id}/trigger", headers=admin, json=body)
            assert answer.status_code == 202, answer.text
        change = {"trigger": {"type": "after", "parents": ["team.job", "vault.job"]}}
        changed = {**admin, "If-Match": "*"}
        assert client.patch("/api/v1/jobs/team.both", headers=changed, json=change).status_code == 200
        for awaited in ("team.child!told", '"kind":"defined"'):
            while not any(awaited in line for line in told):
                told.append(next(lines))
    assert not [line for line in told if "vault" in line]


MORE_BODIES: dict[str, list[Any]] = {
    "/api/v1/jobs/trigger": [{"ids": ["team.job", "team.child", "team.limited"]}],
    "/api/v1/jobs/pause": [{"ids": ["team.child"]}],
    "/api/v1/jobs/resume": [{"ids": ["team.child"]}],
    "/api/v1/fires/retry": [{"keys": ["team.child!done"], "again": True}],
    "/api/v1/jobs/{id}/trigger": [{"if_active": "refuse"}],
    "/api/v1/notifications/retry": [{"channel": "receiver"}, {"channel": "nobody"}],
    "/api/v1/jobs/{id}": [
        {"description": "x"},
        {"task": "nothing"},
        {"after": ["team.last"]},  # of team.job: a circle through a hidden job
        {"limits": [{"name": "warehouse", "size": 1}]},
    ],
}
FORMS: dict[str, tuple[dict[str, str], ...]] = {
    "/define": (
        {"id": "team.new", "task": "nothing"},
        {"id": "team.new", "task": "team.job", "kind": "none"},
    ),
    "/jobs/{id}/edit": ({"task": "nothing"}, {"kind": "keep", "description": "y"}),
    "/bulk": ({"do": "run", "job": "team.child"}, {"do": "retry", "fire": "team.follows!x"}),
    "/fires/{key}/retry": ({"again": "yes"},),
}


@pytest.mark.parametrize("name", ["team", "chief"])
def test_nothing_that_is_done_names_a_hidden_job(
    client: httpx2.Client, tokens: dict[str, str], name: str
) -> None:
    headers, found = bearer(tokens[name]), []
    for method, path in ROUTES:
        if method in ("GET", "DELETE"):
            continue
        defines = method in ("PUT", "PATCH") and "{id}" in path
        sent = {**headers, "If-Match": "*"} if defines else headers
        for address in addresses(client, path, headers, acting=True):
            for body in (BODIES.get((method, path), {}), *MORE_BODIES.get(path, ())):
                address += "?dry_run=true" if defines and "?" not in address else ""
                found += leaks(client.request(method, address, headers=sent, json=body))
    for each in PAGES:
        if each.act is not None and each.path != "/jobs/{id}/remove":
            for address in addresses(client, each.path, headers, acting=True):
                for form in FORMS.get(each.path, ({},)):
                    found += leaks(send(client, address.partition("?")[0], form, headers=headers))
    assert not found
