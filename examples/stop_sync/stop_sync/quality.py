"""How well the matcher does, compared with the truth: `python -m stop_sync.quality --seed 7`.

Precision of a stage: how many of the pairs that it found are true. Recall of a stage: how many of the true pairs that
it is there for were found, by whichever stage.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from math import isnan, nan
from pathlib import Path
from typing import NamedTuple

from stop_sync.artefacts import read_rows
from stop_sync.compare import write_matches, write_problems
from stop_sync.data import BEYOND, Truth, World, truth, write_sources
from stop_sync.matching import STAGES
from stop_sync.model import Match
from stop_sync.preprocess import preprocess_gtfs, preprocess_osm, preprocess_register

TOTAL = "total"
A_DAY = date(2026, 1, 1)
"""On which invented stops are valid."""


class Quality(NamedTuple):
    stage: str
    matched: int
    correct: int
    true: int
    found: int

    @property
    def precision(self) -> float:
        return self.correct / self.matched if self.matched else nan

    @property
    def recall(self) -> float:
        return self.found / self.true if self.true else nan


def quality(matches: Iterable[Match], truth: Truth) -> list[Quality]:
    """Of each stage, and last in total."""
    stage_of = {(found.sloid, found.node_id): found.stage for found in matches}
    true = {(pair.sloid, pair.node_id): pair.stage for pair in truth.pairs}
    both = stage_of.keys() & true.keys()
    matched, correct = Counter(stage_of.values()), Counter(stage_of[pair] for pair in both)
    wanted, found = Counter(true.values()), Counter(true[pair] for pair in both)
    rows = [
        Quality(stage, matched[stage], correct[stage], wanted[stage], found[stage])
        for stage in (*STAGES, BEYOND)
    ]
    return [*rows, Quality(TOTAL, len(stage_of), len(both), len(true), len(both))]


def table(rows: Iterable[Quality]) -> str:
    return "\n".join(_lines(rows))


def _lines(rows: Iterable[Quality]) -> Iterator[str]:
    yield f"{'stage':<22}{'matched':>9}{'correct':>9}{'precision':>11}{'true':>9}{'found':>9}{'recall':>9}"
    for row in rows:
        yield (
            f"{row.stage:<22}{row.matched:>9}{row.correct:>9}{_share(row.precision):>11}"
            f"{row.true:>9}{row.found:>9}{_share(row.recall):>9}"
        )


def _share(value: float) -> str:
    return "-" if isnan(value) else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Match an invented world and compare the result with the truth."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stops", type=int, default=1500)
    options = parser.parse_args()
    world = World(options.seed, options.stops)
    with tempfile.TemporaryDirectory(prefix="stop-sync-") as name:
        folder = Path(name)
        sources = write_sources(folder, world)
        for tally in (
            preprocess_register(sources.register, folder, A_DAY),
            preprocess_gtfs(sources.gtfs, folder),
            preprocess_osm(sources.osm, folder),
        ):
            print(tally)
        print(f"{write_matches(folder)} matches, {write_problems(folder)} problems\n")
        print(table(quality(read_rows(folder, Match), truth(world, world))))


if __name__ == "__main__":
    main()
