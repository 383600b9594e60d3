"""The rows in a database: the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from stop_sync.artefacts import read_rows
from stop_sync.model import KINDS, GtfsStop, Problem
from stop_sync.tables import DYNAMIC, KEYS, STATIC, create_table, fill, rows_for


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """A connection and its dialect."""
    connections: dict[str, Callable[[], Any]] = {
        "sqlite": lambda: sqlite3.connect(tmp_path / "stops.sqlite"),
        "postgresql": lambda: psycopg.connect(request.getfixturevalue("postgres_url")),
    }
    with closing(connections[request.param]()) as connection:
        yield connection, request.param


def test_every_kind_of_row_has_a_table():
    assert {*STATIC, *DYNAMIC} == KINDS.keys() == KEYS.keys()


def test_what_is_filled_in_comes_out(database, compared):
    connection, dialect = database
    staging = {name: f"new_{name}" for name in (*STATIC, *DYNAMIC)}
    for name, new in staging.items():
        connection.execute(create_table(name, dialect))
        connection.execute(create_table(name, dialect))  # there already: nothing happens
        connection.execute(create_table(name, dialect).replace(f" {name} (", f" {new} ("))
    told = []
    count = fill(
        connection, staging, compared.folder, dialect, lambda done, table: told.append((done, table))
    )
    connection.commit()
    assert told[-1] == (count, "problems")
    for name, new in staging.items():
        there = connection.execute(f"select * from {new} order by {KEYS[name]}").fetchall()
        given = list(rows_for(name, compared.folder))
        assert sorted(there) == sorted(given)
        assert connection.execute(f"select count(*) from {name}").fetchone() == (0,)


def test_a_row_twice_is_refused(database, compared):
    connection, dialect = database
    connection.execute(create_table("stops", dialect))
    fill(connection, {"stops": "stops"}, compared.folder, dialect)
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        fill(connection, {"stops": "stops"}, compared.folder, dialect)


def test_routes_are_json_and_what_is_none_is_null(compared):
    routes = {row[0]: row[-1] for row in rows_for("gtfs_stops", compared.folder)}
    assert {each.stop_id: list(each.routes) for each in read_rows(compared.folder, GtfsStop)} == {
        stop_id: json.loads(text) for stop_id, text in routes.items()
    }
    text = create_table("problems", "postgresql")
    assert "sloid text,\n" in text
    assert "node_id bigint,\n" in text
    assert "priority bigint not null" in text


def test_problems_and_matches_speak_of_rows_that_are_there(compared):
    stops = {row[0] for row in rows_for("stops", compared.folder)}
    nodes = {row[0] for row in rows_for("osm_nodes", compared.folder)}
    assert {row[0] for row in rows_for("matches", compared.folder)} <= stops
    assert {row[1] for row in rows_for("matches", compared.folder)} <= nodes
    for problem in read_rows(compared.folder, Problem):
        assert problem.sloid in stops | {None}
        assert problem.node_id in nodes | {None}
        assert (problem.sloid, problem.node_id) != (None, None)
