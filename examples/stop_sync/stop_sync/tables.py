"""The rows as tables. Static ones follow from the register and the timetable, dynamic ones from the map as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_type_hints

from stop_sync.artefacts import read_rows
from stop_sync.model import KINDS

Dialect = Literal["sqlite", "postgresql"]

STATIC = ("operators", "stops", "gtfs_stops")
DYNAMIC = ("osm_nodes", "matches", "problems")
KEYS = {
    "operators": "sboid",
    "stops": "sloid",
    "gtfs_stops": "stop_id",
    "osm_nodes": "id",
    "matches": "sloid, node_id",
    "problems": "id",
}
BATCH = 1000

_TYPES: dict[Dialect, dict[Any, str]] = {
    "sqlite": {int: "integer", float: "real", str: "text"},
    "postgresql": {int: "bigint", float: "double precision", str: "text"},
}
MARKS: dict[Dialect, str] = {"sqlite": "?", "postgresql": "%s"}


def create_table(name: str, dialect: Dialect) -> str:
    """A column for each field of its rows. What may be None may be null; routes are a JSON list."""
    types = _TYPES[dialect]
    columns = []
    for column, hint in get_type_hints(KINDS[name]).items():
        kind = next((text for python, text in types.items() if hint in (python, python | None)), "text")
        nullable = any(hint == python | None for python in types)
        columns.append(f"    {column} {kind}" + ("" if nullable else " not null"))
    body = ",\n".join([*columns, f"    primary key ({KEYS[name]})"])
    return f"create table if not exists {name} (\n{body}\n)"


def rows_for(name: str, folder: Path) -> Iterator[tuple[Any, ...]]:
    """What its artefact has, in the order of the columns."""
    for row in read_rows(folder, KINDS[name]):
        yield tuple(json.dumps(value) if isinstance(value, tuple) else value for value in astuple(row))


def fill(
    connection: Any,
    staging: Mapping[str, str],
    folder: Path,
    dialect: Dialect,
    tell: Callable[[int, str], None] = lambda done, table: None,
) -> int:
    """Load the artefacts into tables of the same shape: by table the name of the one to load. `tell` hears how many
    rows are in, and of which table the last ones were. The caller commits."""
    done = 0
    with_marks = MARKS[dialect]
    for name, table in staging.items():
        columns = [field.name for field in fields(KINDS[name])]
        marks = ", ".join(with_marks for _ in columns)
        insert = f"insert into {table} ({', '.join(columns)}) values ({marks})"
        rows = rows_for(name, folder)
        while batch := list(islice(rows, BATCH)):
            connection.cursor().executemany(insert, batch)
            done += len(batch)
            tell(done, name)
    return done
