"""From artefacts to artefacts: what the phases after preprocessing do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from stop_sync.artefacts import read_rows, write_rows
from stop_sync.matching import STAGES, match_by_stage
from stop_sync.model import GtfsStop, Match, Operator, OsmNode, Problem, Stop
from stop_sync.problems import find_problems


def write_matches(
    folder: Path, tell: Callable[[int, int, str], None] = lambda done, total, stage: None
) -> int:
    """How many there are. `tell` hears after each stage how many of them are done, and which it was."""

    def matches() -> Iterator[Match]:
        stages = match_by_stage(
            read_rows(folder, Stop), read_rows(folder, GtfsStop), list(read_rows(folder, OsmNode))
        )
        for done, (stage, found) in enumerate(stages, start=1):
            yield from found
            tell(done, len(STAGES), stage)

    return write_rows(folder, Match, matches())


def write_problems(folder: Path) -> int:
    found = find_problems(
        list(read_rows(folder, Stop)),
        read_rows(folder, Operator),
        list(read_rows(folder, OsmNode)),
        list(read_rows(folder, Match)),
    )
    return write_rows(folder, Problem, found)
