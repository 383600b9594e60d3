"""What somebody should look at, and how urgently: 1 before 2 before 3."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stop_sync.geo import Neighbours, point
from stop_sync.matching.spots import differ, same_platform, twins
from stop_sync.model import Match, Operator, OsmNode, Problem, Stop, plain

FAR_M = {1: 80.0, 2: 25.0, 3: 15.0}
"""By priority: matched, and further apart than this."""
ALONE_M = {1: 80.0, 2: 50.0}
"""By priority: not matched, and the nearest of the other side further away than this."""
LONG_PLATFORMS = "SBB"
"""Whose platforms are so long that a distance within one says little."""


def find_problems(
    stops: Sequence[Stop], operators: Iterable[Operator], nodes: Sequence[OsmNode], matches: Sequence[Match]
) -> list[Problem]:
    found = [
        *_distances(stops, matches),
        *_attributes(stops, operators, nodes, matches),
        *_unmatched(stops, nodes, matches),
        *_duplicates(stops, nodes),
    ]
    return [replace(problem, id=number) for number, problem in enumerate(found, start=1)]


def distance_priority(distance_m: float, operator: str) -> int | None:
    if operator == LONG_PLATFORMS:
        return 3 if distance_m > FAR_M[2] else None
    return next((priority for priority, metres in FAR_M.items() if distance_m > metres), None)


def unmatched_priority(namesakes: int | None, own_count: int, nearest_m: float) -> int:
    """`namesakes`: how many the other side has with the same reference; None: this one has no reference. `own_count`:
    how many this side has with it."""
    if namesakes == 0 or nearest_m > ALONE_M[1]:
        return 1
    if nearest_m > ALONE_M[2] or (namesakes is not None and namesakes != own_count):
        return 2
    return 3


def _distances(stops: Iterable[Stop], matches: Iterable[Match]) -> Iterator[Problem]:
    operator_of = {stop.sloid: stop.operator for stop in stops}
    for match in matches:
        priority = distance_priority(match.distance_m, operator_of[match.sloid])
        if priority is not None:
            yield _problem(
                "distance", priority, match.sloid, match.node_id, f"{match.distance_m:.0f} m apart"
            )


def _attributes(
    stops: Iterable[Stop], operators: Iterable[Operator], nodes: Iterable[OsmNode], matches: Iterable[Match]
) -> Iterator[Problem]:
    """One for each pair, as urgent as the worst of what differs."""
    stop_of = {stop.sloid: stop for stop in stops}
    node_of = {node.id: node for node in nodes}
    names_of = {each.abbreviation: {plain(each.abbreviation), plain(each.name)} for each in operators}
    for match in matches:
        stop, node = stop_of[match.sloid], node_of[match.node_id]
        wrong = list(_differences(stop, node, names_of.get(stop.operator, set())))
        if wrong:
            detail = ", ".join(f"{what}: {ours!r} and {theirs!r}" for _, what, ours, theirs in wrong)
            yield _problem("attributes", min(wrong)[0], match.sloid, match.node_id, detail)


def _differences(stop: Stop, node: OsmNode, operator: set[str]) -> Iterator[tuple[int, str, str, str]]:
    """Only what both sides say can differ."""
    if differ(stop.number, node.uic_ref):
        yield 1, "reference", stop.number, node.uic_ref
    names = [name for name in (node.uic_name, node.name) if name]
    if names and plain(stop.name) not in map(plain, names):
        yield 1, "name", stop.name, names[0]
    if differ(plain(stop.designation), plain(node.local_ref)):
        yield 2, "platform", stop.designation, node.local_ref
    if operator and node.operator and plain(node.operator) not in operator:
        yield 3, "operator", stop.operator, node.operator


def _unmatched(
    stops: Sequence[Stop], nodes: Sequence[OsmNode], matches: Iterable[Match]
) -> Iterator[Problem]:
    matched: set[object] = {each for match in matches for each in (match.sloid, match.node_id)}
    stops_with, nodes_with = Counter(stop.number for stop in stops), Counter(node.uic_ref for node in nodes)
    stop_points = [point(stop.latitude, stop.longitude) for stop in stops]
    node_points = [point(node.latitude, node.longitude) for node in nodes]
    for stop, nearest_m in zip(stops, Neighbours(node_points).nearest_m(stop_points), strict=True):
        if stop.sloid not in matched:
            namesakes, own = nodes_with[stop.number], stops_with[stop.number]
            priority = unmatched_priority(namesakes, own, nearest_m)
            yield _problem("unmatched", priority, stop.sloid, None, _loneliness(namesakes, nearest_m))
    for node, nearest_m in zip(nodes, Neighbours(stop_points).nearest_m(node_points), strict=True):
        if node.id not in matched:
            wanted = stops_with[node.uic_ref] if node.uic_ref else None
            priority = unmatched_priority(wanted, nodes_with[node.uic_ref], nearest_m)
            yield _problem("unmatched", priority, None, node.id, _loneliness(wanted, nearest_m))


def _loneliness(namesakes: int | None, nearest_m: float) -> str:
    said = "it has no reference" if namesakes is None else f"{namesakes} on the other side have its reference"
    return f"{said}, the nearest is {nearest_m:.0f} m away"


def _duplicates(stops: Iterable[Stop], nodes: Sequence[OsmNode]) -> Iterator[Problem]:
    """One for each that is there again. The platform and the stop position of one place are no duplicates."""
    for first, *again in same_platform(stops):
        for stop in again:
            yield _problem("duplicate", 2, stop.sloid, None, f"number and platform as {first.sloid}")
    twin_of = twins(nodes)
    seen: defaultdict[tuple[str, str], list[OsmNode]] = defaultdict(list)
    for node in nodes:
        if node.uic_ref and node.local_ref:
            like_it = seen[node.uic_ref, plain(node.local_ref)]
            others = [other for other in like_it if twin_of.get(node.id) is not other]
            if others:
                yield _problem("duplicate", 3, None, node.id, f"reference and platform as {others[0].id}")
            like_it.append(node)


def _problem(kind: str, priority: int, sloid: str | None, node_id: int | None, detail: str) -> Problem:
    """Numbered when all are known."""
    return Problem(0, kind, priority, sloid, node_id, detail)
