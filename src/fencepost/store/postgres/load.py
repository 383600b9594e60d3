"""How PostgreSQL loads rows."""

from __future__ import annotations

import json
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
        self.plan_at: dict[str, int | None] = {}
        """By job, as it is stored."""
        self.noted: dict[str, list[JobEvent]] = {}
        """Events that are still to be written."""
        self._presence: tuple[Any, Sequence[Any]] | None = None
        self._prepared_jobs: dict[str, Any] = {}
        self._prepared_targets: dict[str, TargetRecord] = {}
        self._prepared_live: dict[str, tuple[datetime, list[FireRecord], int | None]] = {}
        self._prepared_fires: dict[str, FireRecord] = {}

    def prepare(self, job_ids: Sequence[str], keys: Sequence[str], now: datetime) -> None:
        """One statement for jobs, targets, live fires and the last row of each that may still grow. Of the fires with
        these keys, those that are live are among them."""
        ids = dict.fromkeys((*job_ids, *(place.job_id for place in map(place_of, keys) if place)))
        at = micros(now)
        for row in self._db.all(_EVERYTHING, at, at, at, at, Texts(ids)) if ids else ():
            id, job, target, (live, due, later, tail, following) = row[0], row[1:-9], row[-9:-5], row[-5:]
            self._prepared_jobs[id] = job
            self._prepared_targets[target[0]] = self._reader.target(target[0], target_of, target)
            fires = [*self._fires("live", _rows(live)), *self._fires("planned", _rows(due))]
            fires += self._fires("later", _rows(later))
            self._prepared_live[id] = now, fires, following
            self._prepared_fires.update({f.key: f for f in (*fires, *self._fires("final", _rows(tail)))})

    def use_presence(self, lease: Any, replicas: Sequence[Any]) -> None:
        """The lease and the replicas, as one statement has read them."""
        self._presence = lease, replicas

    def jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        if not ids:
            return []
        found = []
        for id, plan_at, *row in self._job_rows(ids):
            self.plan_at[id] = plan_at
            if self._known_jobs is None:
                found.append(self._reader.job(id, job_of, row))
            else:
                found.append(self._reader.job(id, self._known_jobs.record, id, row, job_of))
        return [record for record in found if record is not None]

    def _job_rows(self, ids: Sequence[str]) -> list[Any]:
        here = {id: self._prepared_jobs.pop(id) for id in ids if id in self._prepared_jobs}
        missing = [id for id in ids if id not in here]
        rows = [(id, *row) for id, row in here.items()]
        return [*rows, *self._db.all(_JOBS, Texts(missing))] if missing else rows

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
        for id in job_ids:
            found.setdefault(id, []).extend(self.noted.get(id, ()))
        return found

    def targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        found = [self._prepared_targets.pop(name) for name in names if name in self._prepared_targets]
        if len(found) < len(names):
            missing = set(names) - {target.name for target in found}
            query = f"select {TARGET_COLUMNS} from {{schema}}.targets where name = any(%s)"
            rows = self._db.all(query, Texts(sorted(missing)))
            found += [self._reader.target(row[0], target_of, row) for row in rows]
        return found

    def entries(self, keys: Sequence[str]) -> Mapping[str, str]:
        return dict(self._db.all("select key, entry from {schema}.entries where key = any(%s)", Texts(keys)))

    # --- fires ------------------------------------------------------------------------------------------------

    def fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        here = self._prepared_fires
        found = [here[key] for key in keys if key in here]
        places = [place for place in map(place_of, (key for key in keys if key not in here)) if place]
        scheduled = [(place.job_id, place.due_at) for place in places if not place.name]
        manual = [(place.job_id, place.name) for place in places if place.name]
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
            found += self._loaded("later", some, *values)
            found += self._loaded("final", f"{some} where name <> ''", *values)
        return found

    def live(self, job_ids: Sequence[str], now: datetime) -> Live:
        """Those that wait for their turn are in one table with the active ones: they are few."""
        here = {id: self._prepared_live.pop(id) for id in job_ids if id in self._prepared_live}
        here = {id: each for id, each in here.items() if each[0] == now}
        fires = [fire for _, some, _ in here.values() for fire in some]
        following = {id: each[2] for id, each in here.items()}
        if missing := [id for id in job_ids if id not in here]:
            some, at = Texts(missing), micros(now)
            fires += self._loaded("live", "where job_id = any(%s)", some)
            for table in ("planned", "later"):
                fires += self._loaded(table, "where job_id = any(%s) and due_at <= %s", some, at)
            following.update(self._db.all(_NEXT, at, at, some))
        return Live(fires, {id: moment(due_at) for id, due_at in following.items() if due_at is not None})

    def running(self, replica: str) -> Iterable[FireRecord]:
        return self._loaded("live", "where replica = %s and state = 'running'", replica)

    def fire_in(self, row: Any) -> FireRecord | None:
        state, replica = row[3], row[9]
        live = state not in _FINAL or row[16] is None
        return self._reader.fire(key_of(row), BrokenFire(row[0], live, replica), fire_of, row)

    def _loaded(self, table: str, condition: str, *values: Any) -> list[FireRecord]:
        which = PLANNED_COLUMNS if table == "planned" else FIRE_COLUMNS
        return self._fires(
            table, self._db.all(f"select {which} from {{schema}}.{table} {condition}", *values)
        )

    def _fires(self, table: str, rows: Sequence[Any]) -> list[FireRecord]:
        fires = [self.fire_in(row) for row in rows]
        for row in rows:
            self.places.setdefault(key_of(row), (table, *row[:3]))
        return [fire for fire in fires if fire is not None]

    # --- replicas and the lease -----------------------------------------------------------------------------

    def replicas(self) -> Iterable[ReplicaRecord]:
        return replicas_of(self._db, self._present()[1], self._known_targets, self._replica_in)

    def _present(self) -> tuple[Any, Sequence[Any]]:
        """The lease is in every row; where no replica takes part there is still one."""
        if self._presence is None:
            found, width = self._db.all(_PRESENCE), len(LEASE_COLUMNS.split(", "))
            replicas = [row[width:] for row in found if row[width] is not None]
            self._presence = found[0][:width], replicas
        return self._presence

    def _replica_in(self, row: Any, targets: tuple[str, ...]) -> ReplicaRecord | None:
        fields = partial(replica_fields, row, targets)
        return self._reader.replica(row[0], fields, replica_of, row, targets)

    def lease(self) -> Lease:
        row = self._present()[0]
        return self._reader.lease(partial(lease_fields, row), lease_of, row)


