"""The rows that travel through the pipeline: what the sources say, and what was found out.

Each kind is a file of its own between two phases and a table in the end. What a source leaves out is an empty text:
two rows contradict each other only where both say something.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operator:
    sboid: str
    """The register's number of a business organisation."""
    abbreviation: str
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A boarding platform of the register."""

    sloid: str
    number: str
    """The UIC reference, which all platforms of a stop share."""
    designation: str
    """What is written at the platform: 3, or B."""
    name: str
    latitude: float
    longitude: float
    operator: str
    """Abbreviated."""


@dataclass(frozen=True, slots=True)
class GtfsStop:
    """A stop of the timetable."""

    stop_id: str
    sloid: str | None
    """Of the register's platform that it is; None: of none."""
    name: str
    latitude: float
    longitude: float
    routes: tuple[str, ...]
    """What calls here, as `route_tokens` writes it."""


@dataclass(frozen=True, slots=True)
class OsmNode:
    id: int
    latitude: float
    longitude: float
    uic_ref: str
    name: str
    uic_name: str
    local_ref: str
    public_transport: str
    operator: str
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Match:
    sloid: str
    node_id: int
    stage: str
    distance_m: float


@dataclass(frozen=True, slots=True)
class Problem:
    id: int
    kind: str
    """distance, attributes, unmatched or duplicate."""
    priority: int
    """1 is the most urgent, 3 the least."""
    sloid: str | None
    node_id: int | None
    detail: str


def route_tokens(line: str, destination: str) -> set[str]:
    """A line, and the line with its direction: platforms on two sides of a road differ in the latter only."""
    line, destination = plain(line), plain(destination)
    if not line:
        return set()
    return {line, f"{line} > {destination}"} if destination else {line}


def plain(text: str) -> str:
    """For comparisons: neither capitals nor spaces make a difference."""
    return " ".join(text.casefold().split())


KINDS: dict[str, type] = {
    "operators": Operator,
    "stops": Stop,
    "gtfs_stops": GtfsStop,
    "osm_nodes": OsmNode,
    "matches": Match,
    "problems": Problem,
}
"""By the name that their files and tables have."""
