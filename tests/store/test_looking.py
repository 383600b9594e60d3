"""Commands on a namespace that does not exist: they say so, list those that exist, and leave the store as it was."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from fencepost.cli import outcome
from fencepost.model import Job
from fencepost.model.triggers import every
from fencepost.store.base import PutJob
from fencepost.store.mysql.connection import MysqlConnection, MysqlNames
from fencepost.store.urls import store_from_url

CONFIGURATION = 78
KEY = "poll@2026-11-15T00:00:00.000000Z"

LOOKING = ["status", "jobs", "jobs show poll", "fires", f"show {KEY}", "why poll 03:00", "audit"]
CHANGING = [
    "trigger poll",
    "pause poll",
    "resume poll",
    f"cancel {KEY}",
    f"retry {KEY}",
    "jobs rm poll",
]

APP = """
from fencepost import Scheduler, every

scheduler = Scheduler()


@scheduler.job(every(hours=1))
def poll(): ...
"""


@dataclass
class Place:
    url: str
    content: Callable[[], Any]
    """Everything in it, to be compared."""

    def stock(self, *namespaces: str) -> None:
        for namespace in namespaces:
            asyncio.run(self._stock(namespace))

    async def _stock(self, namespace: str) -> None:
        store = store_from_url(self.url, namespace)
        await store.open()
        await store.put_jobs([PutJob(Job("poll", "poll", every(hours=1))), PutJob(Job("meta", "meta"))])
        await store.close()


@pytest.fixture(
    params=[
        "sqlite",
        "file",
        "valkey",
        "redis prefix",
        "postgresql",
        pytest.param("mysql", marks=pytest.mark.slow),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path}/store/app.db", lambda: files(tmp_path / "store"))
    if request.param == "file":
        return Place(f"file://{tmp_path}/store/jobs", lambda: files(tmp_path / "store"))
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        return Place(url, lambda: catalog(url))
    if request.param == "mysql":
        url = request.getfixturevalue("mysql_url")
        return Place(url, lambda: tables(url))
    url = request.getfixturevalue("valkey_url")
    own = "?prefix=scheduler" if request.param == "redis prefix" else ""
    return Place(url + own, lambda: keys(url))


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "never_run.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "never_run", raising=False)
    for name in list(os.environ):
        if name.startswith(("FENCEPOST_", "KUBERNETES_")):
            monkeypatch.delenv(name)


def files(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def keys(url: str) -> dict[str, bytes]:
    with Redis.from_url(url) as client:
        return {key.decode(): client.dump(key) for key in sorted(client.keys("*"))}


def tables(url: str) -> dict[str, Any]:
    with closing(MysqlConnection(url, MysqlNames("default"))) as db:
        found = [row[0] for row in db.all("show tables")]
        return {name: db.all(f"select * from `{name}`") for name in found}


def catalog(url: str) -> list[Any]:
    """Schemas, relations and functions."""
    questions = (
        "select nspname::text from pg_namespace where nspname !~ '^pg_(toast_)?temp' order by 1",
        "select relnamespace::regnamespace::text, relname::text, relkind::text from pg_class"
        " where relnamespace::regnamespace::text like 'fencepost%' order by 1, 2",
        "select pronamespace::regnamespace::text, proname::text from pg_proc"
        " where pronamespace::regnamespace::text like 'fencepost%' order by 1, 2",
    )
    with psycopg.connect(url) as db:
        return [db.execute(question).fetchall() for question in questions]


def test_a_namespace_that_does_not_exist_is_named_and_not_made(place: Place, capsys) -> None:
    place.stock("default", "billing")
    before = place.content()
    for line in (*LOOKING, *CHANGING):
        code = outcome([*line.split(), "--store", place.url, "--namespace", "typo"])
        out, err = capsys.readouterr()
        assert (code, out) == (CONFIGURATION, ""), (line, err)
        assert "namespace 'typo' holds nothing in" in err
        assert "namespaces there: billing, default;" in err
        assert place.content() == before, line


def test_where_nothing_has_ever_run(place: Place, capsys) -> None:
    """A server or a database that is there, and holds nothing of ours."""
    if place.url.startswith("sqlite"):
        Path(place.url.removeprefix("sqlite:///")).touch()
    if place.url.startswith("file"):
        Path(place.url.removeprefix("file://")).mkdir()
    before = place.content()
    for line in ("status", "audit", "trigger poll"):
        code = outcome([*line.split(), "--store", place.url])
        out, err = capsys.readouterr()
        assert (code, out) == (CONFIGURATION, ""), (line, err)
        assert "nothing of Fencepost is there yet" in err
    assert place.content() == before


def test_a_target_that_has_never_run(place: Place, capsys) -> None:
    before = place.content()
    for command in ("status", "jobs", "audit", "trigger"):
        words = [command, "never_run:scheduler", *(["poll"] if command == "trigger" else [])]
        code = outcome([*words, "--store", place.url])
        out, err = capsys.readouterr()
        assert (code, out) == (CONFIGURATION, ""), err
        assert "nothing has run here yet; start it with `fencepost run never_run:scheduler`" in err
    assert place.content() == before


def test_preview_and_doctor_make_nothing(place: Place, capsys, monkeypatch) -> None:
    place.stock("default", "billing")
    before = place.content()
    monkeypatch.setenv("FENCEPOST_STORE", place.url)
    monkeypatch.setenv("FENCEPOST_NAMESPACE", "typo")
    assert outcome(["preview", "never_run:scheduler", "poll", "--json"]) == 0
    for words in (["doctor"], ["doctor", "--json"]):
        capsys.readouterr()
        assert outcome(words) == CONFIGURATION
        out = " ".join(capsys.readouterr().out.split())  # however it is wrapped
        assert "namespaces there: billing, default" in out
        assert "--namespace" in out
    assert place.content() == before


def test_doctor_goes_on_with_a_target_that_has_never_run(place: Place, capsys) -> None:
    place.stock("billing")
    before = place.content()
    wrong = 1 if place.url.startswith("postgresql") else 0  # the server of the tests does not sync
    assert outcome(["doctor", "never_run:scheduler", "--json", "--store", place.url]) == wrong
    out = capsys.readouterr().out
    assert "namespaces there: billing" in out
    assert "fencepost run never_run:scheduler" in out
    assert place.content() == before


def test_a_namespace_without_jobs_is_fine(place: Place, capsys) -> None:
    async def make() -> None:
        store = store_from_url(place.url, "empty")
        await store.open()
        await store.close()

    asyncio.run(make())
    before = place.content()
    for line in ("status", "jobs", "fires", "audit"):
        assert outcome([line, "--store", place.url, "--namespace", "empty"]) == 0, capsys.readouterr()
    assert place.content() == before
