"""Whole worlds: how much of the truth is found, and how long it takes. No seed is special."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from math import isnan

import pytest

from stop_sync.artefacts import read_rows
from stop_sync.compare import write_matches
from stop_sync.data import Truth, World, truth, write_sources
from stop_sync.data.area import TruePair
from stop_sync.matching import STAGES
from stop_sync.model import Match, OsmNode, Problem, Stop
from stop_sync.preprocess import preprocess_gtfs, preprocess_osm, preprocess_register
from stop_sync.quality import A_DAY, quality, table
from tests.stop_sync.conftest import environment, everything

SEEDS = (1, 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_found_is_true_and_what_is_true_is_found(seed, tmp_path):
    world = World(seed, stops=600)
    everything(world, tmp_path)
    *stages, total = quality(read_rows(tmp_path, Match), truth(world, world))
    print(table([*stages, total]))
    assert total.precision >= 0.98
    assert total.recall >= 0.95
    by_name = {row.stage: row for row in stages}
    assert all(by_name[stage].matched and by_name[stage].true for stage in STAGES)
    # What is only near, and says nothing of itself, may be a stranger; all others must be right.
    assert all(by_name[stage].precision >= 0.98 for stage in STAGES if stage != "single")
    assert all(by_name[stage].recall >= 0.85 for stage in STAGES)  # of some there are only twenty pairs
    found = {(problem.kind, problem.priority) for problem in read_rows(tmp_path, Problem)}
    urgent = {(kind, priority) for kind in ("distance", "attributes", "unmatched") for priority in (1, 2, 3)}
    assert found == urgent | {("duplicate", 2), ("duplicate", 3)}


def test_thousands_of_stops_take_less_than_five_seconds(tmp_path):
    """Of this process's time: others may keep the machine busy."""
    world = World(seed=4, stops=1500)
    begun = time.process_time()
    everything(world, tmp_path)
    assert time.process_time() - begun < 5
    assert len(list(read_rows(tmp_path, Stop))) > 2500
    assert len(list(read_rows(tmp_path, OsmNode))) > 2500


def test_a_map_that_is_older_than_the_register(tmp_path):
    register, osm = World(5, stops=300, version=3), World(5, stops=300, version=1)
    write_sources(tmp_path / "new", register)
    write_sources(tmp_path / "old", osm)
    preprocess_register(tmp_path / "new" / "register.zip", tmp_path, A_DAY)
    preprocess_gtfs(tmp_path / "new" / "gtfs.zip", tmp_path)
    preprocess_osm(tmp_path / "old" / "osm.xml", tmp_path)
    write_matches(tmp_path)
    total = quality(read_rows(tmp_path, Match), truth(register, osm))[-1]
    assert total.precision >= 0.98
    assert total.recall >= 0.95


def test_stages_are_told_as_they_end(compared, tmp_path):
    told = []
    for name in ("stops", "gtfs_stops", "osm_nodes"):
        shutil.copy(compared.folder / f"{name}.jsonl", tmp_path)
    count = write_matches(tmp_path, lambda done, total, stage: told.append((done, total, stage)))
    assert told == [(number, len(STAGES), stage) for number, stage in enumerate(STAGES, start=1)]
    assert count == len(list(read_rows(tmp_path, Match)))


def test_the_same_rows_give_the_same_file_in_another_process(compared, tmp_path):
    for name in ("stops", "gtfs_stops", "osm_nodes"):
        shutil.copy(compared.folder / f"{name}.jsonl", tmp_path)
    code = "import pathlib, sys, stop_sync.compare as c; c.write_matches(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, tmp_path], env=environment(), check=True)
    assert (tmp_path / "matches.jsonl").read_bytes() == (compared.folder / "matches.jsonl").read_bytes()


def test_each_pair_is_found_once(compared):
    pairs = [(found.sloid, found.node_id) for found in read_rows(compared.folder, Match)]
    assert len(set(pairs)) == len(pairs)


def test_precision_is_of_what_was_found_and_recall_of_what_is_true():
    found = [Match("a", 1, "reference", 0.0), Match("b", 2, "single", 0.0)]
    known = Truth([TruePair("a", 1, "name"), TruePair("c", 3, "name")], ["b"], [2])
    rows = {row.stage: row for row in quality(found, known)}
    assert (rows["reference"].precision, rows["name"].recall) == (1.0, 0.5)
    assert isnan(rows["reference"].recall)
    assert isnan(rows["name"].precision)
    assert rows["single"].precision == 0.0
    assert (rows["total"].precision, rows["total"].recall) == (0.5, 0.5)
    assert "0.500" in table(rows.values()).splitlines()[-1]
