"""Triggers inside a caller's transaction: committed with it or not at all, with every kind of connection."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fencepost import ConfigurationError, Scheduler, State, UsageError
from tests.web.serving import eventually

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the database during app init:RuntimeWarning")

QUICK: dict[str, Any] = {"heartbeat": 0.2, "leader_ttl": 1, "run_ttl": 2, "horizon": 2, "drain_timeout": 1}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    scheduler = Scheduler(url, **QUICK)

    @scheduler.task(id="report")
    def report(order: int) -> int:
        return order

    with scheduler.background():
        yield scheduler


def alchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def driver(url: str) -> Iterator[Any]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            yield connection
    else:
        with closing(psycopg.connect(url)) as connection:
            yield connection


@contextmanager
def core(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy(url))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy(url))
    with Session(engine) as found:
        yield found
    engine.dispose()


@contextmanager
def django(url: str) -> Iterator[Any]:
    from django.conf import settings
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure(USE_TZ=True, TIME_ZONE="UTC", USE_I18N=True)
    if url.startswith("sqlite"):
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    else:
        given = psycopg.conninfo.conninfo_to_dict(url)
        names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
        database = {name: str(given[key]) for key, name in names.items() if given.get(key)}
        database["ENGINE"] = "django.db.backends.postgresql"
    connection = ConnectionHandler({"default": database})["default"]
    connection.set_autocommit(False)
    try:
        yield connection
    finally:
        connection.close()


CONNECTIONS: dict[str, Callable[[str], Any]] = {
    "driver": driver,
    "sqlalchemy": core,
    "session": session,
    "django": django,
}


def keys(scheduler: Scheduler) -> set[str]:
    return {fire.key for fire in scheduler.sync.find_fires("report")}


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_committed_exactly_one_rolled_back_none(kind: str, url: str, scheduler: Scheduler) -> None:
    with CONNECTIONS[kind](url) as connection:
        kept = scheduler.sync.trigger("report", args={"order": 1}, connection=connection)
        connection.commit()
        assert kept.wait(60).result == 1
        lost = scheduler.sync.trigger("report", args={"order": 2}, connection=connection)
        connection.rollback()
        again = scheduler.sync.trigger("report", args={"order": 3}, connection=connection)
        connection.commit()
        assert again.wait(60).state is State.SUCCEEDED
        assert keys(scheduler) == {kept.key, again.key}
        assert lost.key not in keys(scheduler)


def test_nothing_is_seen_before_the_commit_and_it_goes_with_what_it_belongs_to(
    url: str, scheduler: Scheduler
) -> None:
    with driver(url) as connection:
        connection.execute("create table orders (number integer)")
        connection.commit()
        scheduler.sync.trigger("report", args={"order": 1}, connection=connection)
        connection.rollback()
        assert keys(scheduler) == set()  # from now on reading needs no lock for writing
        handle = scheduler.sync.trigger("report", args={"order": 7}, connection=connection)
        connection.execute("insert into orders values (7)")
        other = scheduler.sync.trigger("report", args={"order": 8}) if "postgres" in url else None
        if other is not None:  # SQLite has one writer at a time
            other.wait(60)
        assert handle.key not in keys(scheduler)
        with pytest.raises(TimeoutError):
            handle.wait(0.3)
        connection.commit()
        assert handle.result(60) == 7


async def test_async_connections(url: str, scheduler: Scheduler) -> None:
    if "postgres" not in url:
        pytest.skip("psycopg's")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        handle = await scheduler.trigger("report", args={"order": 5}, connection=connection)
        await connection.rollback()
        kept = await scheduler.trigger("report", args={"order": 6}, connection=connection)
        await connection.commit()
        assert await kept.result(60) == 6
        with pytest.raises(UsageError, match="async"):
            scheduler.sync.trigger("report", args={"order": 5}, connection=connection)
    engine = create_async_engine(alchemy(url))
    async with AsyncSession(engine) as found:
        late = await scheduler.trigger("report", args={"order": 9}, connection=found)
        await found.commit()
        assert await late.result(60) == 9
    await engine.dispose()
    assert handle.key not in {fire.key for fire in await scheduler.find_fires("report")}


def test_the_same_idempotency_key_is_one_fire(url: str, scheduler: Scheduler) -> None:
    with driver(url) as connection:
        for _ in range(3):
            handle = scheduler.sync.trigger(
                "report", args={"order": 1}, idempotency_key="once", connection=connection
            )
            connection.commit()
        handle.wait(60)
        eventually(lambda: left_in(url) == 0)
        assert keys(scheduler) == {"report!once"}


def left_in(url: str) -> int:
    table = "fencepost_inbox" if url.startswith("sqlite") else "fencepost.inbox"
    with driver(url) as connection:
        [count] = connection.execute(f"select count(*) from {table}").fetchone()
    return int(count)


def test_what_does_not_fit_is_refused_before_anything_is_written(url: str, scheduler: Scheduler) -> None:
    with driver(url) as connection:
        with pytest.raises(ConfigurationError, match="lacks order"):
            scheduler.sync.trigger("report", connection=connection)
        with pytest.raises(ConfigurationError, match="if_active"):
            scheduler.sync.trigger("report", args={"order": 1}, if_active="no", connection=connection)
    with pytest.raises(UsageError, match="not a connection"):
        scheduler.sync.trigger("report", args={"order": 1}, connection=object())


def test_another_database_is_refused_with_the_remedy(url: str, scheduler: Scheduler, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    with driver(elsewhere) as connection:
        with pytest.raises(UsageError, match="trigger_on_commit"):
            scheduler.sync.trigger("report", args={"order": 1}, connection=connection)
        assert connection.execute("select count(*) from sqlite_master").fetchone() == (0,)
    assert keys(scheduler) == set()


def test_a_database_beside_the_stores_on_the_same_server_is_refused(postgres_url: str) -> None:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
        admin.execute("create database beside")
    scheduler = Scheduler(postgres_url, **QUICK)
    scheduler.task(lambda: None, id="report")
    with scheduler.background():
        beside = psycopg.conninfo.make_conninfo(postgres_url, dbname="beside")
        with closing(psycopg.connect(beside)) as connection, pytest.raises(UsageError, match="does not lead"):
            scheduler.sync.trigger("report", connection=connection)


def test_a_store_in_no_database_is_refused_with_the_remedy(tmp_path: Path) -> None:
    scheduler = Scheduler(f"file:{tmp_path}/store", **QUICK)
    scheduler.task(lambda: None, id="report")
    with (
        driver(f"sqlite:///{tmp_path}/app.db") as connection,
        pytest.raises(UsageError, match="trigger_on_commit"),
    ):
        scheduler.sync.trigger("report", connection=connection)


KILLED = """
import os, signal, sys
from fencepost import Scheduler
url = sys.argv[1]
scheduler = Scheduler(url)
scheduler.task(lambda order: None, id="report")
if url.startswith("sqlite"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
else:
    import psycopg
    connection = psycopg.connect(url)
if sys.argv[2] == "after":
    scheduler.sync.trigger("report", args={"order": 1}, idempotency_key="killed", connection=connection)
    connection.commit()
else:
    scheduler.sync.trigger("report", args={"order": 1}, idempotency_key="killed", connection=connection)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "expected"), [("before", set()), ("after", {"report!killed"})])
