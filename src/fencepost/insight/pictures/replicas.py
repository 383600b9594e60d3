"""The cluster over time: a lane for each replica with its runs, and who led when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.insight.pictures.window import Window
from fencepost.insight.views.shapes import Shape
from fencepost.insight.visible import Sees, visible
from fencepost.model import LEADERSHIP, FireRecord, JobEvent, State
from fencepost.store.base import FireQuery, Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

MOST_ROWS = 1_000
"""Fires read for one answer."""
MOST_RUNS = 240
"""Runs drawn in one lane: of more, those that end in the same bucket are joined."""
RAN = (State.SUCCEEDED, State.FAILED, State.LOST, State.CANCELLED, State.RUNNING, State.WAITING)


@dataclass(frozen=True, slots=True)
class Stint:
    """One attempt on one replica; or several that lie in one bucket."""

    key: str
    job_id: str
    outcome: str
    token: int
    started_at: datetime
    finished_at: datetime | None
    """None: it runs."""
    count: int


@dataclass(frozen=True, slots=True)
class ReplicaLane:
    replica: str
    shape: Shape | None
    """As in `/replicas`; None: it has gone."""
    stints: tuple[Stint, ...]
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a leader."""

    number: int
    replica: str
    since: datetime
    """By the store's clock."""
    until: datetime | None
    """When it resigned, or the next term began; None: it lasts."""


@dataclass(frozen=True, slots=True)
class ClusterLanes:
    window: Window
    lanes: tuple[ReplicaLane, ...]
    """Those that are present first, by id; then those that have gone and ran something in the window."""
    terms: tuple[Term, ...]
    """Oldest first, as far as they reach into the window."""
    runs_since: datetime
    """From here on all runs are drawn: there may be more before."""


async def cluster_lanes(
    reader: Reader, store: Store, window: Window, sees: Sees | None = None
) -> ClusterLanes:
    reading = visible(await reader.recent(), sees)
    cluster = reading.cluster
    query = FireQuery(states=RAN, since=window.since, until=window.past_until, limit=MOST_ROWS)
    rows = await store.find_fires(query)
    since = window.since if len(rows) < MOST_ROWS else rows[-1].due_at
    fires = [fire for fire in rows if sees is None or sees(fire.job_id)]
    active = [fire for some in cluster.active.values() for fire in some]
    by_replica: dict[str, list[Stint]] = {}
    for replica, stint in _stints({fire.key: fire for fire in (*fires, *active)}.values(), window):
        by_replica.setdefault(replica, []).append(stint)
    shapes = {shape["replica"]: shape for shape in cluster.replicas()}
    order = [*shapes, *sorted(by_replica.keys() - shapes.keys())]
    lanes = tuple(ReplicaLane(id, shapes.get(id), _joined(by_replica.get(id, []), window)) for id in order)
    found = [term for term in await terms(reader, store) if term.until is None or term.until > window.since]
    return ClusterLanes(window, lanes, tuple(found), since)


def _stints(fires: Iterable[FireRecord], window: Window) -> Iterable[tuple[str, Stint]]:
    for fire in fires:
        for attempt in fire.attempts:
            if attempt.finished_at >= window.since:
                times = attempt.started_at, attempt.finished_at
                yield attempt.replica, Stint(fire.key, fire.job_id, attempt.outcome, attempt.token, *times, 1)
        if fire.replica is None or fire.started_at is None:
            continue
        if fire.state is State.RUNNING:
            yield fire.replica, Stint(fire.key, fire.job_id, "running", fire.token, fire.started_at, None, 1)


def _joined(stints: list[Stint], window: Window) -> tuple[Stint, ...]:
    stints.sort(key=lambda stint: stint.started_at)
    if len(stints) <= MOST_RUNS:
        return tuple(stints)
    found: list[Stint] = []
    for stint in stints:
        last = found[-1] if found else None
        if (
            last is not None
            and last.finished_at is not None
            and stint.finished_at is not None
            and stint.finished_at - last.started_at < window.width
        ):
            worst = stint if stint.outcome != "succeeded" else last
            found[-1] = Stint(
                worst.key,
                worst.job_id,
                worst.outcome,
                worst.token,
                last.started_at,
                max(last.finished_at, stint.finished_at),
                last.count + 1,
            )
        else:
            found.append(stint)
    return tuple(found)


async def terms(reader: Reader, store: Store) -> Sequence[Term]:
    """Who led when, oldest first, as long as the ledger is kept. Of a leader from before that was kept, when it
    joined is the earliest that is known."""
    cluster = await reader.cluster()
    found = terms_of(await store.history(LEADERSHIP))
    lease = cluster.roster.leader
    if lease.holder is not None and (not found or found[-1].number < lease.term):
        replicas = cluster.roster.replicas
        joined = next((each.joined_at for each in replicas if each.id == lease.holder), cluster.now)
        if found and found[-1].until is None:
            found[-1] = replace(found[-1], until=joined)
        found.append(Term(lease.term, lease.holder, joined, None))
    return found


def terms_of(events: Sequence[JobEvent]) -> list[Term]:
    found: list[Term] = []
    for event in events:
        if found and found[-1].until is None:
            found[-1] = replace(found[-1], until=event.at)
        if event.kind == "led":
            found.append(Term(event.version, event.by, event.at, None))
    return found
