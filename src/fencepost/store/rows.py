"""Where the rows live: what the operations need of a place to keep jobs, fires, replicas and the lease.

The operations (`ledger`, `calendars`, `operations`) are written against this alone, so that the same code
decides in memory and in a database. Each method acts inside the one atomic step its operation is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, Gap, JobEvent, JobRecord, Lease, ReplicaRecord
from fencepost.store.base import FireQuery, JobPage
from fencepost.store.unreadable import Unreadable

MOST_EVENTS = 1_000
"""Job events that are found at once."""


@dataclass(frozen=True)
class TargetRecord:
    """A task that jobs refer to, and whether anybody knows it."""

    name: str
    unknown_since: datetime | None = None
    """Since when no live replica knows it."""
    orphaned: bool = False
    """So long that its jobs are no longer planned."""
    gaps: tuple[Gap, ...] = ()
    """Past stretches in which it was orphaned."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A job with one fire due, in time, scheduled, and nothing else that could matter: it is simply claimed."""

    record: JobRecord
    fire: FireRecord
    next_at: datetime | None
    """When the job's next fire is due."""


class Rows(ABC):
    hinted = False
    """Set by a step after which somebody may have something to do earlier than they know."""

    def preload(
        self,
        now: datetime,
        jobs: Sequence[str] = (),
        fires: Sequence[str] = (),
        targets: Sequence[str] = (),
        records: Sequence[str] = (),
    ) -> None:
        """The jobs with these ids, those of the fires with these keys, and their targets, are about to be asked for;
        and `targets`, which may be new. `records`: of these jobs nothing else, no fires and no target."""
        return

    # The plain case, which nearly all fires are. A store that can tell it apart cheaply claims and ends such fires in
    # bulk; the outcome is the same as if each were decided with care.

    def plain_due(self, now: datetime, job_ids: Sequence[str]) -> Mapping[str, Plain]:
        """Those of the jobs that are plain."""
        return {}

    def put_plain_claims(self, claims: Sequence[Plain]) -> None:
        """With the job and the fire as they are when claimed."""
        raise NotImplementedError

    def plain_running(self, now: datetime, keys: Sequence[str]) -> Mapping[str, FireRecord]:
        """Those of the fires that run, and whose end changes nothing for their job."""
        return {}

    def put_plain_ends(self, fires: Sequence[FireRecord]) -> None:
        raise NotImplementedError

    # Rows that cannot be read (`unreadable.py`). The methods below pass over them: for them such a row is not there.

    @abstractmethod
    def aside(self, job_id: str) -> Unreadable | None:
        """Why this job is set aside, as far as its rows have been asked for."""

    @abstractmethod
    def broken_fire(self, key: str) -> bool:
        """Whether there is a row of this fire that cannot be read; after it was asked for."""

    @abstractmethod
    def broken_live(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        """In place of the live fires of a job that cannot be read: what is known of each, as a pending one. `now`:
        its due time, if that is not known."""

    @abstractmethod
    def salvage_job(self, id: str) -> Mapping[str, Any]:
        """Those of `target`, `token` and `decided_through` that can be read of a job that cannot."""

    @abstractmethod
    def broken_replicas(self) -> Sequence[ReplicaRecord]:
        """In place of presences that cannot be read: what is known of each. Without what they know, if that cannot be
        read either."""

    @abstractmethod
    def holds_broken(self, replica: str) -> bool:
        """Whether a row that cannot be read is a run of this replica; after its runs were asked for."""

    @abstractmethod
    def unread_jobs(self) -> Sequence[str]:
        """All jobs whose row cannot be read."""

    @abstractmethod
    def look_soon(self, job_id: str, when: datetime) -> None:
        """The fires of a job whose row cannot be read must be decided, from then on, by the first that can read it.
        Nothing else of the row is changed."""

    # Jobs. With each go two moments: when its fires must next be decided, when its calendar be expanded.

    @abstractmethod
    def job(self, id: str) -> JobRecord | None: ...

    @abstractmethod
    def job_ids(self, page: JobPage) -> list[str]:
        """Removed ones as well."""

    @abstractmethod
    def every_job(self, target: str | None = None) -> Iterable[JobRecord]: ...

    @abstractmethod
    def put_job_row(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None: ...

    @abstractmethod
    def due_looks(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        """Jobs to decide whose task this replica knows, the longest due first; `leads`: leader-only ones
        as well."""

    @abstractmethod
    def soonest_look(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        """When the next of them is to be decided. Without a replica: of any job."""

    @abstractmethod
    def due_plans(self, until: datetime, limit: int) -> list[str]: ...

    @abstractmethod
    def soonest_plan(self) -> datetime | None: ...

    @abstractmethod
    def note(self, event: JobEvent) -> None: ...

    @abstractmethod
    def events_of(self, job_id: str) -> Sequence[JobEvent]: ...

    @abstractmethod
    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        """Of all jobs: those from then on, and perhaps earlier ones. Of more than `MOST_EVENTS` the latest."""

    # Targets. There is one for every task a job refers to.

    @abstractmethod
    def target(self, name: str) -> TargetRecord: ...

    @abstractmethod
    def unknown_targets(self) -> Sequence[TargetRecord]:
        """Those that no replica knows."""

    @abstractmethod
    def knowing(self, target: str) -> frozenset[str]:
        """The replicas that know this task."""

    @abstractmethod
    def put_target(self, target: TargetRecord) -> None: ...

    # Fires. Lists are in the order of due time, then key.

    @abstractmethod
    def fire(self, key: str) -> FireRecord | None: ...

    @abstractmethod
    def put_fire(self, fire: FireRecord) -> None: ...

    @abstractmethod
    def drop_fire(self, fire: FireRecord) -> None: ...

    @abstractmethod
    def due_fires(self, job_id: str, now: datetime) -> list[FireRecord]:
        """Pending and queued ones that have fallen due."""

    @abstractmethod
    def next_planned(self, job_id: str, now: datetime) -> datetime | None:
        """When the next one after that falls due."""

    @abstractmethod
    def withdraw_planned(self, job_id: str, now: datetime) -> None:
        """Drop planned fires that have not fallen due."""

    @abstractmethod
    def active_fires(self, job_id: str) -> list[FireRecord]:
        """Running and waiting."""

    @abstractmethod
    def running_of(self, replica: str) -> list[FireRecord]: ...

    @abstractmethod
    def select_fires(self, query: FireQuery) -> list[FireRecord]:
        """Newest first."""

    @abstractmethod
    def prune_before(self, before: datetime) -> int:
        """Drop final fires, and job events no longer needed to say what was due after `before`."""

    # Replicas and the lease.

    @abstractmethod
    def replica(self, id: str) -> ReplicaRecord | None: ...

    @abstractmethod
    def every_replica(self) -> list[ReplicaRecord]: ...

    @abstractmethod
    def put_replica(self, replica: ReplicaRecord) -> None: ...

    @abstractmethod
    def drop_replica(self, id: str) -> None: ...

    @property
    @abstractmethod
    def leader(self) -> Lease: ...

    @leader.setter
    @abstractmethod
    def leader(self, lease: Lease) -> None: ...
