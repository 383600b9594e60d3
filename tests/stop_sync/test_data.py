"""Invented sources: the same seed, the same bytes; and what they are there to show is in them."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from stop_sync.data import BEYOND, World, gtfs_zip, osm_xml, read_truth, register_zip, truth, write_sources
from stop_sync.data.situations import SITUATIONS
from stop_sync.data.world import MOST_STOPS
from stop_sync.geo import distance_m, point
from stop_sync.matching import STAGES

MAKERS = (register_zip, gtfs_zip, osm_xml)


@pytest.mark.parametrize("make", MAKERS)
def test_the_same_seed_gives_the_same_bytes(make):
    assert make(World(seed=5, stops=100)) == make(World(seed=5, stops=100))


@pytest.mark.parametrize("make", MAKERS)
def test_another_seed_or_version_gives_others(make):
    bytes_of = [make(World(seed, 100, version)) for seed, version in ((5, 1), (6, 1), (5, 2))]
    assert len(set(bytes_of)) == 3


def test_a_later_version_has_all_that_an_earlier_one_has():
    before, after = World(5, 100, version=1), World(5, 100, version=2)
    assert [area.stops for area in after.areas][: len(before.areas)] == [area.stops for area in before.areas]
    assert [area.nodes for area in after.areas][: len(before.areas)] == [area.nodes for area in before.areas]
    assert len(after.areas) > len(before.areas)


def test_the_truth_of_two_versions_has_the_new_stops_unmatched():
    before, after = World(5, 100, version=1), World(5, 100, version=2)
    new = {stop.sloid for area in after.areas for stop in area.stops} - {
        stop.sloid for area in before.areas for stop in area.stops
    }
    assert new
    assert new <= set(truth(after, before).unmatched_stops)
    assert truth(after, before).pairs == truth(before, before).pairs


def test_every_stop_and_node_is_either_matched_or_not(compared):
    world = compared.world
    known = truth(world, world)
    stops = [stop.sloid for area in world.areas for stop in area.stops]
    nodes = [node.id for area in world.areas for node in area.nodes]
    assert len(set(stops)) == len(stops)
    assert len(set(nodes)) == len(nodes)
    assert {pair.sloid for pair in known.pairs}.isdisjoint(known.unmatched_stops)
    assert {pair.node_id for pair in known.pairs}.isdisjoint(known.unmatched_nodes)
    assert {pair.sloid for pair in known.pairs}.union(known.unmatched_stops) == set(stops)
    assert {pair.node_id for pair in known.pairs}.union(known.unmatched_nodes) == set(nodes)


def test_every_stage_has_pairs_to_find():
    """As many stops as there are situations are enough: each comes once before any comes twice."""
    world = World(5, stops=len(SITUATIONS))
    assert {pair.stage for pair in truth(world, world).pairs} == {*STAGES, BEYOND}


def test_distances_beyond_each_threshold_are_there():
    world = World(5, stops=400)
    place = {stop.sloid: stop for area in world.areas for stop in area.stops} | {
        node.id: node for area in world.areas for node in area.nodes
    }
    metres = [
        distance_m(*(point(place[each].latitude, place[each].longitude) for each in pair[:2]))
        for pair in truth(world, world).pairs
    ]
    ranges = Counter(next(limit for limit in (15, 25, 80, math.inf) if each <= limit) for each in metres)
    assert set(ranges) == {15, 25, 80, math.inf}


def test_all_is_in_switzerland_and_stops_do_not_mix(compared):
    areas = compared.world.areas
    assert all(45.8 < area.latitude < 47.8 and 5.9 < area.longitude < 10.5 for area in areas)
    assert len({area.name for area in areas}) == len({area.number for area in areas}) == len(areas)
    centres = [point(area.latitude, area.longitude) for area in areas]
    assert all(distance_m(one, other) > 400 for place, one in enumerate(centres) for other in centres[:place])


def test_the_truth_is_written_beside_the_sources(tmp_path):
    world = World(5, stops=40)
    sources = write_sources(tmp_path, world)
    assert [path.read_bytes() for path in sources] == [make(world) for make in MAKERS]
    assert read_truth(tmp_path / "truth.json") == truth(world, world)


@pytest.mark.parametrize("stops", [0, MOST_STOPS + 1])
def test_a_world_has_room_for_so_many(stops):
    with pytest.raises(ValueError, match="room for 1 to 4000"):
        World(1, stops)


def test_the_largest_world_has_names_and_sites_for_all():
    world = World(1, MOST_STOPS)
    assert len({area.name for area in world.areas}) == len(world.areas) >= MOST_STOPS
