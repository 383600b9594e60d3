"""The store at a glance, read at once for commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fencepost.insight.board import Board, read_all
from fencepost.insight.cluster import cluster_of
from fencepost.insight.views.shapes import Shape
from fencepost.model import State
from fencepost.model.triggers import EARLIEST
from fencepost.store.base import FireQuery, Store


async def overview(store: Store, name: str, choices: Sequence[str] = ()) -> tuple[Shape, datetime]:
    """`status` as JSON, with all jobs, or those that fit all choices (`tag:nightly`); and the store's time."""
    reading = await read_all(store, Board(), await cluster_of(store), most=None)
    if choices:
        fitting = [entry for entry in reading.entries if all(entry.fits(each) for each in choices)]
        reading = replace(reading, entries=fitting)
    return reading.status(name), reading.now


FINAL = tuple(state for state in State if state.final)
RECENT = 1000
"""Finished fires that are read, so that unreadable ones among them are reported."""


async def read_overview(store: Store, name: str) -> tuple[Shape, datetime]:
    """An overview. Also reads rows that are rarely needed, so that unreadable ones among them are shown."""
    await store.history_since(EARLIEST)
    await store.find_fires(FireQuery(states=FINAL, limit=RECENT))
    return await overview(store, name)
