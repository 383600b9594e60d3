"""The rules, from the surest to the boldest. Each looks at what is still free and says which pairs it is sure of.

Where two answers are as good as each other there is none. Only platforms of one and the same stop are shared out all
the same: whoever is wrong there is wrong by a few metres.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import inf

import numpy
from scipy.optimize import linear_sum_assignment

from stop_sync.matching.free import NEAR_M, Free, Pair
from stop_sync.matching.spots import NodeSpot, StopSpot

Stage = Callable[[Free], Iterable[Pair]]

CLEAR_RATIO = 4.0
CLEAR_FROM_M = 10.0
FORBIDDEN_M = 1e6
"""More than all allowed distances of a group together, so that one more pair is always cheaper than a shorter way."""


# --- by what they say ---------------------------------------------------------------------------------------


def by_reference(free: Free) -> Iterator[Pair]:
    """The same UIC reference, at any distance. Where one side has only one, it is all of the others: a stop drawn as
    two nodes, or two platforms drawn as one. Otherwise the letters decide."""
    for stops, nodes in _grouped_by_reference(free):
        if len(stops) == 1 or len(nodes) == 1:
            yield from _all(stops, nodes)
        else:
            yield from _same_letter(stops, nodes)


def by_name(free: Free) -> Iterator[Pair]:
    """The official name, at any distance: it is unique in the country. Where several have it, the letters decide."""
    for stops, nodes in _grouped_by_name(free):
        nodes = [node for node in nodes if any(free.may_be_same(stop, node) for stop in stops)]
        if len(stops) == len(nodes) == 1:
            yield from _all(stops, nodes)
        else:
            yield from _same_letter(stops, nodes)


def by_routes(free: Free) -> Iterator[Pair]:
    """Near, and served by the same lines in the same directions. Each must be the other's only best."""
    pairs = free.near()
    of_stop, of_node = _by_spot(pairs)
    best = _only_best(of_stop.values()) & _only_best(of_node.values())
    return (pair for pair in pairs if pair in best)


# --- by where they are --------------------------------------------------------------------------------------


def together_by_reference(free: Free) -> Iterator[Pair]:
    """The same reference and no letters: the platforms of one stop, taken together."""
    for stops, nodes in _grouped_by_reference(free):
        yield from _assigned(free, stops, nodes)


def together_by_name(free: Free) -> Iterator[Pair]:
    for stops, nodes in _grouped_by_name(free):
        yield from _assigned(free, stops, nodes)


def by_platform(free: Free) -> Iterator[Pair]:
    """Near, and the same letter. The nearest find each other first."""
    return _first_come(pair for pair in free.near() if pair.has_same_letter)


def single(free: Free) -> Iterator[Pair]:
    """Near, and nobody else is: neither another node for the stop nor another stop for the node."""
    pairs = free.near()
    of_stop, of_node = _by_spot(pairs)
    return (pair for pair in pairs if len(of_stop[pair.stop]) == len(of_node[pair.node]) == 1)


def clearly_nearest(free: Free) -> Iterator[Pair]:
    """Others are near, too, but so much further away that there is no doubt; seen from both sides."""
    pairs = free.near()
    of_stop, of_node = _by_spot(pairs)
    return (
        pair for pair in pairs if _is_clear(pair, of_stop[pair.stop]) and _is_clear(pair, of_node[pair.node])
    )


# --- what they share ----------------------------------------------------------------------------------------


def _grouped_by_reference(free: Free) -> Iterator[tuple[list[StopSpot], list[NodeSpot]]]:
    return free.grouped(lambda stop: stop.reference, lambda node: node.reference)


def _grouped_by_name(free: Free) -> Iterator[tuple[list[StopSpot], list[NodeSpot]]]:
    """A node that has the names of two stops says nothing."""
    official = {stop.name for stop in free.stops}

    def only_name(node: NodeSpot) -> str | None:
        known = node.names & official
        return min(known) if len(known) == 1 else None

    return free.grouped(lambda stop: stop.name, only_name)


def _all(stops: Iterable[StopSpot], nodes: Iterable[NodeSpot]) -> Iterator[Pair]:
    return (Pair(stop, node) for stop, node in product(stops, nodes))


def _same_letter(stops: Iterable[StopSpot], nodes: Iterable[NodeSpot]) -> Iterator[Pair]:
    return (pair for pair in _all(stops, nodes) if pair.has_same_letter)


def _only_best(candidates: Iterable[Sequence[Pair]]) -> set[Pair]:
    """Of each spot's candidates the one that shares most, unless two do."""
    best = set()
    for pairs in candidates:
        most = max(_shared(pair) for pair in pairs)
        leaders = [pair for pair in pairs if _shared(pair) == most]
        if most and len(leaders) == 1:
            best.update(leaders)
    return best


def _shared(pair: Pair) -> int:
    return len(pair.stop.routes & pair.node.routes)


def _assigned(free: Free, stops: Sequence[StopSpot], nodes: Sequence[NodeSpot]) -> Iterator[Pair]:
    """As many pairs as possible, and of all ways to do that the one with the least distance in total. Nearest-first
    would be worse: two that are very near may leave two others without anybody."""
    if not nodes:
        return
    costs = numpy.full((len(stops), len(nodes)), FORBIDDEN_M)
    for (row, stop), (column, node) in product(enumerate(stops), enumerate(nodes)):
        pair = Pair(stop, node)
        if pair.distance_m <= NEAR_M and free.may_be_same(stop, node):
            costs[row, column] = pair.distance_m
    for row, column in zip(*linear_sum_assignment(costs), strict=True):
        if costs[row, column] < FORBIDDEN_M:
            yield Pair(stops[row], nodes[column])


def _first_come(pairs: Iterable[Pair]) -> Iterator[Pair]:
    taken: set[StopSpot | NodeSpot] = set()
    for pair in pairs:
        if taken.isdisjoint(pair):
            taken.update(pair)
            yield pair


def _by_spot(
    pairs: Iterable[Pair],
) -> tuple[dict[StopSpot, list[Pair]], dict[NodeSpot, list[Pair]]]:
    of_stop: defaultdict[StopSpot, list[Pair]] = defaultdict(list)
    of_node: defaultdict[NodeSpot, list[Pair]] = defaultdict(list)
    for pair in pairs:
        of_stop[pair.stop].append(pair)
        of_node[pair.node].append(pair)
    return of_stop, of_node


def _is_clear(pair: Pair, rivals: Sequence[Pair]) -> bool:
    """Rivals come nearest first, and `pair` is one of them."""
    second_m = rivals[1].distance_m if len(rivals) > 1 else inf
    return pair == rivals[0] and second_m >= max(CLEAR_FROM_M, CLEAR_RATIO * pair.distance_m)
