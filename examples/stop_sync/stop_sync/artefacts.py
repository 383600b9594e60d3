"""Rows in files, one JSON list per line. A file appears when it is complete: a phase that was cut off leaves none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

from fencepost.pipeline import written
from stop_sync.model import KINDS, GtfsStop, Match, Operator, OsmNode, Problem, Stop

Row = TypeVar("Row", Operator, Stop, GtfsStop, OsmNode, Match, Problem)

FILES = {kind: f"{name}.jsonl" for name, kind in KINDS.items()}


class ArtefactInvalid(Exception):
    """A file of another version of this program, or damaged."""


def write_rows(folder: Path, kind: type[Row], rows: Iterable[Row]) -> int:
    """How many there were. They are written as they come, so a generator needs no memory."""
    count = 0
    with written(folder / FILES[kind], "w", encoding="utf-8") as file:
        file.write(json.dumps(_columns(kind)) + "\n")
        for row in rows:
            file.write(json.dumps(astuple(row), ensure_ascii=False) + "\n")
            count += 1
    return count


def read_rows(folder: Path, kind: type[Row]) -> Iterator[Row]:
    path = folder / FILES[kind]
    made: Callable[..., Row] = kind
    with path.open(encoding="utf-8") as file:
        if file.readline().strip() != json.dumps(_columns(kind)):
            raise ArtefactInvalid(f"{path} has other columns than expected; delete it and preprocess again")
        for line in file:
            yield made(*(tuple(value) if isinstance(value, list) else value for value in json.loads(line)))


def count_rows(folder: Path, kind: type[Any]) -> int:
    with (folder / FILES[kind]).open("rb") as file:
        return sum(1 for _ in file) - 1  # the first line names the columns


def _columns(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]
