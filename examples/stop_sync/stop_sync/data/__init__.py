"""Invented sources whose truth is known.

In reading order: `world` (towns, their stops and lines), `situations` (what can be right or wrong at a stop), `area`
(one stop with all it has in each source), `names`, `files` (the sources as their publishers would write them).
"""

from stop_sync.data.area import BEYOND, Truth
from stop_sync.data.files import (
    Sources,
    gtfs_zip,
    osm_xml,
    read_truth,
    register_zip,
    truth_json,
    write_sources,
)
from stop_sync.data.world import World, truth

__all__ = [
    "BEYOND",
    "Sources",
    "Truth",
    "World",
    "gtfs_zip",
    "osm_xml",
    "read_truth",
    "register_zip",
    "truth",
    "truth_json",
    "write_sources",
]
