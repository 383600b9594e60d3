"""How rows are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, changed, checked_id
from fencepost.store.backend import Live, Load
from fencepost.store.codec import micros, moment, when
from fencepost.store.reader import BrokenFire, RowReader
from fencepost.store.rows import TargetRecord
from fencepost.store.sql.rows import FIRES, JOBS, fire_of, job_of, number
from fencepost.store.sql.statements import Statements
from fencepost.store.texts import KnownJobs, fields_of, lease_fields, read, replica_record, target_record

REPLICAS = "select id, replica from {replicas}"
LEASE = "select value from {meta} where name = 'leader'"
KNOWN = "select replica, target from {replica_targets}"


class SqlLoad(Load):
    ACTIVE: str
    """Fires that run or wait. This and the next two are followed by the ids of jobs."""
    DUE: str
    """Live fires that are due until a moment."""
    FOLLOWING: str
    """Jobs, and when the next of their pending and queued fires is due after a moment."""

    def __init__(
        self, sql: Statements, reader: RowReader, with_targets: bool, known_jobs: KnownJobs | None
    ) -> None:
        """`with_targets`: whether the replicas' targets are needed. There may be thousands, and finding what is due
        needs only the table they are registered in."""
        self._sql = sql
        self._reader = reader
        self._with_targets = with_targets
        self._known_jobs = known_jobs

    def jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        rows = self._sql.found("jobs", f"{JOBS} {self._sql.AMONG}", self._sql.listed(ids))
        found = (
            self._reader.job(id, self._job_of, id, (decide_at, plan_at), tuple(row))
            for id, decide_at, plan_at, *row in rows
        )
        return [record for record in found if record is not None]

    def _job_of(self, id: str, moments: tuple[Any, Any], row: Any) -> JobRecord:
        """What is never found due because a moment is damaged must be noticed all the same."""
        for each in moments:
            when(each)
        return job_of(row) if self._known_jobs is None else self._known_jobs.record(id, row, job_of)

    def salvage(self, job_id: str) -> Mapping[str, Callable[[], Any]]:
        row = self._sql.one("select target, token, decided_through from {jobs} where id = ?", job_id)
        if row is None:
            return {}
        target, token, decided = row
        return {
            "target": lambda: checked_id(target, "target"),
            "token": lambda: number(token),
            "decided_through": lambda: when(decided),
        }

    def events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[JobEvent]]:
        found: dict[str, list[JobEvent]] = {}
        rows = self._sql.among("select job_id, number, event from {events} where job_id", job_ids)
        for row in sorted(rows, key=lambda row: row[1]):
            if (event := self._reader.event(*row)) is not None:
                found.setdefault(row[0], []).append(event)
        return found

    def targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        rows = self._sql.among("select name, target from {targets} where name", names)
        return [self._reader.target(name, target_record, row) for name, row in rows]

    def entries(self, keys: Sequence[str]) -> Mapping[str, str]:
        return dict(self._sql.among("select `key`, entry from {entries} where `key`", keys))

    # --- fires ----------------------------------------------------------------------------------------

    def fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        return self.fires_of(self._sql.among(f"{FIRES} where `key`", keys))

    def live(self, job_ids: Sequence[str], now: datetime) -> Live:
        if not job_ids:
            return Live((), {})
        at, some = micros(now), self._sql.listed(job_ids)
        queries = (self.ACTIVE, self.DUE, self.FOLLOWING)
        active, due, following = self._sql.each(
            *((f"{query} {self._sql.AMONG}", *[at] * query.count("?"), some) for query in queries)
        )
        return Live(
            self.fires_of([*active, *due]),
            {id: moment(due_at) for id, due_at in following if due_at is not None},
        )

    def running(self, replica: str) -> Iterable[FireRecord]:
        return self.fires_of(self._sql.all(f"{FIRES} where replica = ? and state = 'running'", replica))

    def fires_of(self, rows: Iterable[Any]) -> list[FireRecord]:
        found = (
            self._reader.fire(row[0], BrokenFire(row[1], row[17] is None, row[10]), fire_of, row)
            for row in rows
        )
        return [fire for fire in found if fire is not None]

    # --- replicas and the lease -------------------------------------------------------------------------

    def replicas(self) -> Iterable[ReplicaRecord]:
        rows = self._sql.all(REPLICAS)
        found = (
            self._reader.replica(id, partial(self._fields_of, id, row), replica_record, row)
            for id, row in rows
        )
        replicas = [replica for replica in found if replica is not None]
        if not self._with_targets:
            return replicas
        known: dict[str, list[str]] = {}
        for id, target in self._sql.all(f"{KNOWN} order by replica, target"):
            known.setdefault(id, []).append(target)
        return [changed(replica, targets=tuple(known.get(replica.id, ()))) for replica in replicas]

    def _fields_of(self, id: str, row: str) -> Mapping[str, Callable[[], Any]]:
        return {**fields_of(ReplicaRecord, row), "targets": lambda: self._targets_of(id)}

    def _targets_of(self, replica: str) -> tuple[str, ...]:
        return tuple(row[1] for row in self._sql.all(f"{KNOWN} where replica = ? order by target", replica))

    def lease(self) -> Lease:
        row = self._sql.one(LEASE)
        if row is None:
            return Lease()
        (value,) = row
        return self._reader.lease(partial(lease_fields, value), read, Lease, value)
