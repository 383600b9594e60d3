"""What is measured when a metric is exported: of this process, and of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost import __version__
from fencepost.insight.board import BoardEntry, Reading
from fencepost.insight.doctor.jobs import undecided
from fencepost.insight.metrics import definitions as metrics
from fencepost.insight.metrics.definitions import Metric
from fencepost.insight.notices import channel_names, channel_shape
from fencepost.insight.views.shapes import Shape
from fencepost.model.triggers import from_iso
from fencepost.replica.replica import Replica
from fencepost.store.base import Store
from fencepost.store.outbox import OutboxQuery

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

MOST_PIPELINES = 50

Sample = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels, and its own."""


@dataclass(frozen=True)
class Stored:
    """What the store says at one moment."""

    reading: Reading
    overdue: Mapping[str, datetime]
    """By job: since when a fire has been due that no replica has decided."""
    outbox: Mapping[str, ChannelBacklog]


@dataclass(frozen=True)
class ChannelBacklog:
    """What waits for one channel of notifications."""

    waiting: int
    set_aside: int
    stuck_since: datetime | None
    """When the oldest notice arose that cannot be delivered."""


async def read(reader: Reader, store: Store) -> Stored:
    """To be shared, on the reading thread."""
    reading = await reader.recent()
    overdue: dict[str, datetime] = {}
    for fire in await undecided(store, reading.now):
        overdue[fire.job_id] = min(fire.due_at, overdue.get(fire.job_id, fire.due_at))
    for entry in reading.entries:
        if entry.record is not None and entry.record.behind_at(reading.now):
            overdue.setdefault(entry.id, entry.record.segments[0].next_at or reading.now)
    return Stored(reading, overdue, await _outbox(store, reading))


async def _outbox(store: Store, reading: Reading) -> dict[str, ChannelBacklog]:
    found = await store.notices.outbox(OutboxQuery(limit=1))
    leader = (reading.cluster.leader() or {}).get("replica")
    channels: dict[str, ChannelBacklog] = {}
    for name in channel_names(found):
        shape = channel_shape(found, name)
        since = None
        if shape["waiting"]:
            [oldest, *_] = (await store.notices.outbox(OutboxQuery(name, limit=1))).notices or (None,)
            is_stuck = shape["error"] or shape["delivered_by"] != leader
            since = oldest.notice.at if oldest is not None and is_stuck else None
        channels[name] = ChannelBacklog(shape["waiting"], shape["set_aside"], since)
    return channels


def of_process(replica: Replica | None, is_ready: bool, store_answers: bool) -> Iterator[Sample]:
    yield metrics.BUILD, (__version__,), 1
    yield metrics.READY, (), is_ready
    yield metrics.STORE_UP, (), store_answers
    yield metrics.IN_PROGRESS, (), len(replica.runs) if replica else 0
    yield metrics.LEADER, (), replica is not None and replica.term() is not None
    for loop in replica.loops if replica is not None else ():
        yield metrics.DEGRADED, (loop.name,), loop.name in replica.degraded_loops  # type: ignore[union-attr]


def of_store(stored: Stored, now: datetime, most_jobs: int) -> Iterator[Sample]:
    """`now`: by the clock of this machine. `most_jobs`: as many have series of their own."""
    reading = stored.reading
    yield metrics.SKEW, (), (now - reading.now).total_seconds()
    for state, number in reading.jobs_by_state().items():
        yield metrics.JOBS, (state,), number
    for state, number in Counter(reading.cluster.standing.values()).items():
        yield metrics.REPLICAS, (state,), number
    for id in sorted({row.job_id for row in reading.unreadable if row.job_id})[:most_jobs]:
        yield metrics.UNREADABLE, (id,), 1
    for name, channel in stored.outbox.items():
        yield metrics.OUTBOX_WAITING, (name,), channel.waiting
        yield metrics.OUTBOX_ASIDE, (name,), channel.set_aside
        stuck = channel.stuck_since
        yield metrics.OUTBOX_OLDEST, (name,), (reading.now - stuck).total_seconds() if stuck else 0
    for entry in reading.entries[:most_jobs]:
        yield from _of_job(entry, stored.overdue.get(entry.id))


def _of_job(entry: BoardEntry, overdue: datetime | None) -> Iterator[Sample]:
    held = entry.orphaned or entry.pause is not None
    next_run = entry.next_run_at if overdue is None or held else overdue
    if next_run is not None:
        yield metrics.NEXT_RUN, (entry.id,), next_run.timestamp()
    if entry.record is not None:
        yield metrics.FAILURES, (entry.id,), entry.record.failures_in_a_row
        if entry.record.last_success_at is not None:
            yield metrics.LAST_SUCCESS, (entry.id,), entry.record.last_success_at.timestamp()


def of_pipeline(id: str, status: Shape) -> Iterator[Sample]:
    yield metrics.BLOCKING, (id,), bool(status["blocking_maintenance"])
    if status["data_updated_at"]:
        yield metrics.DATA_UPDATED, (id,), from_iso(status["data_updated_at"]).timestamp()
