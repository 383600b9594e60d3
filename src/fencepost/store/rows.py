"""The rows of a store, as the rules see them: jobs, targets, fires, replicas and the lease.

The rules (`rules/`) are functions over `Rows`, so that the same code decides in memory (`state.py`) and in a database
(`unit_of_work.py`). Everything here is part of the one atomic step that an operation is.

A row that cannot be read (`unreadable.py`) is passed over: it is not there, except where a method says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencepost.model import FireRecord, Gap, JobEvent, JobRecord, Lease, ReplicaRecord
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.unreadable import Unreadable

MOST_EVENTS = 1_000
"""Job events that are found at once."""

ORPHANED_AFTER = timedelta(hours=1)
"""A job whose task no live replica has known for so long is kept and shown, but not planned."""


def jobs_walked(limit: int) -> int:
    """Jobs that are looked at, at the most, to find what is ahead of one replica: there may be many that it cannot
    run."""
    return 4 * limit + 20


@dataclass(frozen=True)
class TargetRecord:
    """A task that jobs refer to, and whether a replica knows it."""

    name: str
    unknown_since: datetime | None = None
    """Since when no live replica knows it."""
    orphaned: bool = False
    """So long that its jobs are no longer planned."""
    gaps: tuple[Gap, ...] = ()
    """Past stretches in which it was orphaned."""


@dataclass(frozen=True, slots=True)
class Fast:
    """A job whose only due fire is covered by the fast path (`rules/fast_path.py`)."""

    record: JobRecord
    fire: FireRecord
    next_at: datetime | None
    """When the job's next fire is due."""


class Jobs(ABC):
    """Jobs and their events. With each job go two moments: when its fires must next be decided (`decide_at`), and when
    its calendar must be expanded (`plan_at`)."""

    @abstractmethod
    def get(self, id: str) -> JobRecord | None: ...

    @abstractmethod
    def ids(self, page: JobPage) -> list[str]:
        """Removed ones as well."""

    @abstractmethod
    def every(self, target: str | None = None) -> Iterable[JobRecord]: ...

    @abstractmethod
    def busy(self) -> Iterable[JobRecord]:
        """At least those with a fire that runs, or waits to be run again."""

    @abstractmethod
    def put(self, record: JobRecord, decide_at: datetime | None, plan_at: datetime | None) -> None: ...

    @abstractmethod
    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        """Jobs to decide whose task this replica knows, those of the highest priority first, of these the
        longest due; `leads`: leader-only ones as well."""

    @abstractmethod
    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        """When the next of them is to be decided. Without a replica: of any job."""

    @abstractmethod
    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        """What is to be decided next, one per job, in order. Empty: nothing, or it would cost too much to say."""

    @abstractmethod
    def due_plans(self, until: datetime, limit: int) -> list[str]: ...

    @abstractmethod
    def soonest_plan(self) -> datetime | None: ...

    @abstractmethod
    def note(self, event: JobEvent) -> None: ...

    @abstractmethod
    def events(self, job_id: str) -> Sequence[JobEvent]: ...

    @abstractmethod
    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        """Of all jobs: those from then on, and perhaps earlier ones. Of more than `MOST_EVENTS` the latest."""

    @abstractmethod
    def aside(self, job_id: str) -> Unreadable | None:
        """Why this job is set aside, as far as its rows have been asked for."""

    @abstractmethod
    def unread(self) -> Sequence[str]:
        """All jobs whose row cannot be read."""

    @abstractmethod
    def salvage(self, id: str) -> Mapping[str, Any]:
        """Those of `target`, `token` and `decided_through` that can be read of a job that cannot."""

    @abstractmethod
    def decide_soon(self, job_id: str, when: datetime) -> None:
        """The fires of a job whose row cannot be read must be decided, from then on, by the first replica that can
        read it. Nothing else of the row is changed."""


class Targets(ABC):
    """There is one for every task a job refers to."""

    @abstractmethod
    def get(self, name: str) -> TargetRecord: ...

    @abstractmethod
    def put(self, target: TargetRecord) -> None: ...

    @abstractmethod
    def unknown(self) -> Sequence[TargetRecord]:
        """Those that no replica knows."""

    @abstractmethod
    def knowing(self, target: str) -> frozenset[str]:
        """The replicas that know this task."""