def test_killed_before_the_commit_none_after_it_one(
    when: str, expected: set[str], url: str, scheduler: Scheduler
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), url, when]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    with driver(url) as connection:  # what is committed later is moved later
        scheduler.sync.trigger("report", args={"order": 2}, idempotency_key="later", connection=connection)
        connection.commit()
    eventually(lambda: "report!later" in keys(scheduler))
    assert keys(scheduler) == expected | {"report!later"}


def test_a_leader_that_dies_after_adding_and_before_removing_repeats_nothing(
    url: str, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = scheduler.replica.intake._inbox  # type: ignore[union-attr]
    removed = threading.Event()

    def fails(numbers: Any) -> None:
        removed.set()
        raise OSError("killed here")

    with driver(url) as connection:
        monkeypatch.setattr(inbox, "remove", fails)
        handle = scheduler.sync.trigger("report", args={"order": 4}, connection=connection)
        connection.commit()
        assert handle.result(60) == 4
        assert removed.wait(60)
    assert left_in(url) == 1
    monkeypatch.undo()
    eventually(lambda: left_in(url) == 0)
    [fire] = scheduler.sync.find_fires("report")
    assert (fire.state, fire.attempt) == (State.SUCCEEDED, 1)


def test_rows_that_hold_no_fire_are_removed_and_others_pass(
    url: str, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    with driver(url) as connection:
        scheduler.sync.trigger("report", args={"order": 1}, connection=connection)
        table = "fencepost_inbox" if url.startswith("sqlite") else "fencepost.inbox"
        bad = [("report@2026-11-15T12:00:00.000000Z", "{}", "queue"), ("report!x", "[1]", "queue")]
        bad += [("report!y", "{}", "always"), ("no such thing!z", "{", "queue")]
        for key, args, if_active in bad:
            values = f"('{key}', '{args}', '{if_active}', '')"
            connection.execute(f"insert into {table} (key, args, if_active, asked_by) values {values}")
        last = scheduler.sync.trigger("report", args={"order": 2}, connection=connection)
        connection.commit()
        assert last.result(60) == 2
    eventually(lambda: left_in(url) == 0)
    assert len(keys(scheduler)) == 2
    assert "holds no fire" in caplog.text


# --- elsewhere: after the commit -----------------------------------------------------------------------------------


def test_on_commit_of_a_session_triggers_after_it_and_not_after_a_rollback(tmp_path: Path) -> None:
    scheduler = Scheduler("memory://", **QUICK)
    scheduler.task(lambda order: order, id="report")
    with scheduler.background(), session(f"sqlite:///{tmp_path}/app.db") as connection:
        connection.execute(sqlalchemy.text("create table orders (number integer)"))
        scheduler.trigger_on_commit("report", args={"order": 1}, connection=connection)
        connection.rollback()
        connection.execute(sqlalchemy.text("select 1"))
        connection.commit()
        assert keys(scheduler) == set()
        key = scheduler.trigger_on_commit("report", args={"order": 2}, connection=connection)
        with connection.begin_nested():
            scheduler.trigger_on_commit("report", args={"order": 3}, connection=connection)
            savepoint = connection.get_nested_transaction()
            savepoint.rollback()
        assert keys(scheduler) == set()
        connection.commit()
        assert keys(scheduler) == {key}
        connection.commit()
        assert keys(scheduler) == {key}
        with pytest.raises(UsageError, match="Session"):
            scheduler.trigger_on_commit("report", args={"order": 4}, connection=connection.connection())


def test_on_commit_of_what_does_not_tell_is_refused(tmp_path: Path) -> None:
    scheduler = Scheduler("memory://", **QUICK)
    scheduler.task(lambda: None, id="report")
    with (
        driver(f"sqlite:///{tmp_path}/app.db") as connection,
        pytest.raises(UsageError, match="after the commit"),
    ):
        scheduler.trigger_on_commit("report", connection=connection)
