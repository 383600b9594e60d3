"""The state of each job, as it is shown. The board of all jobs is kept up to date at the cost of what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from fencepost.insight.cluster import ACTIVE, Cluster
from fencepost.insight.views.shapes import (
    Shape,
    origin_shape,
    outcome_shape,
    pause_shape,
    run_shape,
    schedule,
    time,
)
from fencepost.insight.views.unreadable import Marks, hidden_shape, marked, unreadable_shape
from fencepost.model import FireRecord, Gap, JobRecord, LastRun, Rival, State
from fencepost.model.job_fields import shown_fields
from fencepost.model.selection import selects
from fencepost.model.triggers import iso
from fencepost.model.triggers.following import parents_of
from fencepost.model.values import json_text
from fencepost.store.base import FireQuery, JobPage, Store
from fencepost.store.unreadable import Unreadable

PAGE = 200
"""Jobs read in one step of the store. In SQLite a writer waits for a step that reads, unless the journal is WAL."""
MOST_JOBS = 10_000
"""Jobs that a status lists, beside those that cannot be read. A page of `/jobs` reaches the others."""
ALL = JobPage(PAGE)


LISTED = ("tags", "owner", "priority")
"""Optional fields of a job that lists show; `jobs show` and the job's page have all."""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """One job on the board."""

    id: str
    record: JobRecord | None
    """None: it cannot be read."""
    active: Sequence[FireRecord]
    tail: FireRecord | None
    """Its last fire that was closed without a start, if that is newer than its last run."""
    orphaned: bool
    pause: Gap | None
    rivals: Sequence[Rival]
    """Live replicas that declare it from another origin."""
    next_run_at: datetime | None
    mark: Unreadable | None
    """What of it cannot be read."""
    shape: Shape
    text: bytes
    """The shape as JSON."""

    @property
    def states(self) -> list[str]:
        states: list[str] = self.shape["states"]
        return states

    def fits(self, choice: str) -> bool:
        """`tag:nightly`, `owner:billing`, or a name with `*`. A job that cannot be read fits none."""
        return self.record is not None and selects(choice, self.record.job)


class Board:
    def __init__(self) -> None:
        self._entries: dict[str, BoardEntry] = {}

    async def entries(self, store: Store, cluster: Cluster, records: Sequence[JobRecord]) -> list[BoardEntry]:
        """In the order of the records. Those that have not changed are as they were."""
        tails = await self._tails(store, records)
        marks = Marks(store.unreadable.rows)
        found = [
            self._entry(record, cluster, tails.get(record.id), marks.of(record.id, record.job.target))
            for record in records
        ]
        if len(self._entries) > 2 * MOST_JOBS:
            self._entries.clear()
        self._entries.update({entry.id: entry for entry in found})
        return found

    async def _tails(self, store: Store, records: Iterable[JobRecord]) -> dict[str, FireRecord]:
        """A tail grows by what the job decides: as long as that stands the row is as it was."""
        found: dict[str, FireRecord] = {}
        wanted = []
        for record in records:
            if record.tail is None or not _is_newer(record.tail, record.last_run):
                continue
            known = self._entries.get(record.id)
            if (
                known is not None
                and known.tail is not None
                and known.record is not None
                and known.record.decided_through == record.decided_through
                and known.tail.key == record.tail
            ):
                found[record.id] = known.tail
            else:
                wanted.append(record.tail)
        if wanted:
            fires = await store.find_fires(FireQuery(keys=tuple(wanted), limit=len(wanted)))
            found |= {fire.job_id: fire for fire in fires}
        return found

    def _entry(
        self, record: JobRecord, cluster: Cluster, tail: FireRecord | None, mark: Unreadable | None
    ) -> BoardEntry:
        active = cluster.active.get(record.id, ())
        orphaned = record.job.lane not in cluster.known and cluster.anybody
        pause = record.paused_at(cluster.now)
        rivals = [each for each in record.rivals if cluster.standing.get(each.replica) == "alive"]
        known = self._entries.get(record.id)
        if (
            known is not None
            and known.record is record
            and known.tail is tail
            and (known.orphaned, known.pause, known.rivals, known.mark) == (orphaned, pause, rivals, mark)
            and known.active == active
            and (known.next_run_at is None or known.next_run_at > cluster.now)
            and not record.pauses
        ):
            return known
        return entry_of(record, cluster, active, tail, orphaned, pause, rivals, mark)


def entry_of(
    record: JobRecord,
    cluster: Cluster,
    active: Sequence[FireRecord],
    tail: FireRecord | None,
    orphaned: bool,
    pause: Gap | None,
    rivals: Sequence[Rival],
    mark: Unreadable | None,
) -> BoardEntry:
    next_run_at = record.next_run_after(cluster.now)
    shape = {
        **_standing(record, cluster, active, orphaned, pause),
        "last": outcome_shape(last) if (last := tail or record.last_run) else None,
        "last_run": run_shape(record.last_run),
        "last_success_at": time(record.last_success_at),
        "failures_in_a_row": record.failures_in_a_row,
        "next_run_at": time(next_run_at),
        "execute_on": record.job.execute_on,
        "pool": record.job.pool,
        "engine": record.job.engine,
        **{name: value for name, value in shown_fields(record.job).items() if name in LISTED},
        "source": record.source,
        "origin": origin_shape(record.origin),
        "conflicts": [{"replica": each.replica, "origin": origin_shape(each.origin)} for each in rivals],
    }
    shape["states"] += _marks(record, bool(rivals))
    shape = marked(shape, mark)
    text = json_text(shape).encode()
    return BoardEntry(
        record.id, record, active, tail, orphaned, pause, rivals, next_run_at, mark, shape, text
    )


