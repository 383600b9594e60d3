"""What a backend provides: how rows are loaded, found and saved, in bulk and in terms of the model's records.

The unit of work (`unit_of_work.py`) does the rest. A class that forgets a method cannot be instantiated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.reader import RowReader
from fencepost.store.rows import Fast, TargetRecord


@dataclass(frozen=True, slots=True)
class JobChange:
    record: JobRecord
    before: JobRecord | None
    """As it was loaded, or saved last."""
    decide_at: datetime | None
    plan_at: datetime | None
    target: TargetRecord
    fast_from: datetime | None
    """From which due time on the fast path covers its fires (`rules/fast_path.py`)."""


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    id: str
    replica: ReplicaRecord | None
    """None: to be deleted."""
    before: ReplicaRecord | None
    """As it was loaded, or saved last."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a step has changed since it was last saved."""

    jobs: Sequence[JobChange] = ()
    decide_soon: Mapping[str, datetime] = field(default_factory=dict)
    """Of jobs that cannot be read: only the moment of their next decision."""
    events: Sequence[JobEvent] = ()
    targets: Sequence[TargetRecord] = ()
    fires: Mapping[str, FireRecord | None] = field(default_factory=dict)
    """By key. None: to be deleted."""
    replicas: Sequence[ReplicaChange] = ()
    lease: Lease | None = None
    entries: Mapping[str, str | None] = field(default_factory=dict)
    """By key. None: to be deleted."""
    notify: bool = False
    """Whether other replicas must be notified."""


@dataclass(frozen=True, slots=True)
class Live:
    """The live fires of some jobs."""

    fires: Iterable[FireRecord]
    """All that run, wait, or have fallen due. Others do no harm."""
    next_due: Mapping[str, datetime]
    """By job: the first due time of a pending one that is not among them."""


class Load(ABC):
    """Rows by their keys."""

    def prepare(self, job_ids: Sequence[str], keys: Sequence[str], now: datetime) -> None:
        """The fires with these keys, these jobs and those of the fires, their live fires and targets are about to be
        loaded: a backend may do it in one go."""
        return

    @abstractmethod
    def jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]: ...

    @abstractmethod
    def live(self, job_ids: Sequence[str], now: datetime) -> Live:
        """`now`: until when a fire must be due."""

    @abstractmethod
    def fires(self, keys: Sequence[str]) -> Iterable[FireRecord]: ...

    @abstractmethod
    def running(self, replica: str) -> Iterable[FireRecord]: ...

    @abstractmethod
    def targets(self, names: Sequence[str]) -> Iterable[TargetRecord]: ...

    @abstractmethod
    def events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[JobEvent]]:
        """In their order. A job without any may be missing."""

    @abstractmethod
    def entries(self, keys: Sequence[str]) -> Mapping[str, str]: ...

    @abstractmethod
    def replicas(self) -> Iterable[ReplicaRecord]: ...

    @abstractmethod
    def lease(self) -> Lease: ...

    @abstractmethod
    def salvage(self, job_id: str) -> Mapping[str, Callable[[], Any]]:
        """Of a job that cannot be read: how to read its `target`, `token` and `decided_through`, each by itself."""


class Find(ABC):
    """Rows by what is in them. A query sees what the step has saved, and passes over jobs that are set aside."""

    @abstractmethod
    def job_ids(self, page: JobPage) -> list[str]:
        """In their order."""

    @abstractmethod
    def jobs_of(self, target: str | None) -> Sequence[str]:
        """The ids of a target's jobs; of all jobs."""

    def busy_jobs(self) -> Sequence[str]:
        """The ids of at least the jobs with a fire that runs or waits."""
        return self.jobs_of(None)

    @abstractmethod
    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]: ...

    @abstractmethod
    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None: ...

    @abstractmethod
    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        """What is to be decided next, one per job, in order. Empty: nothing, or it would cost too much to say."""

    @abstractmethod
    def due_plans(self, until: datetime, limit: int) -> list[str]: ...

    @abstractmethod
    def soonest_plan(self) -> datetime | None: ...

    @abstractmethod
    def unknown_targets(self) -> Sequence[TargetRecord]: ...

    @abstractmethod
    def knowing(self, target: str) -> frozenset[str]: ...

    @abstractmethod
    def fires(self, query: FireQuery) -> list[FireRecord]: ...

    @abstractmethod
    def events(self, since: datetime) -> Iterable[JobEvent]: ...

    @abstractmethod
    def entries(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        """As they are stored: what the step has changed is put in its place by the unit of work."""

    @abstractmethod
    def count_entries(self, prefix: str) -> int: ...


class Save(ABC):
    @abstractmethod
    def save(self, changes: Changes) -> None:
        """Several times in a step: before a query that must see what changed, and at the end."""

    def finish(self) -> None:
        """The step is over: a backend that only noted what to save writes it now."""
        return

    @abstractmethod
    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        """Delete pending scheduled fires that are due after now; the keys of those that are left to `save`."""

    @abstractmethod
    def prune_before(self, before: datetime) -> int:
        """As `Rows.prune_before`."""


class FastPath(ABC):
    """Claims and ends of the fires that `rules/fast_path.py` covers, in bulk and without loading their jobs."""

    @abstractmethod
    def due(self, now: datetime, job_ids: Sequence[str]) -> Mapping[str, Fast]: ...

    @abstractmethod
    def claim(self, claims: Sequence[Fast]) -> None: ...

    @abstractmethod
    def running(self, now: datetime, keys: Sequence[str]) -> Mapping[str, FireRecord]: ...

    @abstractmethod
    def end(self, fires: Sequence[FireRecord]) -> None: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """For one unit of work."""

    reader: RowReader
    load: Load
    find: Find
    save: Save
    fast: FastPath | None = None
    remembers_empty_claims: bool = True
    may_lose_writes: bool = True
