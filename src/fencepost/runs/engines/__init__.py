"""Engines: where a job's body runs when it outgrows the replica. `base.py` has the interface, `finding.py` how an
engine is found by its name."""

from fencepost.runs.engines.base import (
    GONE,
    RUNNING,
    UNSURE,
    WAITING,
    Engine,
    Order,
    Ref,
    Sighting,
    ended,
    ref_of,
)

__all__ = [
    "GONE",
    "RUNNING",
    "UNSURE",
    "WAITING",
    "Engine",
    "Order",
    "Ref",
    "Sighting",
    "ended",
    "ref_of",
]
