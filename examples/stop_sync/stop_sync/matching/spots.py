"""Stops and nodes, reduced to what is compared. What stands twice in one source is one spot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from stop_sync.geo import Neighbours, Point, distance_m, point
from stop_sync.model import GtfsStop, OsmNode, Stop, plain

TWINS_WITHIN_M = 12.0

Member = TypeVar("Member", Stop, OsmNode)


@dataclass(frozen=True, eq=False, slots=True)
class Spot(Generic[Member]):
    """Spots are compared by identity: two that look alike are still two."""

    members: tuple[Member, ...]
    """The first one represents the others. Each of them shares its matches."""
    reference: str
    names: frozenset[str]
    platform: str
    """Its letter or number."""
    routes: frozenset[str]
    at: Point

    @property
    def name(self) -> str:
        """The only one. Stops have one."""
        (name,) = self.names
        return name


StopSpot = Spot[Stop]
NodeSpot = Spot[OsmNode]


def spots_of_stops(stops: Iterable[Stop], timetable: Iterable[GtfsStop]) -> list[StopSpot]:
    """The register has platforms twice: the same number and the same designation."""
    routes: defaultdict[str, set[str]] = defaultdict(set)
    for gtfs_stop in timetable:
        if gtfs_stop.sloid is not None:
            routes[gtfs_stop.sloid].update(gtfs_stop.routes)
    return [_stop_spot(members, routes) for members in same_platform(stops)]


def same_platform(stops: Iterable[Stop]) -> list[list[Stop]]:
    """Grouped by number and designation. Without a designation nothing says that two are the same. The first of a
    group represents it: sorted, so that it is always the same one."""
    groups: dict[tuple[str, str], list[Stop]] = {}
    for stop in sorted(stops, key=lambda stop: stop.sloid):
        key = (stop.number, plain(stop.designation)) if stop.designation else (stop.sloid, "")
        groups.setdefault(key, []).append(stop)
    return list(groups.values())


def spots_of_nodes(nodes: Sequence[OsmNode]) -> list[NodeSpot]:
    """Mappers draw where passengers wait and where the vehicle stops: a platform and a stop position, side by side."""
    twin_of = twins(nodes)
    spots = []
    for node in sorted(nodes, key=lambda node: node.id):
        twin = twin_of.get(node.id)
        if twin is None:
            spots.append(_node_spot((node,)))
        elif node.public_transport == "platform":
            spots.append(_node_spot((node, twin)))
    return spots


def twins(nodes: Sequence[OsmNode]) -> dict[int, OsmNode]:
    """By node the other one. The nearest find each other first."""
    platforms = [node for node in nodes if node.public_transport == "platform"]
    positions = [node for node in nodes if node.public_transport == "stop_position"]
    places = [point(node.latitude, node.longitude) for node in positions]
    near = Neighbours(places).within(
        TWINS_WITHIN_M, [point(each.latitude, each.longitude) for each in platforms]
    )
    pairs = [
        (distance_m(point(platform.latitude, platform.longitude), places[place]), platform, positions[place])
        for platform, found in zip(platforms, near, strict=True)
        for place in found
        if _may_be_twins(platform, positions[place])
    ]
    twin_of: dict[int, OsmNode] = {}
    for _, platform, position in sorted(pairs, key=lambda pair: (pair[0], pair[1].id, pair[2].id)):
        if platform.id not in twin_of and position.id not in twin_of:
            twin_of[platform.id], twin_of[position.id] = position, platform
    return twin_of


def _may_be_twins(platform: OsmNode, position: OsmNode) -> bool:
    same = (platform.uic_ref, platform.name) == (position.uic_ref, position.name)
    return same and not differ(plain(platform.local_ref), plain(position.local_ref))


def differ(one: str, other: str) -> bool:
    """Both say something, and it is not the same."""
    return bool(one and other and one != other)


def _stop_spot(members: Sequence[Stop], routes: Mapping[str, set[str]]) -> StopSpot:
    first = members[0]
    return Spot(
        tuple(members),
        first.number,
        frozenset({plain(first.name)}),
        plain(first.designation),
        frozenset().union(*(routes.get(stop.sloid, ()) for stop in members)),
        point(first.latitude, first.longitude),
    )


def _node_spot(members: tuple[OsmNode, ...]) -> NodeSpot:
    first = members[0]
    names = {plain(name) for node in members for name in (node.name, node.uic_name)}
    return Spot(
        members,
        first.uic_ref,
        frozenset(names - {""}),
        next((plain(node.local_ref) for node in members if node.local_ref), ""),
        frozenset().union(*(node.routes for node in members)),
        point(first.latitude, first.longitude),
    )
