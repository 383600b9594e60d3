"""Who is not matched yet, and who of them is near whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stop_sync.geo import Neighbours, distance_m
from stop_sync.matching.spots import NodeSpot, StopSpot, differ

NEAR_M = 50.0


class Pair(NamedTuple):
    stop: StopSpot
    node: NodeSpot

    @property
    def distance_m(self) -> float:
        return distance_m(self.stop.at, self.node.at)

    @property
    def has_same_letter(self) -> bool:
        return bool(self.stop.platform) and self.stop.platform == self.node.platform


@dataclass(frozen=True)
class Free:
    stops: Sequence[StopSpot]
    nodes: Sequence[NodeSpot]
    numbers: frozenset[str]
    """All that the register has, those of matched stops too."""

    def without(self, pairs: Iterable[Pair]) -> Free:
        taken = {spot for pair in pairs for spot in pair}
        return Free(
            [stop for stop in self.stops if stop not in taken],
            [node for node in self.nodes if node not in taken],
            self.numbers,
        )

    def may_be_same(self, stop: StopSpot, node: NodeSpot) -> bool:
        """A node with another letter is another platform; one that refers to another stop of the register is that one.
        A reference that the register does not know is a slip, and says nothing."""
        elsewhere = node.reference != stop.reference and node.reference in self.numbers
        return not elsewhere and not differ(stop.platform, node.platform)

    def near(self) -> list[Pair]:
        """Every pair that may be the same and is not further apart than `NEAR_M`, the nearest first."""
        found = Neighbours([node.at for node in self.nodes]).within(NEAR_M, [stop.at for stop in self.stops])
        pairs = [
            Pair(stop, self.nodes[place])
            for stop, places in zip(self.stops, found, strict=True)
            for place in places
            if self.may_be_same(stop, self.nodes[place])
        ]
        return sorted(pairs, key=lambda pair: (pair.distance_m, _names(pair)))

    def grouped(
        self, stop_key: Callable[[StopSpot], str], node_key: Callable[[NodeSpot], str | None]
    ) -> Iterator[tuple[list[StopSpot], list[NodeSpot]]]:
        """Stops and nodes that have a key in common. None: a node has none."""
        stops: defaultdict[str, list[StopSpot]] = defaultdict(list)
        for stop in self.stops:
            stops[stop_key(stop)].append(stop)
        nodes: defaultdict[str | None, list[NodeSpot]] = defaultdict(list)
        for node in self.nodes:
            nodes[node_key(node)].append(node)
        return ((group, nodes[key]) for key, group in stops.items() if key in nodes)


def _names(pair: Pair) -> tuple[str, int]:
    """Decides between equal distances; the order of the rows must not."""
    return pair.stop.members[0].sloid, pair.node.members[0].id
