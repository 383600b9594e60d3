"""The state of a job, in words."""

from __future__ import annotations

from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.words import when
from fencepost.model.jobs import DEFAULT_POOL, Job
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
        return f"orphaned: {no_live_replica(job['engine'], job['pool'])}{since}"
    if state == "conflict":
        other = job["conflicts"][0]
        return f"conflict: {other['replica']} declares it from {place_of(other['origin'])}"
    if state == "by hand":
        return f"made by hand, in place of the code in {place_of(job['origin'])}"
    if state == "running":
        standings = {run["replica_state"] for run in job["active"] if run["state"] == "running"}
        bad = [name for name in ("dead", "gone", "overdue") if name in standings]
        return f"running, but its replica is {bad[0]}" if bad else "running"
    return state


def no_live_replica(engine: str | None, pool: str, task: str = "its task") -> str:
    """Why no replica claims the fires of a job."""
    if engine is not None:
        return f"no live replica has the engine {engine}"
    return f"no live replica {'' if pool == DEFAULT_POOL else f'in pool {pool} '}knows {task}"


def runs_on(job: Job) -> str:
    if job.engine is not None:
        return f"the engine {job.engine}"
    return {"any": "any replica", "leader": "the leader"}.get(job.execute_on, f"pool {job.execute_on}")


def place_of(origin: Shape | None) -> str:
    return origin["told"] if origin else "an unknown place"