_FINAL = frozenset(state.value for state in State if state.final)

_JOBS = f"select j.id, c.plan_at, {JOB_COLUMNS} from {JOB_TABLES} where j.id = any(%s)"

_EVERYTHING = f"""
select j.id, c.plan_at, {JOB_COLUMNS}, {", ".join(f"t.{name}" for name in TARGET_COLUMNS.split(", "))},
    (select json_agg(json_build_array({FIRE_COLUMNS})) from {{schema}}.live where job_id = j.id)::text,
    (select json_agg(json_build_array({PLANNED_COLUMNS})) from {{schema}}.planned
        where job_id = j.id and due_at <= %s)::text,
    (select json_agg(json_build_array({FIRE_COLUMNS})) from {{schema}}.later
        where job_id = j.id and due_at <= %s)::text,
    (select json_agg(json_build_array({FIRE_COLUMNS})) from {{schema}}.final
        where job_id = j.id and due_at = j.tail and name = '')::text,
    least((select due_at from {{schema}}.planned where job_id = j.id and due_at > %s order by due_at limit 1),
        (select due_at from {{schema}}.later where job_id = j.id and due_at > %s order by due_at limit 1))
from {JOB_TABLES} join {{schema}}.targets t on t.name = j.target where j.id = any(%s)
"""

_PRESENCE = f"""
select {", ".join(f"l.{name}" for name in LEASE_COLUMNS.split(", "))},
    {", ".join(f"r.{name}" for name in REPLICA_COLUMNS.split(", "))}, r.targets_no
from {{schema}}.lease l left join {{schema}}.replicas r on true
"""

_TARGETS = """
select replica, array_agg(target order by target) from {schema}.replica_targets where replica = any(%s) group by replica
"""

_NEXT = """
select w.id, least(
    (select p.due_at from {schema}.planned p where p.job_id = w.id and p.due_at > %s order by p.due_at limit 1),
    (select l.due_at from {schema}.later l where l.job_id = w.id and l.due_at > %s order by l.due_at limit 1))
from unnest(%s) as w (id)
"""
"""Of those that lie ahead: all others are loaded."""


def _rows(value: str | None) -> list[Any]:
    return json.loads(value) if value else []


def replicas_of(
    db: Connection,
    rows: Sequence[Any],
    known: KnownTargets,
    decode: Callable[[Any, tuple[str, ...]], ReplicaRecord | None],
) -> list[ReplicaRecord]:
    """With what they know."""
    targets = targets_of(db, {row[0]: row[-1] for row in rows}, known)
    replicas = (decode(row, targets[row[0]]) for row in rows)
    return [replica for replica in replicas if replica is not None]


def targets_of(db: Connection, numbers: Mapping[str, int], known: KnownTargets) -> dict[str, tuple[str, ...]]:
    """What all replicas know, by id. There may be thousands of names, so they are read again only when they have
    changed, which their number says."""
    for id in [id for id, (number, _) in known.items() if numbers.get(id) != number]:
        del known[id]
    missing = [id for id in numbers if id not in known]
    if missing:
        found = dict(db.all(_TARGETS, Texts(missing)))
        known.update({id: (numbers[id], tuple(found.get(id, ()))) for id in missing})
    return {id: targets for id, (_, targets) in known.items()}