class Fires(ABC):
    """Lists are in the order of due time, then key."""

    @abstractmethod
    def get(self, key: str) -> FireRecord | None: ...

    @abstractmethod
    def put(self, fire: FireRecord) -> None: ...

    @abstractmethod
    def drop(self, fire: FireRecord) -> None: ...

    @abstractmethod
    def due(self, job_id: str, now: datetime) -> list[FireRecord]:
        """Pending and queued ones that have fallen due."""

    @abstractmethod
    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        """When the next one after that falls due."""

    @abstractmethod
    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        """Drop planned fires that have not fallen due."""

    @abstractmethod
    def active(self, job_id: str) -> list[FireRecord]:
        """Running and waiting."""

    @abstractmethod
    def running_of(self, replica: str) -> list[FireRecord]: ...

    @abstractmethod
    def find(self, query: FireQuery) -> list[FireRecord]:
        """Newest first."""

    @abstractmethod
    def is_broken(self, key: str) -> bool:
        """Whether there is a row of this fire that cannot be read; after it was asked for."""

    @abstractmethod
    def broken_live(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        """In place of the live fires of a job that cannot be read: what is known of each, as a pending one. `now`:
        its due time, if that is not known."""

    @abstractmethod
    def holds_broken(self, replica: str) -> bool:
        """Whether a row that cannot be read is a run of this replica; after its runs were asked for."""


class Replicas(ABC):
    @abstractmethod
    def get(self, id: str) -> ReplicaRecord | None: ...

    @abstractmethod
    def every(self) -> list[ReplicaRecord]: ...

    @abstractmethod
    def put(self, replica: ReplicaRecord) -> None: ...

    @abstractmethod
    def drop(self, id: str) -> None: ...

    @abstractmethod
    def broken(self) -> Sequence[ReplicaRecord]:
        """In place of presences that cannot be read: what is known of each. Without what they know, if that cannot be
        read either."""


class Entries(ABC):
    """Small texts by key, in the order of their keys: the rules of notifications, the outbox, and
    what is owed to jobs that cannot be read."""

    @abstractmethod
    def get(self, key: str) -> str | None: ...

    @abstractmethod
    def put(self, key: str, text: str) -> None: ...

    @abstractmethod
    def drop(self, key: str) -> None: ...

    @abstractmethod
    def page(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        """Those whose key begins so and is greater than `after`, with their texts."""

    @abstractmethod
    def count(self, prefix: str) -> int: ...


class Rows(ABC):
    jobs: Jobs
    targets: Targets
    fires: Fires
    replicas: Replicas
    entries: Entries

    notify = False
    """Set when a step made work due earlier than other replicas expect; they must be notified."""
    remembers_empty_claims = True
    """Whether a claim that found nothing is written down. A message that can be delayed, and so arrive twice,
    makes that necessary; where there is no network it would only cost a commit."""
    may_lose_writes = True
    """Whether the store may forget what it has acknowledged."""
    orphaned_after = ORPHANED_AFTER

    def widen(self) -> None:
        """The step is about to read or change other jobs than those it was begun for."""
        return

    @property
    @abstractmethod
    def leader(self) -> Lease: ...

    @leader.setter
    @abstractmethod
    def leader(self, lease: Lease) -> None: ...

    @abstractmethod
    def prune_before(self, before: datetime) -> int:
        """Drop final fires, and job events no longer needed to say what was due after `before`; how many fires."""

    def preload(
        self,
        now: datetime,
        jobs: Sequence[str] = (),
        fires: Sequence[str] = (),
        targets: Sequence[str] = (),
        records: Sequence[str] = (),
        events: Sequence[str] = (),
    ) -> None:
        """The jobs with these ids, those of the fires with these keys, and their targets, are about to be asked for;
        `targets`, which may be new; the `events` of these jobs. `records`: of these jobs nothing else, no fires and no
        target."""
        return

    # The fast path. A store that has one claims and ends the fires it covers in bulk; the outcome is the same as if
    # each were decided on the general path.

    def fast_due(self, now: datetime, job_ids: Sequence[str]) -> Mapping[str, Fast]:
        """Those of the jobs that it covers."""
        return {}

    def put_fast_claims(self, claims: Sequence[Fast]) -> None:
        """With the job and the fire as they are when claimed."""
        raise NotImplementedError

    def fast_running(self, now: datetime, keys: Sequence[str]) -> Mapping[str, FireRecord]:
        """Those of the fires that run, and whose end changes nothing for their job."""
        return {}

    def put_fast_ends(self, fires: Sequence[FireRecord]) -> None:
        raise NotImplementedError