def hidden(store: Store, known: Iterable[BoardEntry], page: JobPage | None = None) -> list[BoardEntry]:
    """The jobs of this page whose records the store could not read, beside those that it could."""
    ids = {entry.id for entry in known}
    rows = [row for row in store.unreadable.rows if row.kind == "job" and row.key not in ids]
    return [_hidden(row) for row in rows if page is None or page.has(row.key)]


def _hidden(row: Unreadable) -> BoardEntry:
    shape = hidden_shape(row.key, row)
    return BoardEntry(row.key, None, (), None, False, None, (), None, row, shape, json_text(shape).encode())


def in_order(*entries: Iterable[BoardEntry]) -> list[BoardEntry]:
    return sorted(chain(*entries), key=lambda entry: entry.id)


@dataclass(frozen=True)
class Reading:
    """Everything at one moment."""

    cluster: Cluster
    entries: Sequence[BoardEntry]
    more: bool
    """There are more jobs than are listed."""
    unreadable: Sequence[Unreadable] = ()
    """What this process could not read."""

    @property
    def now(self) -> datetime:
        return self.cluster.now

    def jobs_by_state(self) -> Counter[str]:
        return Counter(entry.shape["state"] for entry in self.entries)

    def head(self, name: str) -> Shape:
        """The status without its jobs."""
        leader, replicas = self.cluster.leader(), self.cluster.replicas()
        return {
            "store": name,
            "now": iso(self.now),
            "leader": leader,
            "replicas": replicas,
            "more_jobs": self.more,
            "unreadable": [unreadable_shape(row) for row in self.unreadable],
        }

    def status(self, name: str) -> Shape:
        return {**self.head(name), "jobs": [entry.shape for entry in self.entries]}


async def read_all(store: Store, board: Board, cluster: Cluster, most: int | None = MOST_JOBS) -> Reading:
    entries: list[BoardEntry] = []
    async for records in pages(store):
        entries += await board.entries(store, cluster, records)
        if most is not None and len(entries) > most:
            listed = in_order(entries[:most], hidden(store, entries))
            return Reading(cluster, listed, True, store.unreadable.rows)
    whole = in_order(entries, hidden(store, entries))
    return Reading(cluster, whole, False, store.unreadable.rows)


async def pages(store: Store, first: JobPage = ALL) -> AsyncIterator[Sequence[JobRecord]]:
    """All jobs by id, or those from `first` on, a page in each step: no reader holds the store for long."""
    page = replace(first, limit=PAGE)
    while records := await store.jobs(page=page):
        yield records
        if len(records) < PAGE:
            return
        page = replace(page, after=records[-1].id)


def _is_newer(tail: str, last: LastRun | None) -> bool:
    """Keys of scheduled fires of one job are in the order of their due times."""
    return last is None or "@" not in last.key or tail > last.key


# --- one job ----------------------------------------------------------------------------------------------


def _standing(
    record: JobRecord, cluster: Cluster, active: Sequence[FireRecord], orphaned: bool, pause: Gap | None
) -> Shape:
    states = {fire.state for fire in active}
    flags = [
        *(["paused"] if pause else []),
        *(["orphaned"] if orphaned else []),
        *(state.value for state in ACTIVE if state in states),
    ]
    return {
        "id": record.id,
        "task": record.job.target,
        "schedule": schedule(record),
        "after": list(parents_of(record.job.trigger)),
        "state": flags[0] if flags else "idle",
        "states": flags or ["idle"],
        "paused": pause_shape(pause),
        "orphaned": orphaned,
        "orphaned_since": time(record.unknown_since) if orphaned else None,
        "active": [_active(fire, cluster.standing) for fire in active],
    }


def _marks(record: JobRecord, disputed: bool) -> list[str]:
    """The facts about its definition."""
    return [
        *(["conflict"] if disputed else []),
        *(["by hand"] if record.source == "api" and record.origin is not None else []),
    ]


def _active(fire: FireRecord, standing: Mapping[str, str]) -> Shape:
    return {
        "key": fire.key,
        "state": fire.state.value,
        "replica": fire.replica,
        "replica_state": _owner_state(fire, standing),
        "started_at": time(fire.started_at),
        "attempt": fire.attempt,
        "progress": None if fire.progress is None else dict(fire.progress),
    }


def _owner_state(fire: FireRecord, standing: Mapping[str, str]) -> str | None:
    """Of the replica that runs it. What an engine runs outlives every replica."""
    if fire.state is not State.RUNNING:
        return None
    return "engine" if fire.remote is not None else standing.get(fire.replica or "", "gone")
