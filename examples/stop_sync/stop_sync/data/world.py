"""Towns all over the country, each with a few stops that one line connects."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from stop_sync.data.area import Area, Truth, moved
from stop_sync.data.names import LANGUAGES, OPERATORS, REGIONS, stop_names, town_names
from stop_sync.data.situations import SITUATIONS, Situation

FIRST_NUMBER = 8_570_001
FIRST_NODE = 4_000_000_001
STOPS_PER_VERSION = 12
"""So many open, at least, from one version of a source to the next."""
MOST_STOPS = 4000
CELL_NORTH, CELL_EAST = 0.030, 0.045
"""Degrees. Each town has a cell of its own, which puts it two kilometres or more from the next."""
APART_M = 450.0
"""Stops of a town: no situation reaches into its neighbour's."""
PLACES = [(east * APART_M, north * APART_M) for east in (-1, 0, 1) for north in (-1, 0, 1)]


@dataclass(frozen=True)
class Town:
    line: str
    areas: list[Area]

    def towards(self, direction: int) -> str:
        return self.areas[-1 if direction == 0 else 0].name


class World:
    """Everything follows from the seed. A later version has all that an earlier one has, and new stops; so of sources
    with different versions it is still known what is true."""

    def __init__(self, seed: int, stops: int = 1500, version: int = 1) -> None:
        wanted = stops + STOPS_PER_VERSION * (version - 1)
        if not 0 < stops <= wanted <= MOST_STOPS:
            raise ValueError(f"stops={stops}, version={version}: there is room for 1 to {MOST_STOPS} stops")
        self.towns: list[Town] = []
        self.areas: list[Area] = []
        """Of all towns."""
        self._random = Random(seed)
        self._sites = _sites(self._random)
        self._names = {language: town_names(self._random, language) for language in LANGUAGES}
        self._numbers = count(FIRST_NUMBER)
        self._node_ids = count(FIRST_NODE)
        self._situations = iter(SITUATIONS)
        while len(self.areas) < wanted:
            self.towns.append(self._town())

    def _town(self) -> Town:
        random = self._random
        site = self._sites.pop()
        town = self._names[site.language].pop()
        operator, _ = random.choice(OPERATORS)
        size = random.randint(2, 7)
        numbers = [str(next(self._numbers)) for _ in range(size)]
        names = stop_names(random, site.language, size)
        areas = []
        for index, place in enumerate(random.sample(PLACES, size)):
            latitude, longitude = moved(site.latitude, site.longitude, *place)
            area = Area(
                random,
                numbers[index],
                f"{town}, {names[index]}",
                names[index],
                operator,
                latitude,
                longitude,
                self._node_ids,
                elsewhere=numbers[index - 1],
            )
            self._situation()(area)
            areas.append(area)
        self.areas += areas
        return Town(str(random.randint(1, 99)), areas)

    def _situation(self) -> Situation:
        """Each once, then as it comes."""
        drawn = next(self._situations, None)
        return drawn or self._random.choices(list(SITUATIONS), list(SITUATIONS.values()))[0]


class _Site(NamedTuple):
    language: str
    latitude: float
    longitude: float


def _sites(random: Random) -> list[_Site]:
    """Where a town may be, in any order: one in each cell of a grid over the regions, not quite in its middle."""
    found = []
    for region in REGIONS:
        for row in range(int((region.north - region.south) / CELL_NORTH)):
            for column in range(int((region.east - region.west) / CELL_EAST)):
                latitude = region.south + CELL_NORTH * (row + random.uniform(0.3, 0.7))
                longitude = region.west + CELL_EAST * (column + random.uniform(0.3, 0.7))
                found.append(_Site(region.language, latitude, longitude))
    random.shuffle(found)
    return found


def truth(register: World, osm: World) -> Truth:
    """Of the same seed, whatever their versions."""
    stops = [stop.sloid for area in register.areas for stop in area.stops]
    nodes = [node.id for area in osm.areas for node in area.nodes]
    there: set[object] = {*stops, *nodes}
    pairs = [pair for area in register.areas for pair in area.pairs if {pair.sloid, pair.node_id} <= there]
    matched: set[object] = {each for pair in pairs for each in (pair.sloid, pair.node_id)}
    return Truth(
        pairs,
        [sloid for sloid in stops if sloid not in matched],
        [node for node in nodes if node not in matched],
    )
