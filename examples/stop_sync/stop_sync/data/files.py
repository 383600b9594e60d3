"""The sources as their publishers would write them. The same world gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from fencepost.pipeline import written
from stop_sync.data.area import Area, RegisterRow, TruePair, Truth
from stop_sync.data.names import OPERATORS
from stop_sync.data.world import Town, World, truth
from stop_sync.model import OsmNode, Stop
from stop_sync.reading.register import PUBLISHED

TRIPS_A_DAY = 3
WHEN = (2026, 1, 1, 0, 0, 0)
"""What archives say of their files' age: nothing that changes."""


class Sources(NamedTuple):
    register: Path
    gtfs: Path
    osm: Path


def write_sources(folder: Path, world: World) -> Sources:
    """As if they had been downloaded; and beside them the truth, for those who judge the result."""
    sources = Sources(folder / "register.zip", folder / "gtfs.zip", folder / "osm.xml")
    for path, content in zip(sources, (register_zip(world), gtfs_zip(world), osm_xml(world)), strict=True):
        with written(path) as file:
            file.write(content)
    with written(folder / "truth.json") as file:
        file.write(truth_json(truth(world, world)))
    return sources


def truth_json(known: Truth) -> bytes:
    return json.dumps(asdict(known), indent=1).encode()


def read_truth(path: Path) -> Truth:
    known = json.loads(path.read_bytes())
    return Truth(
        [TruePair(*pair) for pair in known["pairs"]], known["unmatched_stops"], known["unmatched_nodes"]
    )


def register_zip(world: World) -> bytes:
    sboids = {
        abbreviation: f"ch:1:sboid:{100_001 + number}" for number, (abbreviation, _) in enumerate(OPERATORS)
    }
    full_names = dict(OPERATORS)
    rows = (
        (
            row.stop.sloid,
            row.stop.number,
            row.stop.designation,
            row.stop.name,
            row.stop.latitude,
            row.stop.longitude,
            row.valid_to,
            row.country,
            row.kind,
            sboids[row.stop.operator],
            row.stop.operator,
            full_names[row.stop.operator],
        )
        for area in world.areas
        for row in (*map(RegisterRow, area.stops), *area.ignored)
    )
    return _zip({"traffic-points.csv": "\ufeff" + _csv(PUBLISHED, rows, delimiter=";")})


def gtfs_zip(world: World) -> bytes:
    lines = list(enumerate(world.towns))
    trips = [
        (f"trip-{route}-{direction}-{turn}", f"route-{route}", town.towards(direction), direction)
        for route, town in lines
        for direction in (0, 1)
        for turn in range(TRIPS_A_DAY)
    ]
    return _zip(
        {
            "stops.txt": _csv(("stop_id", "stop_name", "stop_lat", "stop_lon"), _gtfs_stops(world.areas)),
            "routes.txt": _csv(
                ("route_id", "route_short_name"), ((f"route-{route}", town.line) for route, town in lines)
            ),
            "trips.txt": _csv(("trip_id", "route_id", "trip_headsign", "direction_id"), trips),
            "stop_times.txt": _csv(
                ("trip_id", "stop_id", "stop_sequence"),
                (call for route, town in lines for call in _calls(f"trip-{route}", town)),
            ),
        }
    )


OLDER = {
    "platform": ("highway", "bus_stop"),
    "stop_position": ("railway", "tram_stop"),
    "station": ("railway", "station"),
}


def osm_xml(world: World) -> bytes:
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n<osm version="0.6" generator="stop_sync">\n']
    parts += (_node(node) for area in world.areas for node in area.nodes)
    parts += (
        _relation(9_000_001 + 2 * number + direction, town, direction)
        for number, town in enumerate(world.towns)
        for direction in (0, 1)
    )
    return "".join([*parts, "</osm>\n"]).encode()


def _gtfs_stops(areas: Iterable[Area]) -> Iterator[Sequence[object]]:
    """Every stop has a parent, which is no platform of the register."""
    for area in areas:
        yield f"Parent{area.number}", area.name, area.latitude, area.longitude
        for stop in area.stops:
            yield _gtfs_id(stop), area.name, stop.latitude, stop.longitude


def _gtfs_id(stop: Stop) -> str:
    """Some have the older form, as long as it names only one."""
    old = stop.sloid.endswith(":1") and stop.designation
    return f"{stop.number}:0:{stop.designation}" if old else stop.sloid


def _calls(trip: str, town: Town) -> Iterator[Sequence[object]]:
    for direction in (0, 1):
        platforms = [area.platform(direction) for area in town.areas[:: 1 if direction == 0 else -1]]
        for turn in range(TRIPS_A_DAY):
            for sequence, stop in enumerate(platforms, start=1):
                if stop is not None:
                    yield f"{trip}-{direction}-{turn}", _gtfs_id(stop), sequence


def _node(node: OsmNode) -> str:
    """Each third one as it was mapped before `public_transport` came into use."""
    older = OLDER.get(node.public_transport) if node.id % 3 == 0 else None
    key, value = older or ("public_transport", node.public_transport)
    tags = {
        key: value,
        "uic_ref": node.uic_ref,
        "name": node.name,
        "uic_name": node.uic_name,
        "local_ref": node.local_ref,
        "operator": node.operator,
    }
    return f' <node id="{node.id}" lat="{node.latitude}" lon="{node.longitude}">\n{_tags(tags)} </node>\n'


def _relation(number: int, town: Town, direction: int) -> str:
    members = "".join(
        f'  <member type="node" ref="{node}" role="platform"/>\n'
        for area in town.areas
        for node in area.calls[direction]
    )
    tags = _tags({"type": "route", "route": "bus", "ref": town.line, "to": town.towards(direction)})
    return f' <relation id="{number}">\n{members}{tags} </relation>\n'


def _tags(tags: dict[str, str]) -> str:
    return "".join(f'  <tag k="{key}" v={quoteattr(value)}/>\n' for key, value in tags.items() if value)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _zip(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(ZipInfo(name, WHEN), text, ZIP_DEFLATED)
    return packed.getvalue()
