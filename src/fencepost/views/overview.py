"""The store at a glance, read at once for commands."""

from __future__ import annotations

from datetime import datetime

from fencepost.insight.board import Board, read_all
from fencepost.insight.cluster import cluster_of
from fencepost.store.base import Store
from fencepost.views.shapes import Shape


async def overview(store: Store, name: str) -> tuple[Shape, datetime]:
    """`status` as JSON, with all jobs; and the store's time."""
    reading = await read_all(store, Board(), await cluster_of(store), most=None)
    return reading.status(name), reading.now
