"""The timetable: of its many tables the four that say which lines call where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from stop_sync.model import GtfsStop, Stop, plain, route_tokens
from stop_sync.reading.checks import Tally, Unreadable, coordinates, csv_rows, required, text

MOST_ROUTES = 500
"""Of one stop."""


def read_gtfs(archive: Path, register: Iterable[Stop], tally: Tally) -> Iterator[GtfsStop]:
    sloid_of = _identities(register)
    routes = _routes_by_stop(archive, tally)
    for row in csv_rows(archive, "stops.txt", ("stop_id", "stop_name", "stop_lat", "stop_lon")):
        try:
            stop_id = required(row["stop_id"], "stop_id")
            latitude, longitude = coordinates(row["stop_lat"], row["stop_lon"])
            yield GtfsStop(
                stop_id,
                sloid_of.get(plain(stop_id)),
                text(row["stop_name"]),
                latitude,
                longitude,
                tuple(sorted(routes.get(stop_id, ()))),
            )
        except Unreadable as error:
            tally.unreadable[str(error)] += 1


def _identities(register: Iterable[Stop]) -> dict[str, str]:
    """A timetable names a platform by its sloid, or as older ones do by `number:0:designation`."""
    sloid_of: dict[str, str] = {}
    for stop in register:
        sloid_of[plain(stop.sloid)] = stop.sloid
        if stop.designation:
            sloid_of.setdefault(plain(f"{stop.number}:0:{stop.designation}"), stop.sloid)
    return sloid_of


def _routes_by_stop(archive: Path, tally: Tally) -> dict[str, set[str]]:
    """`stop_times` is by far the largest table. Of its rows only what is new is kept."""
    lines = {
        row["route_id"]: row["route_short_name"]
        for row in csv_rows(archive, "routes.txt", ("route_id", "route_short_name"))
    }
    trips: dict[str, tuple[str, str]] = {}
    for row in csv_rows(archive, "trips.txt", ("trip_id", "route_id", "trip_headsign")):
        try:
            trips[row["trip_id"]] = text(lines.get(row["route_id"], "")), text(row["trip_headsign"])
        except Unreadable as error:
            tally.unreadable[str(error)] += 1
    seen: set[tuple[str, tuple[str, str]]] = set()
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in csv_rows(archive, "stop_times.txt", ("trip_id", "stop_id")):
        stop_id, trip = row["stop_id"], trips.get(row["trip_id"])
        if trip is None or (stop_id, trip) in seen or len(found[stop_id]) >= MOST_ROUTES:
            continue
        seen.add((stop_id, trip))
        found[stop_id] |= route_tokens(*trip)
    return found
