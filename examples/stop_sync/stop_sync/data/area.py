"""One stop with all its platforms: what each source has of it, and what is true."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import NamedTuple

from stop_sync.geo import METRES_PER_DEGREE
from stop_sync.model import OsmNode, Stop
from stop_sync.reading.register import PLATFORM, SWITZERLAND

BEYOND = "beyond the rules"
"""The stage of pairs that no rule can find."""


FOR_EVER = "2099-12-31"
OTHERS = 20_000
"""From the number of a stop to that of another one at the same place."""


class RegisterRow(NamedTuple):
    stop: Stop
    valid_to: str = FOR_EVER
    country: str = SWITZERLAND
    kind: str = PLATFORM


class TruePair(NamedTuple):
    sloid: str
    node_id: int
    stage: str
    """The one that can find it."""


@dataclass(frozen=True)
class Truth:
    pairs: list[TruePair]
    unmatched_stops: list[str]
    unmatched_nodes: list[int]


@dataclass
class Area:
    """Situations call `stop`, `node` and `pair`. Places are metres east and north of the centre."""

    random: Random
    number: str
    name: str
    short_name: str
    """Without the town: what is written on the pole."""
    operator: str
    latitude: float
    longitude: float
    node_ids: Iterator[int]
    elsewhere: str
    """The number of another stop."""
    stops: list[Stop] = field(default_factory=list)
    ignored: list[RegisterRow] = field(default_factory=list)
    """Rows of the register that are not ours."""
    nodes: list[OsmNode] = field(default_factory=list)
    pairs: list[TruePair] = field(default_factory=list)
    calls: dict[int, list[int]] = field(default_factory=lambda: {0: [], 1: []})
    """By direction the nodes that the map's relations name."""

    def __post_init__(self) -> None:
        self._sloids = count(1)

    def stop(self, east: float = 0.0, north: float = 0.0, designation: str = "") -> Stop:
        latitude, longitude = self._place(east, north)
        sloid = f"ch:1:sloid:{int(self.number) % 100_000}:0:{next(self._sloids)}"
        stop = Stop(sloid, self.number, designation, self.name, latitude, longitude, self.operator)
        self.stops.append(stop)
        return stop

    def stop_of_another(self, east: float) -> Stop:
        """A platform here that belongs to a stop with another number and name."""
        number, name = str(int(self.number) + OTHERS), f"{self.name} Nord"
        stop = replace(self.stop(east), number=number, name=name)
        self.stops[-1] = stop
        return stop

    def ignore(
        self, stop: Stop, valid_to: str = FOR_EVER, country: str = SWITZERLAND, kind: str = PLATFORM
    ) -> None:
        """Beside this one the register has another, which is not ours because of one of these."""
        again = replace(stop, sloid=f"{stop.sloid}:{len(self.ignored)}")
        self.ignored.append(RegisterRow(again, valid_to, country, kind))

    def node(
        self,
        of: Stop | None = None,
        away_m: float | None = None,
        at: tuple[float, float] = (0, 0),
        **tags: str,
    ) -> OsmNode:
        """At a stop, or so far away from it; else at a place. It says what is right, unless told otherwise."""
        latitude, longitude = self._place(*at)
        if of is not None:
            latitude, longitude = self._aside(
                of, min(12.0, abs(self.random.gauss(0, 4))) if away_m is None else away_m
            )
        said = {
            "uic_ref": self.number,
            "name": self.name,
            "uic_name": self.random.choice(("", self.name)),
            "local_ref": "",
            "public_transport": "platform",
            "operator": self.random.choice(("", self.operator)),
        }
        node = OsmNode(next(self.node_ids), latitude, longitude, routes=(), **(said | tags))
        self.nodes.append(node)
        return node

    def mute_node(
        self,
        of: Stop | None = None,
        away_m: float | None = None,
        at: tuple[float, float] = (0, 0),
        **tags: str,
    ) -> OsmNode:
        """One that says nothing of which stop it is."""
        return self.node(of, away_m, at, **({"uic_ref": "", "name": "", "uic_name": ""} | tags))

    def pair(self, stage: str, stop: Stop, node: OsmNode) -> None:
        self.pairs.append(TruePair(stop.sloid, node.id, stage))

    def called_at(self, stop: Stop, node: OsmNode) -> None:
        """The map's relations have this node where the timetable has the stop."""
        for direction in (0, 1):
            if self.platform(direction) is stop:
                self.calls[direction].append(node.id)

    def platform(self, direction: int) -> Stop | None:
        """Where the lines of a town call. Out and back they call at different platforms, if there are any."""
        return self.stops[direction % len(self.stops)] if self.stops else None

    def _place(self, east: float, north: float) -> tuple[float, float]:
        return moved(self.latitude, self.longitude, east, north)

    def _aside(self, stop: Stop, metres: float) -> tuple[float, float]:
        bearing = self.random.uniform(0, math.tau)
        return moved(stop.latitude, stop.longitude, metres * math.sin(bearing), metres * math.cos(bearing))


def moved(latitude: float, longitude: float, east: float, north: float) -> tuple[float, float]:
    """With seven decimals, as sources have them: a centimetre."""
    per_degree_east = METRES_PER_DEGREE * math.cos(math.radians(latitude))
    return round(latitude + north / METRES_PER_DEGREE, 7), round(longitude + east / per_degree_east, 7)
