"""How PostgreSQL loads rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State, checked_id
from fencepost.store.backend import Live, Load
from fencepost.store.codec import micros, moment, when
from fencepost.store.postgres.arrays import Texts, columns
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.records import (
    FIRE_COLUMNS,
    JOB_COLUMNS,
    JOB_TABLES,
    LEASE_COLUMNS,
    PLANNED_COLUMNS,
    REPLICA_COLUMNS,
    TARGET_COLUMNS,
    fire_of,
    job_of,
    key_of,
    lease_fields,
    lease_of,
    place_of,
    replica_fields,
    replica_of,
    target_of,
)
from fencepost.store.reader import BrokenFire, RowReader
from fencepost.store.rows import TargetRecord
from fencepost.store.texts import KnownJobs

KnownTargets = dict[str, tuple[int, tuple[str, ...]]]
"""By replica: the number under which its targets were read, and the targets."""


class PostgresLoad(Load):
    def __init__(
        self, db: Connection, reader: RowReader, targets: KnownTargets, known_jobs: KnownJobs | None = None
    ) -> None:
        self._db = db
        self._reader = reader
        self._known_targets = targets
        self._known_jobs = known_jobs
        self.places: dict[str, tuple[Any, ...]] = {}
        """Of each fire that was loaded: its table and the key there."""
        self._presence: tuple[Any, Sequence[Any]] | None = None

    def use_presence(self, lease: Any, replicas: Sequence[Any]) -> None:
        """The lease and the replicas, as one statement has read them."""
        self._presence = lease, replicas

    def jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        if not ids:
            return []
        query = f"select j.id, {JOB_COLUMNS} from {JOB_TABLES} where j.id = any(%s)"
        known = self._known_jobs
        rows = self._db.all(query, Texts(ids))
        if known is None:
            found = [self._reader.job(row[0], job_of, row[1:]) for row in rows]
        else:
            found = [self._reader.job(row[0], known.record, row[0], row[1:], job_of) for row in rows]
        return [record for record in found if record is not None]

    def salvage(self, job_id: str) -> Mapping[str, Callable[[], Any]]:
        query = "select target, token, decided_through from {schema}.jobs where id = %s"
        row = self._db.one(query, job_id)
        if row is None:
            return {}
        target, token, decided = row
        return {
            "target": lambda: checked_id(target, "target"),
            "token": lambda: token,
            "decided_through": lambda: when(decided),
        }

    def events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[JobEvent]]:
        query = (
            "select job_id, number, event from {schema}.events where job_id = any(%s) order by job_id, number"
        )
        found: dict[str, list[JobEvent]] = {}
        for row in self._db.all(query, Texts(job_ids)):
            if (event := self._reader.event(*row)) is not None:
                found.setdefault(row[0], []).append(event)
        return found

    def targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        if not names:
            return []
        query = f"select {TARGET_COLUMNS} from {{schema}}.targets where name = any(%s)"
        return [self._reader.target(row[0], target_of, row) for row in self._db.all(query, Texts(names))]

    # --- fires ------------------------------------------------------------------------------------------------

    def fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        places = [place for place in map(place_of, keys) if place]
        scheduled = [(place.job_id, place.due_at) for place in places if not place.name]
        manual = [(place.job_id, place.name) for place in places if place.name]
        found: list[FireRecord] = []
        if scheduled:
            values = columns(scheduled, "tb")
            some = "join unnest(%s, %s) as w (job_id, due_at) using (job_id, due_at)"
            found += self._loaded("planned", some, *values)
            found += self._loaded("live", f"{some} where name = ''", *values)
            found += self._loaded("final", f"{some} where name = ''", *values)
        if manual:
            values = columns(manual, "tt")
            some = "join unnest(%s, %s) as w (job_id, name) using (job_id, name)"
            found += self._loaded("live", some, *values)
            found += self._loaded("final", f"{some} where name <> ''", *values)
        return found

    def live(self, job_ids: Sequence[str], now: datetime) -> Live:
        """Those that wait for their turn are in one table with the active ones: they are few."""
        some, at = Texts(job_ids), micros(now)
        live = self._loaded("live", "where job_id = any(%s)", some)
        due = self._loaded("planned", "where job_id = any(%s) and due_at <= %s", some, at)
        rows = self._db.all(_NEXT, at, some)
        return Live([*live, *due], {id: moment(due_at) for id, due_at in rows if due_at is not None})

    def running(self, replica: str) -> Iterable[FireRecord]:
        return self._loaded("live", "where replica = %s and state = 'running'", replica)

    def fire_in(self, row: Any) -> FireRecord | None:
        state, replica = row[3], row[9]
        live = state not in _FINAL or row[16] is None
        return self._reader.fire(key_of(row), BrokenFire(row[0], live, replica), fire_of, row)

    def _loaded(self, table: str, condition: str, *values: Any) -> list[FireRecord]:
        which = PLANNED_COLUMNS if table == "planned" else FIRE_COLUMNS
        rows = self._db.all(f"select {which} from {{schema}}.{table} {condition}", *values)
        fires = [self.fire_in(row) for row in rows]
        for row in rows:
            self.places.setdefault(key_of(row), (table, *row[:3]))
        return [fire for fire in fires if fire is not None]

    # --- replicas and the lease -----------------------------------------------------------------------------

    def replicas(self) -> Iterable[ReplicaRecord]:
        if self._presence is not None:
            rows = self._presence[1]
        else:
            rows = self._db.all(f"select {REPLICA_COLUMNS}, targets_no from {{schema}}.replicas")
        return replicas_of(self._db, rows, self._known_targets, self._replica_in)

    def _replica_in(self, row: Any, targets: tuple[str, ...]) -> ReplicaRecord | None:
        fields = partial(replica_fields, row, targets)
        return self._reader.replica(row[0], fields, replica_of, row, targets)

    def lease(self) -> Lease:
        row = self._presence[0] if self._presence is not None else self._db.one(_LEASE)
        return self._reader.lease(partial(lease_fields, row), lease_of, row)


_FINAL = frozenset(state.value for state in State if state.final)

_LEASE = f"select {LEASE_COLUMNS} from {{schema}}.lease"

_TARGETS = """
select replica, array_agg(target order by target) from {schema}.replica_targets where replica = any(%s) group by replica
"""

_NEXT = """
select w.id, (select p.due_at from {schema}.planned p where p.job_id = w.id and p.due_at > %s
    order by p.due_at limit 1)
from unnest(%s) as w (id)
"""
"""Of the planned ones: all others are loaded."""


def replicas_of(
    db: Connection,
    rows: Sequence[Any],
    known: KnownTargets,
    decode: Callable[[Any, tuple[str, ...]], ReplicaRecord | None],
) -> list[ReplicaRecord]:
    """With what they know. There may be thousands of names, so they are read again only when they have changed."""
    numbers = {row[0]: row[-1] for row in rows}
    for id in [id for id, (number, _) in known.items() if numbers.get(id) != number]:
        del known[id]
    missing = [id for id in numbers if id not in known]
    if missing:
        found = dict(db.all(_TARGETS, Texts(missing)))
        known.update({id: (numbers[id], tuple(found.get(id, ()))) for id in missing})
    replicas = (decode(row, known[row[0]][1]) for row in rows)
    return [replica for replica in replicas if replica is not None]
