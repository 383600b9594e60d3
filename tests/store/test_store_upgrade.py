"""`fencepost store`: what is stored, in which format, converted only when asked for; a role that owns nothing."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from fencepost import Scheduler, every
from fencepost.cli import outcome
from fencepost.settings import Settings
from fencepost.store.file.lines import line
from fencepost.testing.conformance import Harness, StoreConformance
from tests.store.on_postgres import a_harness
from tests.store.test_upgrade import TO_SCHEMA_1, to_postgresql_schema_1

STORES = ["sqlite", "file", "valkey", "postgres"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("sqlite", "file"):
        return {"sqlite": f"sqlite:///{tmp_path}/jobs.db", "file": f"file://{tmp_path}/jobs"}[request.param]
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command with --json and gives its exit code and what it printed."""

    def ask(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = outcome([*words, "--json"])
        told = capsys.readouterr()
        return code, json.loads(told.out) if told.out else told.err

    return ask


async def one_run(url: str) -> str:
    scheduler = Scheduler(url)

    @scheduler.job(every(days=300))
    def tidy() -> None: ...

    async with scheduler:
        handle = await scheduler.trigger(tidy)
        return (await handle.wait(timeout=60)).state


def write_format_1(url: str) -> None:
    """As an earlier version left it."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
            db.executescript(TO_SCHEMA_1)
    elif url.startswith("file"):
        for path in (Path(url.removeprefix("file://")) / "default").glob("*-1"):
            first, *rest = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(line({**json.loads(first[9:]), "format": 1}) + b"".join(rest))
    elif url.startswith("postgresql"):
        to_postgresql_schema_1(url)
    else:
        with Redis.from_url(url) as client:
            client.hset("fencepost:default:meta", "schema", "1")


def test_a_conversion_is_announced_and_made_only_when_asked_for(url: str, ask: Any) -> None:
    assert asyncio.run(one_run(url)) == "succeeded"
    write_format_1(url)
    for _ in range(2):  # a dry run changes nothing
        code, found = ask("store", "upgrade", "--store", url, "--dry-run")
        assert (code, found["format"]["stored"], found["jobs"]) == (0, 1, 1)
        assert found["steps"]
        assert not found["upgraded"]
        code, told = ask("status", "--store", url)
        assert code == 78
        assert "`fencepost store upgrade`" in told
        _, diagnosis = ask("doctor", "--store", url)
        assert any("would" in each["what"] for each in diagnosis["findings"])

    code, found = ask("store", "upgrade", "--store", url)
    assert (code, found["upgraded"], found["format"]["was"]) == (0, True, 1)
    assert found["format"]["stored"] == found["format"]["known"] > 1
    code, found = ask("store", "upgrade", "--store", url)
    assert (code, found["upgraded"], found["steps"]) == (0, False, [])
    code, status = ask("status", "--store", url)
    assert (code, [job["id"] for job in status["jobs"]]) == (0, ["one_run.tidy"])
    assert asyncio.run(one_run(url)) == "succeeded"


def test_a_replica_converts_when_it_starts(url: str, ask: Any) -> None:
    assert asyncio.run(one_run(url)) == "succeeded"
    write_format_1(url)
    assert asyncio.run(one_run(url)) == "succeeded"
    code, found = ask("store", "upgrade", "--store", url, "--dry-run")
    assert (code, found["steps"]) == (0, [])


def test_nothing_stored_is_an_error_unless_it_is_to_be_made(url: str, ask: Any) -> None:
    assert ask("store", "upgrade", "--store", url)[0] in (69, 78)
    code, found = ask("store", "upgrade", "--store", url, "--create", "--dry-run")
    assert (code, found["steps"], found["format"]["stored"]) == (0, ["create the store"], None)
    assert ask("store", "upgrade", "--store", url)[0] in (69, 78)
    code, found = ask("store", "upgrade", "--store", url, "--create")
    assert (code, found["upgraded"], found["jobs"]) == (0, True, 0)


def test_memory_has_no_format(ask: Any) -> None:
    code, told = ask("store", "upgrade", "--store", "memory://")
    assert code == 78
    assert "inside one process" in told


def test_people_read_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    asyncio.run(one_run(url))
    write_format_1(url)
    assert outcome(["store", "upgrade", "--store", url, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "an upgrade would:\n  add the table of each job's last run" in told
    assert "1 jobs" in told


# --- a role with few rights -----------------------------------------------------------------------------------


@pytest.fixture
def as_role(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """The URL of a role that owns nothing, for a store that another has made."""
    assert outcome(["store", "upgrade", "--store", postgres_url, "--create"]) == 0
    capsys.readouterr()
    assert outcome(["store", "grants", "o'app\"1", "--transactions"]) == 0
    sql = capsys.readouterr().out
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("""create role "o'app""1" login""")
        admin.execute(sql.encode())
        try:
            yield postgres_url.replace("postgres@", "o'app%221@")
        finally:
            admin.execute("""drop owned by "o'app""1"; drop role "o'app""1" """)


@pytest.mark.parametrize("postgres_server", [16, 18], indirect=True)
def test_a_role_that_owns_nothing_takes_part(postgres_url: str, as_role: str, ask: Any) -> None:
    assert asyncio.run(one_run(as_role)) == "succeeded"
    assert ask("status", "--store", as_role)[0] == 0
    with psycopg.connect(as_role) as db:
        (owned,) = db.execute(
            "select count(*) from pg_class where relowner = current_user::regrole"
        ).fetchone() or (0,)
        assert owned == 0
    for forbidden in ("create table fencepost.more ()", "drop table fencepost.final", "create schema more"):
        with psycopg.connect(as_role) as db, pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(forbidden.encode())


async def test_it_triggers_inside_of_a_transaction(as_role: str) -> None:
    scheduler = Scheduler(as_role)

    @scheduler.job(every(days=300))
    def tidy() -> None: ...

    async with scheduler:
        with psycopg.connect(as_role) as db:
            handle = await scheduler.trigger(tidy, connection=db)
            db.commit()
        assert (await handle.wait(timeout=60)).state == "succeeded"


def test_it_is_told_who_can_convert_the_store(postgres_url: str, as_role: str, ask: Any) -> None:
    asyncio.run(one_run(postgres_url))
    write_format_1(postgres_url)
    code, told = ask("store", "upgrade", "--store", as_role)
    assert code == 78
    assert "may not convert it" in told
    assert "the role that owns the schema" in told
    assert ask("store", "upgrade", "--store", postgres_url)[0] == 0
    assert asyncio.run(one_run(as_role)) == "succeeded"  # what the upgrade has added is granted as well


@pytest.mark.slow
class TestAsARole(StoreConformance):
    """All rules of the store hold for it."""

    @pytest.fixture
    async def harness(self, as_role: str) -> AsyncIterator[Harness]:
        async with a_harness(as_role) as harness:
            yield harness


def test_the_default_namespace_is_that_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FENCEPOST_NAMESPACE", "shop")
    assert Settings.load().namespace == "shop"
    assert outcome(["store", "grants", "app"]) == 0
    assert 'grant usage on schema "fencepost_shop" to "app";' in capsys.readouterr().out
