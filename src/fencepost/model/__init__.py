"""The words of Fencepost as values: jobs, fires, claims, leases, and the table of states.

Everything here is frozen and passes the store's boundary as it is; a store never hands out a driver's
object. What a user's function receives is `fencepost.runs.fire.Fire`, which wraps a claimed `FireRecord`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.model.backfills import Backfill, Skip
    from fencepost.model.fires import (
        ERROR_LINE_LIMIT,
        MAX_ATTEMPTS_KEPT,
        Attempt,
        FireRecord,
        Reason,
        State,
        crashed,
        error_line,
        fire_key,
        job_of,
        manual_key,
        planned_fire,
        repeating,
    )
    from fencepost.model.job_records import Gap, JobEvent, JobRecord, LastRun, Origin, Rival, Segment
    from fencepost.model.jobs import CATCH_UP_LIMIT, MISFIRES, Job, Overlap, job_from_json, job_to_json
    from fencepost.model.replicas import LEADERSHIP, Era, Lease, ReplicaRecord
    from fencepost.model.values import Json, changed, checked_id

__all__ = [
    "CATCH_UP_LIMIT",
    "ERROR_LINE_LIMIT",
    "LEADERSHIP",
    "MAX_ATTEMPTS_KEPT",
    "MISFIRES",
    "Attempt",
    "Backfill",
    "Era",
    "FireRecord",
    "Gap",
    "Job",
    "JobEvent",
    "JobRecord",
    "Json",
    "LastRun",
    "Lease",
    "Origin",
    "Overlap",
    "Reason",
    "ReplicaRecord",
    "Rival",
    "Segment",
    "Skip",
    "State",
    "changed",
    "checked_id",
    "crashed",
    "error_line",
    "fire_key",
    "job_from_json",
    "job_of",
    "job_to_json",
    "manual_key",
    "planned_fire",
    "repeating",
]


def __getattr__(name: str) -> Any:
    """Found when it is first asked for, as in `fencepost` itself, and for the same reason."""
    if name in __all__:
        for module in ("values", "fires", "jobs", "job_records", "replicas", "backfills"):
            found = vars(importlib.import_module(f"fencepost.model.{module}"))
            if name in found:
                return globals().setdefault(name, found[name])
    raise AttributeError(f"module 'fencepost.model' has no attribute {name!r}")
