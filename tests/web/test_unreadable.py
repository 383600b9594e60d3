"""Rows that cannot be read, over HTTP: named with reason and remedy, in their place, to those who may see the job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from fencepost import Scheduler
from fencepost.cli import outcome
from fencepost.insight.board import read_all
from fencepost.web.access import Caller
from tests.store.unreadable import file_place, postgres_place, redis_place
from tests.web.sample import FAR
from tests.web.serving import QUICK, eventually, service
from tests.web.test_auth import bearer
from tests.web.test_tokens import tokens_file

JOBS = ("secret.bad", "team.a", "team.bad", "team.c")
BAD = ("secret.bad", "team.bad")
ALL, TEAM = "all", "team"
Ask = Callable[[str], httpx2.Response]


def damage(path: Path, *ids: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for id in ids:
            changed = db.execute("update fencepost_jobs set definition = '{\"id\":' where id = ?", [id])
            assert changed.rowcount == 1


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def clients(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Ask]]:
    """By caller: asks for a path. Two of four jobs cannot be read."""
    monkeypatch.setattr("fencepost.insight.reader.READ_AGAIN", 0.0, raising=False)
    tokens, made = tokens_file(tmp_path, Caller("operate", ALL), Caller("operate", TEAM, ("team.*",)))
    scheduler = Scheduler(f"sqlite:///{database}", tokens_file=str(tokens), **QUICK)
    for id in JOBS:
        scheduler.job(FAR, id=id)(_nothing)
    with service(scheduler) as client:
        asking = {name: asking_as(client, token) for name, token in zip((ALL, TEAM), made, strict=True)}
        eventually(lambda: len(asking[ALL]("/api/v1/jobs").json()["items"]) == len(JOBS))
        damage(database, *BAD)
        scheduler.reader.forget()
        yield asking


async def _nothing() -> None: ...


def asking_as(client: httpx2.Client, token: str) -> Ask:
    return lambda path: client.get(path, headers=bearer(token))


def test_the_status_names_them_and_marks_their_jobs(clients: dict[str, Ask]) -> None:
    status = eventually(lambda: (said := clients[ALL]("/api/v1/status").json())["unreadable"] and said)
    assert [row["job_id"] for row in status["unreadable"]] == list(BAD)
    jobs = {job["id"]: job for job in status["jobs"]}
    assert list(jobs) == list(JOBS)
    for id in BAD:
        assert (jobs[id]["state"], jobs[id]["states"]) == ("unreadable", ["unreadable"])
        mark = jobs[id]["unreadable"]
        assert (mark["kind"], mark["key"], mark["sets_job_aside"]) == ("job", id, True)
        assert mark["why"]
        assert f"fencepost jobs rm {id}" in mark["remedy"]
    assert jobs["team.a"]["unreadable"] is None
    assert clients[ALL]("/scheduler/status").json()["jobs"] == {"idle": 2, "unreadable": 2}


def test_a_status_that_cannot_list_every_job_lists_those(
    clients: dict[str, Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few jobs need a person. They must not be the ones that are left out."""
    clients[ALL]("/api/v1/status")
    monkeypatch.setattr("fencepost.insight.board.PAGE", 1)
    monkeypatch.setattr(read_all, "__defaults__", (1,))
    status = eventually(lambda: (said := clients[ALL]("/api/v1/status").json())["more_jobs"] and said)
    assert [job["id"] for job in status["jobs"]] == ["secret.bad", "team.a", "team.bad"]
    assert [job["id"] for job in clients[ALL]("/api/v1/jobs?state=unreadable").json()["items"]] == list(BAD)


def test_they_stand_in_their_places_on_every_page(clients: dict[str, Ask]) -> None:
    for limit in (1, 2, 3, 4):
        found: list[tuple[str, str]] = []
        cursor: str | None = ""
        while cursor is not None:
            page = clients[ALL](f"/api/v1/jobs?limit={limit}{cursor and f'&cursor={cursor}'}").json()
            assert len(page["items"]) <= limit
            found += [(job["id"], job["state"]) for job in page["items"]]
            cursor = page["next"]
        assert found == [(id, "unreadable" if id in BAD else "idle") for id in JOBS]
    chosen = clients[ALL]("/api/v1/jobs?state=unreadable").json()["items"]
    assert [job["id"] for job in chosen] == list(BAD)
    assert [job["id"] for job in clients[ALL]("/api/v1/jobs?q=M.B").json()["items"]] == ["team.bad"]


def test_a_token_with_patterns_is_told_of_its_own_alone(clients: dict[str, Ask]) -> None:
    for path in ("/api/v1/status", "/api/v1/jobs", "/api/v1/jobs?state=unreadable", "/scheduler/status"):
        answer = clients[TEAM](path)
        assert answer.status_code == 200
        assert "secret" not in answer.text
    status = clients[TEAM]("/api/v1/status").json()
    assert [row["key"] for row in status["unreadable"]] == ["team.bad"]
    assert [job["id"] for job in status["jobs"]] == ["team.a", "team.bad", "team.c"]
    assert clients[TEAM]("/api/v1/jobs/secret.bad").status_code == 404


def test_asked_for_by_its_id_it_says_why_and_what_to_do(clients: dict[str, Ask]) -> None:
    answer = clients[TEAM]("/api/v1/jobs/team.bad")
    assert answer.status_code == 409
    assert "fencepost jobs rm team.bad" in answer.json()["detail"]


def test_what_was_removed_is_not_named_any_more(clients: dict[str, Ask], database: Path) -> None:
    assert "secret.bad" in clients[ALL]("/api/v1/status").text
    for id in BAD:
        assert outcome(["jobs", "rm", id, "--store", f"sqlite:///{database}"]) == 0
    eventually(lambda: clients[ALL]("/api/v1/status").json()["unreadable"] == [])
    assert [job["id"] for job in clients[ALL]("/api/v1/jobs").json()["items"]] == ["team.a", "team.c"]


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        pytest.param(store, kind, marks=pytest.mark.slow)
        for store in ("file", "redis", "postgres")
        for kind in ("definition", "state", "zone")
    ],
)
def test_on_every_store(request: pytest.FixtureRequest, tmp_path: Path, store: str, kind: str) -> None:
    if store == "file":
        place = file_place(tmp_path)
    elif store == "redis":
        place = redis_place(request.getfixturevalue("valkey_url"))
    else:
        place = postgres_place(request.getfixturevalue("postgres_url"))
    scheduler = Scheduler(place.url, **QUICK)
    for id in ("bad", "good"):
        scheduler.job(FAR, id=id)(_nothing)
    with service(scheduler) as client:
        eventually(lambda: len(client.get("/api/v1/jobs").json()["items"]) == 2)
        place.damage(kind)
        scheduler.reader.forget()
        status = eventually(lambda: (said := client.get("/api/v1/status").json())["unreadable"] and said)
        assert [row["known_elsewhere"] for row in status["unreadable"]] == [kind == "zone"]
        for jobs in (status["jobs"], client.get("/api/v1/jobs").json()["items"]):
            assert [(job["id"], job["state"]) for job in jobs] == [("bad", "unreadable"), ("good", "idle")]
