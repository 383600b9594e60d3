"""The jobs of a store with their states, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.insight.board import Board, read_all
from fencepost.insight.cluster import cluster_of
from fencepost.insight.views.shapes import Shape
from fencepost.model import Gap
from fencepost.model.triggers import from_iso
from fencepost.store.base import Store


@dataclass(frozen=True, slots=True)
class LastFire:
    """The outcome of a job's newest fire that has ended."""

    key: str
    state: str
    reason: str | None
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    replica: str | None


@dataclass(frozen=True, slots=True)
class JobView:
    """The state of a job, as `fencepost jobs` shows it."""

    id: str
    task: str
    """The name of the code it runs."""
    schedule: str | None
    """In words; None: it runs when triggered."""
    state: str
    """`idle`, `running`, `waiting`, `queued`, `paused`, `orphaned`, …: the first of `states`."""
    states: tuple[str, ...]
    paused: Gap | None
    """`since`, `until`, `note` (the reason) and `by`."""
    active: tuple[str, ...]
    """Keys of its fires that run, wait to be run again, or wait for their turn."""
    last: LastFire | None
    next_run_at: datetime | None
    execute_on: str
    source: str = "code"
    """`code` declares it, or it was made by hand (`api`)."""
    origin: str | None = None
    """Where the code is, in words; None: not known."""
    tags: tuple[str, ...] = ()
    owner: str = ""
    priority: int = 0


async def find_jobs(store: Store) -> tuple[JobView, ...]:
    """All jobs of the store, by id."""
    reading = await read_all(store, Board(), await cluster_of(store), most=None)
    return tuple(_view(entry.shape) for entry in reading.entries)


def _view(job: Shape) -> JobView:
    pause, last = job["paused"], job["last"]
    return JobView(
        id=job["id"],
        task=job["task"],
        schedule=job["schedule"],
        state=job["state"],
        states=tuple(job["states"]),
        paused=pause and Gap(from_iso(pause["since"]), _time(pause["until"]), pause["reason"], pause["by"]),
        active=tuple(fire["key"] for fire in job["active"]),
        last=last and _last(last),
        next_run_at=_time(job["next_run_at"]),
        execute_on=job["execute_on"],
        source=job["source"],
        origin=job["origin"] and job["origin"]["told"],
        tags=tuple(job["tags"]),
        owner=job["owner"],
        priority=job["priority"],
    )


def _last(last: Shape) -> LastFire:
    times: dict[str, Any] = {name: _time(last[name]) for name in ("due_at", "started_at", "finished_at")}
    return LastFire(
        key=last["key"], state=last["state"], reason=last["reason"], replica=last["replica"], **times
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_iso(text)
