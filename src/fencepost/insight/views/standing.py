"""The state of a job, in words."""

from __future__ import annotations

from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.words import when
from fencepost.model.triggers import from_iso


def job_state(job: Shape) -> str:
    """In words: `paused until … by …: migrating`, `running, but its replica is dead`."""
    return ", ".join(map(described, job["states"], [job] * len(job["states"])))


def described(state: str, job: Shape) -> str:
    if state == "paused":
        pause = job["paused"]
        until = f" until {when(from_iso(pause['until']))}" if pause["until"] else ""
        by = f" by {pause['by']}" if pause["by"] else ""
        reason = f": {pause['reason']}" if pause["reason"] else ""
        return f"paused{until}{by}{reason}"
    if state == "orphaned":
        since = f" since {when(from_iso(job['orphaned_since']))}" if job["orphaned_since"] else ""
        return f"orphaned: no live replica knows its task{since}"
    if state == "conflict":
        other = job["conflicts"][0]
        return f"conflict: {other['replica']} declares it from {told(other['origin'])}"
    if state == "by hand":
        return f"made by hand, in place of the code in {told(job['origin'])}"
    if state == "running":
        standings = {run["replica_state"] for run in job["active"] if run["state"] == "running"}
        bad = [name for name in ("dead", "gone", "overdue") if name in standings]
        return f"running, but its replica is {bad[0]}" if bad else "running"
    return state


def told(origin: Shape | None) -> str:
    return origin["told"] if origin else "an unknown place"
