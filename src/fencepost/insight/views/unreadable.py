"""Rows that cannot be read, as they are shown: by themselves, and as a mark on the job that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.insight.views.shapes import Shape
from fencepost.store.unreadable import Unreadable

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


class Marks:
    """The row to be shown with each job: the one that sets it aside, if there is one."""

    def __init__(self, rows: Sequence[Unreadable]) -> None:
        self._by_job: dict[str, Unreadable] = {}
        self._by_task: dict[str, Unreadable] = {}
        for row in sorted(rows, key=lambda row: not row.holds):
            if row.job_id:
                self._by_job.setdefault(row.job_id, row)
            elif row.kind == "target":
                self._by_task.setdefault(row.key, row)

    def of(self, job_id: str, task: str) -> Unreadable | None:
        return self._by_job.get(job_id) or self._by_task.get(task)


def marked(job: Shape, row: Unreadable | None) -> Shape:
    if row is None:
        return {**job, UNREADABLE: None}
    others = [state for state in job["states"] if state not in (UNREADABLE, "idle")]
    # What it does counts first as long as it is not set aside.
    states = [UNREADABLE, *others] if row.holds else [*(others or ["idle"]), UNREADABLE]
    return {**job, "state": states[0], "states": states, UNREADABLE: unreadable_shape(row)}


def hidden_shape(id: str, row: Unreadable) -> Shape:
    """Of a job whose record cannot be read."""
    return {
        "id": id,
        "task": "",
        "schedule": None,
        "after": [],
        "state": UNREADABLE,
        "states": [UNREADABLE],
        "paused": None,
        "orphaned": False,
        "orphaned_since": None,
        "active": [],
        "last": None,
        "last_run": None,
        "last_success_at": None,
        "failures_in_a_row": 0,
        "next_run_at": None,
        "execute_on": "any",
        "pool": "default",
        "engine": None,
        "priority": 0,
        "tags": [],
        "owner": "",
        "source": "code",
        "origin": None,
        "conflicts": [],
        UNREADABLE: unreadable_shape(row),
    }
