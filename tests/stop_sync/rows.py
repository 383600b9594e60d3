"""Rows made by hand. Places are metres east and north of somewhere in the middle of the country."""

from __future__ import annotations

from itertools import count

from stop_sync.data.area import moved
from stop_sync.matching import match
from stop_sync.model import GtfsStop, OsmNode, Stop

SOMEWHERE = (46.9, 7.6)

_node_ids = count(1)


def stop(
    sloid="a", east=0.0, north=0.0, number="8570001", designation="", name="Moostal, Post", operator="RBM"
):
    return Stop(sloid, number, designation, name, *moved(*SOMEWHERE, east, north), operator)


def node(
    east=0.0,
    north=0.0,
    uic_ref="",
    name="",
    uic_name="",
    local_ref="",
    kind="platform",
    operator="",
    routes=(),
):
    place = moved(*SOMEWHERE, east, north)
    return OsmNode(next(_node_ids), *place, uic_ref, name, uic_name, local_ref, kind, operator, tuple(routes))


def called_at(sloid, *routes):
    """What the timetable says of a stop."""
    return GtfsStop(sloid, sloid, "", *SOMEWHERE, tuple(routes))


def matched(stops, nodes, timetable=()):
    """By stop and node the stage."""
    return {(found.sloid, found.node_id): found.stage for found in match(stops, timetable, nodes)}
