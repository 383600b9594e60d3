"""OpenStreetMap: XML with nodes, and relations that say which lines call at them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import ParseError, XMLParser

from stop_sync.model import OsmNode, route_tokens
from stop_sync.reading.checks import SourceInvalid, Tally, Unreadable, coordinates, text

CHUNK_BYTES = 1 << 16
MOST_MEMBERS = 20_000
"""Tags, or members, of one element."""
KINDS = ("platform", "stop_position", "station")
OLDER_TAGS = {
    ("highway", "bus_stop"): "platform",
    ("highway", "platform"): "platform",
    ("railway", "platform"): "platform",
    ("railway", "tram_stop"): "stop_position",
    ("railway", "stop"): "stop_position",
    ("railway", "halt"): "station",
    ("railway", "station"): "station",
    ("amenity", "bus_station"): "station",
    ("amenity", "ferry_terminal"): "station",
    ("aerialway", "station"): "station",
}
"""Many stops were mapped before `public_transport` came into use, and have only these."""


@dataclass
class Element:
    kind: str
    attributes: Mapping[str, str]
    tags: dict[str, str] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    """The ids of its nodes."""

    def tag(self, name: str) -> str:
        return text(self.tags.get(name, ""))


def read_osm(path: Path, tally: Tally) -> Iterator[OsmNode]:
    """Relations come after the nodes they speak of, so the file is read twice rather than kept in memory."""
    routes = _routes_by_node(path, tally)
    for element in _elements(path, "node"):
        kind = _kind_of(element)
        if kind is None:
            tally.passed_over["no stop"] += 1
            continue
        try:
            yield _node(element, kind, routes)
        except Unreadable as error:
            tally.unreadable[str(error)] += 1


def _kind_of(element: Element) -> str | None:
    """What kind of stop it is; None: it is none."""
    kind = element.tags.get("public_transport")
    if kind is not None:
        return kind if kind in KINDS else None
    return next((found for tag in element.tags.items() if (found := OLDER_TAGS.get(tag))), None)


def _node(element: Element, kind: str, routes: Mapping[str, set[str]]) -> OsmNode:
    number = element.attributes.get("id", "")
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise Unreadable("no id")
    latitude, longitude = coordinates(element.attributes.get("lat"), element.attributes.get("lon"))
    return OsmNode(
        int(number),
        latitude,
        longitude,
        element.tag("uic_ref"),
        element.tag("name"),
        element.tag("uic_name"),
        element.tag("local_ref"),
        kind,
        element.tag("operator"),
        tuple(sorted(routes.get(number, ()))),
    )


def _routes_by_node(path: Path, tally: Tally) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for relation in _elements(path, "relation"):
        if relation.tags.get("type") != "route":
            continue
        try:
            tokens = route_tokens(relation.tag("ref"), relation.tag("to"))
        except Unreadable as error:
            tally.unreadable[str(error)] += 1
            continue
        for node in relation.members:
            found[node] |= tokens
    return found


def _elements(path: Path, kind: str) -> Iterator[Element]:
    builder = _Builder(kind)
    parser = XMLParser(target=builder)
    with path.open("rb") as file:
        try:
            while chunk := file.read(CHUNK_BYTES):
                parser.feed(chunk)
                yield from builder.drain()
            parser.close()
        except ParseError as error:
            raise SourceInvalid(f"{path.name} is damaged or cut off: {error}; download it again") from error
    yield from builder.drain()


class _Builder:
    """Told by the parser what it reads. No tree is built: only what is asked for is kept, until it is drained."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._open: Element | None = None
        self._remark: list[str] | None = None
        self._finished: list[Element] = []

    def drain(self) -> list[Element]:
        finished, self._finished = self._finished, []
        return finished

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == self._kind:
            self._open = Element(tag, attributes)
        elif tag == "remark":
            self._remark = []
        elif self._open is not None:
            if len(self._open.tags) + len(self._open.members) >= MOST_MEMBERS:
                raise SourceInvalid(f"a {self._kind} has more than {MOST_MEMBERS} tags or members")
            if tag == "tag":
                self._open.tags[attributes.get("k", "")] = attributes.get("v", "")
            elif tag == "member" and attributes.get("type") == "node":
                self._open.members.append(attributes.get("ref", ""))

    def data(self, text: str) -> None:
        if self._remark is not None:
            self._remark.append(text)

    def end(self, tag: str) -> None:
        if self._open is not None and tag == self._open.kind:
            self._finished.append(self._open)
            self._open = None
        elif tag == "remark" and self._remark is not None:
            # The map's server answers 200 before it has found everything. If it gives up later it says so here.
            raise SourceInvalid(f"the map's server gave up: {''.join(self._remark).strip()[:200]}; try again")

    def doctype(self, *_: object) -> None:
        raise SourceInvalid("map data with a document type is refused: entities could grow without end")

    def close(self) -> None:
        return None
