"""The preflight check of a store: what can be found out before it is opened (`store/preflight.py`)."""

from __future__ import annotations

from fencepost.insight.doctor.subject import Subject
from fencepost.insight.existence import must_exist
from fencepost.store.preflight import START, Preflight, not_shared

__all__ = ["START", "preflight"]


async def preflight(scheduler: Subject) -> Preflight:
    """Raises the error that opening would raise if the store cannot be reached or used."""
    if not scheduler.store.shared:
        return not_shared()
    must_exist(scheduler.store, scheduler.store_name)
    return await scheduler.store.preflight(scheduler.store_name)
