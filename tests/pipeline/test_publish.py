"""Publication: readers see the old rows or the new ones, never both, and never half of either."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import psycopg
import pytest
from psycopg.rows import dict_row

from fencepost import Fire, Pipeline, Retry, UsageError
from fencepost.pipeline import pipeline_status, published
from tests.unit.apps.waiting import eventually

ROWS = 400
TABLES = """
create table operators (id integer primary key, version integer not null);
create table stops (id integer primary key, operator integer not null references operators (id),
    version integer not null, name text not null default 'unnamed', loud text generated always as (upper(name)) stored);
create view versions as select version from stops
"""


class Sqlite:
    """An application's database, and the pipeline's store elsewhere."""

    mark = "?"

    def __init__(self, path):
        self.path = path
        with closing(self.connect()) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.executescript(TABLES)

    def connect(self):
        connection = sqlite3.connect(self.path, timeout=5)
        connection.execute("pragma foreign_keys = on")
        return connection

    def snapshot(self, connection):
        connection.execute("begin")


class Postgres:
    mark = "%s"

    def __init__(self, url):
        self.url = url
        with closing(self.connect()) as connection:
            connection.execute(TABLES)
            connection.commit()

    def connect(self):
        return psycopg.connect(self.url)

    def snapshot(self, connection):
        connection.execute("set transaction isolation level repeatable read")


@pytest.fixture(params=["sqlite", "postgres"])
def base(request, tmp_path):
    if request.param == "sqlite":
        return Sqlite(tmp_path / "app.db")
    return Postgres(request.getfixturevalue("postgres_url"))


def load(base, connection, new, version, rows=ROWS):
    with closing(connection.cursor()) as cursor:
        marks = ", ".join([base.mark] * 2)
        cursor.executemany(
            f"insert into {new['operators']} (id, version) values ({marks})",
            [(id, version) for id in range(10)],
        )
        marks = ", ".join([base.mark] * 3)
        cursor.executemany(
            f"insert into {new['stops']} (id, operator, version) values ({marks})",
            [(id, id % 10, version) for id in range(rows)],
        )


def seen(base, connection):
    """In one transaction: how many of which version."""
    base.snapshot(connection)
    found = [
        connection.execute(f"select version, count(*) from {table} group by version").fetchall()
        for table in ("operators", "stops")
    ]
    connection.rollback()
    return found


class Readers:
    def __init__(self, base, number=2):
        self._base = base
        self._end = threading.Event()
        self.readings = []
        self._threads = [threading.Thread(target=self._read) for _ in range(number)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _read(self):
        with closing(self._base.connect()) as connection:
            while not self._end.is_set():
                self.readings.append(seen(self._base, connection))


def publishing(base, fail=False):
    pipeline = Pipeline("stops")

    @pipeline.phase("import", blocking=True)
    def import_(run):
        with closing(base.connect()) as connection, run.publish(connection, "operators", "stops") as new:
            load(base, connection, new, run.fire.token)
            if run.force:
                raise ValueError("row 7 is bad")

    return pipeline


async def ran(scheduler, **args):
    return await (await scheduler.trigger("stops", args=args or None)).wait(timeout=60)


async def test_readers_never_see_mixed_rows(scheduled, base):
    scheduler = await scheduled(publishing(base))
    fires = [await ran(scheduler)]
    with Readers(base) as readers:
        fires += [await ran(scheduler) for _ in range(5)]
    assert [fire.state for fire in fires] == ["succeeded"] * 6
    # By token: a replica that is held up gives a claim back, and the next one has a higher token.
    whole = [[[(fire.token, 10)], [(fire.token, ROWS)]] for fire in fires]
    assert len(readers.readings) > 20
    for reading in readers.readings:
        assert reading in whole
    assert len({reading[0][0][0] for reading in readers.readings}) >= 3
    with closing(base.connect()) as connection:  # what depends on the tables is still there
        assert connection.execute("select distinct version from versions").fetchall() == [(fires[-1].token,)]
        assert connection.execute("select distinct loud from stops").fetchall() == [("UNNAMED",)]


async def test_a_failing_import_leaves_the_old_data_whole(scheduled, base):
    scheduler = await scheduled(publishing(base))
    token = (await ran(scheduler)).token
    before = await pipeline_status(scheduler)
    with Readers(base) as readers:
        fire = await ran(scheduler, force=True)
    assert fire.state == "failed"
    assert readers.readings
    assert all(reading == [[(token, 10)], [(token, ROWS)]] for reading in readers.readings)
    status = await pipeline_status(scheduler)
    assert (status["status"], status["last_error"]) == ("failed", "ValueError: row 7 is bad")
    assert status["data_updated_at"] == before["data_updated_at"]
    assert status["blocking_maintenance"] is False
    assert (await ran(scheduler)).state == "succeeded"  # the claim is free, the next one is fresh
    with closing(base.connect()) as connection:
        assert seen(base, connection) == [[(3, 10)], [(3, ROWS)]]


async def test_rows_that_do_not_fit_leave_the_old_data_whole(scheduled, base):
    pipeline = Pipeline("stops")

    @pipeline.phase("import")
    def import_(run):
        with closing(base.connect()) as connection, run.publish(connection, "operators", "stops") as new:
            load(base, connection, new, run.fire.token)
            if run.force:
                connection.execute(f"delete from {new['operators']} where id = 3")

    scheduler = await scheduled(pipeline)
    await ran(scheduler)
    fire = await ran(scheduler, force=True)
    assert fire.state == "failed"
    assert "foreign key" in fire.error.lower()
    with closing(base.connect()) as connection:
        assert seen(base, connection) == [[(1, 10)], [(1, ROWS)]]


async def test_a_run_that_was_cancelled_publishes_nothing(scheduled, base):
    pipeline, loaded, go = Pipeline("stops"), threading.Event(), threading.Event()

    @pipeline.phase("import")
    def import_(run):
        with closing(base.connect()) as connection, run.publish(connection, "operators", "stops") as new:
            load(base, connection, new, run.fire.token)
            loaded.set()
            go.wait(60)

    scheduler = await scheduled(pipeline)
    handle = await scheduler.trigger("stops")
    await eventually(loaded.is_set, seconds=60)
    await scheduler.cancel(handle.key)
    await eventually(lambda: any(run.cause for run in scheduler.replica.runs.values()), seconds=60)
    go.set()
    assert (await handle.wait(60)).state == "cancelled"
    with closing(base.connect()) as connection:
        assert seen(base, connection) == [[], []]


async def test_what_an_earlier_attempt_has_published_stands(scheduled, base):
    """It died after the commit and before it could say so: the phase is done again, its effect is not."""
    pipeline, calls = Pipeline("stops"), []

    @pipeline.phase("import")
    def import_(run):
        calls.append(run.fire.token)
        with closing(base.connect()) as connection, run.publish(connection, "operators", "stops") as new:
            load(base, connection, new, run.fire.token)
        if run.fire.attempt == 1:
            raise ValueError("as if it had been killed here")

    scheduler = await scheduled(pipeline, retry=Retry(attempts=2, first=0.05))
    fire = await ran(scheduler)
    assert (fire.state, calls) == ("succeeded", [1, 2])
    with closing(base.connect()) as connection:
        assert seen(base, connection) == [[(1, 10)], [(1, ROWS)]]


async def test_what_cannot_be_published_is_refused(base):
    fire = Fire.fake()

    def publish(connection, *tables):
        with published(fire, connection, tables):
            pass

    with closing(base.connect()) as connection:
        for tables, why in (
            ((), "each once"),
            (("stops", "stops"), "each once"),
            (("stops; drop table stops",), "not usable"),
            (("nothing",), "no table 'nothing'"),
        ):
            with pytest.raises(UsageError, match=why):
                publish(connection, *tables)
        connection.execute("insert into operators values (1, 1)")
        with pytest.raises(UsageError, match="transaction is open"):
            publish(connection, "stops")
        connection.rollback()
        with pytest.raises(UsageError, match="not a connection"):
            publish(object(), "stops")


async def test_a_connection_that_commits_by_itself_and_makes_its_own_rows(base):
    with closing(base.connect()) as connection:
        if isinstance(base, Sqlite):
            connection.isolation_level = None
            connection.row_factory = sqlite3.Row
        else:
            connection.autocommit = True
            connection.row_factory = dict_row
        for token in (1, 2):
            fire = Fire.fake(token=token, job_id=f"stops{token}")
            with published(fire, connection, ["operators", "stops"]) as new:
                load(base, connection, new, token)
    with closing(base.connect()) as connection:
        assert seen(base, connection) == [[(2, 10)], [(2, ROWS)]]


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
async def test_in_the_stores_own_database(scheduled, place, tmp_path, request):
    """There the fire's row is looked at in the same transaction."""
    if place == "sqlite":
        base, url = Sqlite(tmp_path / "app.db"), f"sqlite:///{tmp_path}/app.db"
    else:
        url = request.getfixturevalue("postgres_url")
        base = Postgres(url)
    scheduler = await scheduled(publishing(base), url)
    for _ in range(2):
        assert (await ran(scheduler)).state == "succeeded"
    await scheduler.stop()  # the database goes before the fixture that would stop it
    with closing(base.connect()) as connection:
        assert seen(base, connection) == [[(2, 10)], [(2, ROWS)]]
