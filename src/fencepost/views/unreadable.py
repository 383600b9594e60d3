"""Rows that cannot be read, as they are shown: by themselves, and as a mark on the job that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.store.unreadable import Unreadable
from fencepost.views.shapes import Shape

UNREADABLE = "unreadable"


def unreadable_shape(row: Unreadable) -> Shape:
    return {
        "kind": row.kind,
        "key": row.key,
        "job_id": row.job_id,
        "why": row.why,
        "sets_job_aside": row.holds,
        "known_elsewhere": row.foreign,
        "remedy": row.remedy,
    }


def marked(jobs: Sequence[Shape], rows: Sequence[Unreadable]) -> list[Shape]:
    """The jobs with a mark on those of which something cannot be read, and with those that cannot be themselves."""
    if not rows:
        return [{**job, UNREADABLE: None} for job in jobs]
    known = {job["id"] for job in jobs}
    hidden = {row.job_id for row in rows if row.job_id and row.kind == "job"} - known
    whole = [*jobs, *(_hidden(id) for id in hidden)]
    return sorted((_marked(job, rows) for job in whole), key=lambda job: str(job["id"]))


def _marked(job: Shape, rows: Sequence[Unreadable]) -> Shape:
    own = [
        row for row in rows if row.job_id == job["id"] or (row.kind == "target" and row.key == job["task"])
    ]
    own.sort(key=lambda row: not row.holds)
    if not own:
        return {**job, UNREADABLE: None}
    others = [state for state in job["states"] if state not in (UNREADABLE, "idle")]
    # What it does counts first as long as it is not set aside.
    states = [UNREADABLE, *others] if own[0].holds else [*(others or ["idle"]), UNREADABLE]
    return {**job, "state": states[0], "states": states, UNREADABLE: unreadable_shape(own[0])}


def _hidden(id: str) -> Shape:
    return {
        "id": id,
        "task": "",
        "schedule": None,
        "state": UNREADABLE,
        "states": [UNREADABLE],
        "paused": None,
        "orphaned": False,
        "orphaned_since": None,
        "active": [],
        "last": None,
        "next_run_at": None,
        "execute_on": "any",
        "source": "code",
        "origin": None,
        "conflicts": [],
    }
