"""The stages, one after the other. What one has matched, no later one may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from stop_sync.geo import distance_m, point
from stop_sync.matching.free import Free, Pair
from stop_sync.matching.spots import spots_of_nodes, spots_of_stops
from stop_sync.matching.stages import (
    Stage,
    by_name,
    by_platform,
    by_reference,
    by_routes,
    clearly_nearest,
    single,
    together_by_name,
    together_by_reference,
)
from stop_sync.model import GtfsStop, Match, OsmNode, Stop

STAGES: dict[str, Stage] = {
    "reference": by_reference,
    "name": by_name,
    "routes": by_routes,
    "together by reference": together_by_reference,
    "together by name": together_by_name,
    "platform": by_platform,
    "single": single,
    "clearly nearest": clearly_nearest,
    "single again": single,  # the stage before has taken rivals away
}


def match(stops: Iterable[Stop], timetable: Iterable[GtfsStop], nodes: Sequence[OsmNode]) -> list[Match]:
    return [found for _, matches in match_by_stage(stops, timetable, nodes) for found in matches]


def match_by_stage(
    stops: Iterable[Stop], timetable: Iterable[GtfsStop], nodes: Sequence[OsmNode]
) -> Iterator[tuple[str, list[Match]]]:
    """Stage by stage, so that the caller can tell how far it is."""
    stop_spots = spots_of_stops(stops, timetable)
    free = Free(stop_spots, spots_of_nodes(nodes), frozenset(stop.reference for stop in stop_spots))
    for name, stage in STAGES.items():
        pairs = list(stage(free))
        free = free.without(pairs)
        yield name, [found for pair in pairs for found in _matches(pair, name)]


def _matches(pair: Pair, stage: str) -> Iterator[Match]:
    """Every member of the one with every member of the other: duplicates share the match of who represents them."""
    for stop, node in product(pair.stop.members, pair.node.members):
        apart = distance_m(point(stop.latitude, stop.longitude), point(node.latitude, node.longitude))
        yield Match(stop.sloid, node.id, stage, round(apart, 2))
