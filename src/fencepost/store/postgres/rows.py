"""Rows in PostgreSQL for the operations all stores share: one careful step, alone on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State, checked_id
from fencepost.store.base import (
    Claimed,
    ClaimRequest,
    FireQuery,
    JobPage,
    JobPut,
    PutJob,
    Roster,
    Seen,
    Update,
    Updated,
)
from fencepost.store.codec import micros, moment, ticks, when
from fencepost.store.lazy import BrokenFire, JobChange, LazyRows
from fencepost.store.operations import jobs_to_look_at
from fencepost.store.postgres.arrays import Bigints, Texts, columns
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.find import found
from fencepost.store.postgres.records import (
    FIRE_COLUMNS,
    FIRE_KINDS,
    JOB_COLUMNS,
    JOB_TABLES,
    LEASE_COLUMNS,
    OUTCOME_COLUMNS,
    PLANNED_COLUMNS,
    REPLICA_COLUMNS,
    TARGET_COLUMNS,
    fire_of,
    fire_row,
    head_of,
    job_of,
    key_of,
    lease_fields,
    lease_of,
    lease_row,
    outcome_row,
    place_of,
    plain_since,
    replica_fields,
    replica_of,
    replica_row,
    target_of,
    without_cursor,
)
from fencepost.store.postgres.schema import meta, set_meta
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.rules import needed_events
from fencepost.store.state import keys_of, newest
from fencepost.store.texts import KnownJobs, same_but_hot, same_outcome, text, texts_of
from fencepost.store.unreadable import Registry

KnownTargets = dict[str, tuple[int, tuple[str, ...]]]
"""By replica: the number under which its targets were read, and the targets."""


class PostgresRows(LazyRows):
    known_jobs: KnownJobs | None = None

    def __init__(self, db: Connection, targets: KnownTargets, registry: Registry) -> None:
        super().__init__(registry)
        self._db = db
        self._known_targets = targets
        self._places: dict[str, tuple[Any, ...]] = {}
        """Of each fire that was fetched: its table and the key there."""
        self._target_changes: dict[str, TargetRecord] = {}
        self._notes: list[JobEvent] = []
        self._holds_what_is_due = False

    def write(self) -> None:
        super().write()
        if self._notes:
            rows = [(event.job_id, micros(event.at), text(event)) for event in self._notes]
            self._db.do(
                "insert into {schema}.events (job_id, at, event) select * from unnest(%s, %s, %s)",
                *columns(rows, "tbt"),
            )
        if self.hinted:
            self._db.do("select {schema}.hint()")

    def flush(self) -> None:
        super().flush()
        changes, self._target_changes = list(self._target_changes.values()), {}
        if changes:
            rows = [
                (
                    each.name,
                    ticks(each.unknown_since),
                    int(each.orphaned),
                    text(each.gaps) if each.gaps else None,
                )
                for each in changes
            ]
            self._upsert("targets", TARGET_COLUMNS, "tbBt", rows, key="name")

    # --- what was begun plainly ----------------------------------------------------------------------

    def claim_more(self, at: Moment, request: ClaimRequest, claimed: int) -> Claimed:
        """Go on with a claim of which the plain part is done, and counted."""
        replica = self.replica(request.replica)
        if replica is None or replica.claim_no != request.number:
            return Claimed()
        leads, room = self._leads(request.replica, request.term), request.room - claimed
        self._holds_what_is_due = True
        due = self._due_for(at, replica, leads, jobs_to_look_at(request.room))
        return self._claim_due(at, replica, leads, room, due)

    def wakes_in(self, at: Moment, request: ClaimRequest) -> float | None:
        replica = self.replica(request.replica)
        return self._wake_in(at, replica, self._leads(request.replica, request.term)) if replica else None

    def update_more(self, at: Moment, replica: str, updates: Sequence[Update], counted: bool) -> Updated:
        """The same for updates; `counted`: as a step for this replica."""
        self.may_lose_writes = False
        updated = self.update_claims(at, replica, updates)
        if counted or not updated.steps or not any(updated.accepted):
            return updated
        # The replica's row is not held: a copy of it must not be written over what it has become.
        (steps,) = self._db.one(
            "update {schema}.replicas set steps = steps + 1 where id = %s returning steps", replica
        )
        return replace(updated, steps=steps)

    def follow(self, at: Moment, history: str, name: str) -> None:
        """The server writes another history than the one known here: it took over from another, or was restored, and
        may lack what was acknowledged. `name`: of this beginning, should the next one not know of it."""
        if meta(self._db, "history") != history:
            self.restarted(at, f"{history}/{name}")
            set_meta(self._db, "history", history)

    # --- jobs -----------------------------------------------------------------------------------------------

    def fetch_jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        if not ids:
            return []
        query = f"select j.id, {JOB_COLUMNS} from {JOB_TABLES} where j.id = any(%s)"
        known = self.known_jobs
        rows = self._db.all(query, Texts(ids))
        if known is None:
            found = [self.read_job(row[0], job_of, row[1:]) for row in rows]
        else:
            found = [self.read_job(row[0], known.record, row[0], row[1:], job_of) for row in rows]
        return [record for record in found if record is not None]

    def fetch_hot(self, id: str) -> Mapping[str, Callable[[], Any]]:
        query = "select target, token, decided_through from {schema}.jobs where id = %s"
        row = self._db.one(query, id)
        if row is None:
            return {}
        target, token, decided = row
        return {
            "target": lambda: checked_id(target, "target"),
            "token": lambda: token,
            "decided_through": lambda: when(decided),
        }

    def _but_aside(self, column: str) -> tuple[str, tuple[Any, ...]]:
        """A condition, and its value: what is set aside stays due, and would be in the way of the others."""
        aside = self.registry.aside if self.registry else ()
        return (f" and {column} <> all(%s)", (Texts(aside),)) if aside else ("", ())

    def fetch_job_ids(self, target: str | None) -> Sequence[str]:
        if target is None:
            return [row[0] for row in self._db.all("select id from {schema}.jobs")]
        return [
            row[0]
            for row in self._db.all("select job_id from {schema}.definitions where target = %s", target)
        ]

    def job_ids(self, page: JobPage) -> list[str]:
        query, values = "select id from {schema}.jobs where id > %s", [page.after]
        if page.contains:
            query += " and strpos(lower(id), %s) > 0"
            values.append(page.contains.lower())
        return [row[0] for row in self._db.all(f"{query} order by id limit %s", *values, page.limit)]

    def due_looks(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        self.flush()
        but, aside = self._but_aside("j.id")
        due = f"select j.id, j.look_at from {{schema}}.jobs j where j.look_at <= %s and {_known(leads)}{but}"
        query = f"{due} order by j.look_at, j.id limit %s"
        if self._holds_what_is_due:
            query = f"{query} for no key update of j skip locked"
        rows = self._db.all(query, micros(now), replica.id, *aside, limit)
        return [id for _, id in sorted((look_at, id) for id, look_at in rows)]

    def soonest_look(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        self.flush()
        but, aside = self._but_aside("j.id")
        query = f"select j.look_at from {{schema}}.jobs j where j.look_at is not null{but}"
        if replica is None:
            row = self._db.one(f"{query} order by j.look_at limit 1", *aside)
        else:
            own = f"{query} and {_known(leads)} order by j.look_at, j.id limit 1"
            row = self._db.one(own, *aside, replica.id)
        return moment(row[0]) if row else None

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        self.flush()
        but, aside = self._but_aside("job_id")
        due = f"select job_id from {{schema}}.calendars where plan_at <= %s{but}"
        query = f"{due} order by plan_at, job_id limit %s"
        return [row[0] for row in self._db.all(query, micros(until), *aside, limit)]

    def soonest_plan(self) -> datetime | None:
        self.flush()
        but, aside = self._but_aside("job_id")
        due = f"select plan_at from {{schema}}.calendars where plan_at is not null{but}"
        row = self._db.one(f"{due} order by plan_at limit 1", *aside)
        return moment(row[0]) if row else None

    def write_jobs(self, changes: Sequence[JobChange]) -> None:
        wide, calendars, hot, targets = [], [], [], set()
        outcomes = [
            outcome_row(each.record) for each in changes if not same_outcome(each.before, each.record)
        ]
        for change in changes:
            record, before = change.record, change.before
            job, head = record.job, head_of(record)
            cold = without_cursor(record)
            if before is None or not same_but_hot(without_cursor(before), cold):
                wide.append((record.id, job.target, *texts_of(cold)))
            if before is None or before.job.target != job.target:
                targets.add(job.target)
            calendars.append(
                (
                    record.id,
                    head.version,
                    micros(head.cursor),
                    ticks(head.until),
                    ticks(head.next_at),
                    ticks(change.plan_at),
                )
                if head
                else (record.id, None, None, None, None, None)
            )
            hot.append(
                (
                    record.id,
                    job.target,
                    int(job.execute_on == "leader"),
                    job.misfire_after // timedelta(microseconds=1),
                    int(job.misfire == "latest"),
                    int(job.overlap.kind == "skip"),
                    plain_since(record, self.target(job.target)),
                    record.token,
                    ticks(record.decided_through),
                    _due_of(record.tail),
                    ticks(change.look_at),
                )
            )
        if targets:
            self._db.do(
                "insert into {schema}.targets (name) select unnest(%s::text[]) on conflict do nothing",
                Texts(sorted(targets)),
            )
        if wide:
            self._upsert("definitions", "job_id, target, definition, rest", "tttt", wide, key="job_id")
        if outcomes:
            self._upsert("outcomes", f"job_id, {OUTCOME_COLUMNS}", "tbttbbtttbb", outcomes, key="job_id")
        self._upsert(
            "calendars", "job_id, version, cursor, until, next_at, plan_at", "tbbbbb", calendars, key="job_id"
        )
        self._upsert(
            "jobs",
            "id, target, leader_only, misfire_after, wants_latest, skips_overlap, plain_since, token, decided_through,"
            " tail, look_at",
            "ttBbBBbbbbb",
            hot,
            key="id",
        )

    def look_soon(self, job_id: str, when: datetime) -> None:
        self._db.do("update {schema}.jobs set look_at = %s where id = %s", micros(when), job_id)

    def note(self, event: JobEvent) -> None:
        self._notes.append(event)

    def put_jobs(self, at: Moment, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
        self._fetch_events([put.job.id for put in jobs])
        return super().put_jobs(at, jobs)

    def events_of(self, job_id: str) -> Sequence[JobEvent]:
        if job_id not in self.events:
            self._fetch_events([job_id])
        return [*self.events[job_id], *(event for event in self._notes if event.job_id == job_id)]

    def _fetch_events(self, job_ids: Sequence[str]) -> None:
        self.events.update({id: [] for id in job_ids})
        query = (
            "select job_id, number, event from {schema}.events where job_id = any(%s) order by job_id, number"
        )
        for row in self._db.all(query, Texts(job_ids)):
            if (event := self.read_event(*row)) is not None:
                self.events[event.job_id].append(event)

    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        latest = "select job_id, number, at, event from {schema}.events order by number desc limit %s"
        query = f"select job_id, number, event from ({latest}) as latest where at >= %s order by number"
        rows = self._db.all(query, MOST_EVENTS, micros(since))
        return [event for row in rows if (event := self.read_event(*row)) is not None]

    # --- targets --------------------------------------------------------------------------------------------

    def fetch_targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        if not names:
            return []
        query = f"select {TARGET_COLUMNS} from {{schema}}.targets where name = any(%s)"
        return [self.read_target(row[0], target_of, row) for row in self._db.all(query, Texts(names))]

    def unknown_targets(self) -> Sequence[TargetRecord]:
        self.flush()
        query = f"select {TARGET_COLUMNS} from {{schema}}.targets t where {UNKNOWN} order by name"
        return [self.read_target(row[0], target_of, row) for row in self._db.all(query)]

    def put_target(self, target: TargetRecord) -> None:
        self.targets[target.name] = self._target_changes[target.name] = target

    def _adopt(self, at: Moment, names: Iterable[str]) -> None:
        """A replica may know thousands: one statement for all, where asking for each would take a second."""
        names = list(names)
        missing = [name for name in names if name not in self.targets]
        found = {target.name: target for target in self.fetch_targets(missing)}
        self.targets.update({name: found.get(name, TargetRecord(name)) for name in missing})
        super()._adopt(at, names)

    # --- fires ------------------------------------------------------------------------------------------------

    def fetch_fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        places = [place for place in map(place_of, keys) if place]
        scheduled = [(place.job_id, place.due_at) for place in places if not place.name]
        manual = [(place.job_id, place.name) for place in places if place.name]
        found: list[FireRecord] = []
        if scheduled:
            values = columns(scheduled, "tb")
            some = "join unnest(%s, %s) as w (job_id, due_at) using (job_id, due_at)"
            found += self._fetched("planned", some, *values)
            found += self._fetched("live", f"{some} where name = ''", *values)
            found += self._fetched("final", f"{some} where name = ''", *values)
        if manual:
            values = columns(manual, "tt")
            some = "join unnest(%s, %s) as w (job_id, name) using (job_id, name)"
            found += self._fetched("live", some, *values)
            found += self._fetched("final", f"{some} where name <> ''", *values)
        return found

    def fetch_active(self, job_ids: Sequence[str]) -> Iterable[FireRecord]:
        """With those that wait for their turn: they are few, and in the same table."""
        return self._fetched("live", "where job_id = any(%s)", Texts(job_ids)) if job_ids else []

    def fetch_due(self, job_ids: Sequence[str], now: datetime) -> Iterable[FireRecord]:
        if not job_ids:
            return []
        return self._fetched(
            "planned", "where job_id = any(%s) and due_at <= %s", Texts(job_ids), micros(now)
        )

    def fetch_next(self, job_ids: Sequence[str], now: datetime) -> Mapping[str, datetime]:
        """Of the planned ones; the others are here, because what is active has always been fetched before."""
        if not job_ids:
            return {}
        query = """
            select w.id, (select p.due_at from {schema}.planned p where p.job_id = w.id and p.due_at > %s
                order by p.due_at limit 1)
            from unnest(%s) as w (id)"""
        rows = self._db.all(query, micros(now), Texts(job_ids))
        return {id: moment(due_at) for id, due_at in rows if due_at is not None}

    def fetch_running(self, replica: str) -> Iterable[FireRecord]:
        return self._fetched("live", "where replica = %s and state = 'running'", replica)

    def delete_planned(self, job_id: str, now: datetime) -> None:
        self._db.do("delete from {schema}.planned where job_id = %s and due_at > %s", job_id, micros(now))

    def write_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        gone: dict[str, list[tuple[Any, ...]]] = {}
        put: dict[str, list[tuple[Any, ...]]] = {}
        for key, fire in changes.items():
            before = self._places.get(key)
            table = None if fire is None else _table_of(fire)
            if before is not None and before[0] != table:
                gone.setdefault(before[0], []).append(before[1:])
            if fire is not None and table is not None:
                put.setdefault(table, []).append(fire_row(fire))
        for table, places in gone.items():
            condition = "t.job_id = w.job_id and t.due_at = w.due_at"
            condition += "" if table == "planned" else " and t.name = w.name"
            some = f"unnest(%s, %s, %s) as w (job_id, due_at, name) where {condition}"
            self._db.do(f"delete from {{schema}}.{table} t using {some}", *columns(places, "tbt"))
        for table, rows in put.items():
            if table == "planned":
                planned = [(row[0], row[1], row[6], row[7]) for row in rows]
                self._upsert(
                    table, "job_id, due_at, count, last_due_at", "tbbb", planned, key="job_id, due_at"
                )
            else:
                self._upsert(table, FIRE_COLUMNS, FIRE_KINDS, rows, key="job_id, due_at, name")

    def select_fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        if keys is not None:
            return newest(self.fetch_fires(keys), query)
        fires = (self._fire_in(row) for row in found(self._db, query))
        return [fire for fire in fires if fire is not None]

    def _fire_in(self, row: Any) -> FireRecord | None:
        state, replica = row[3], row[9]
        live = state not in _FINAL or row[16] is None
        return self.read_fire(key_of(row), BrokenFire(row[0], live, replica), fire_of, row)

    def prune_before(self, before: datetime) -> int:
        """Job events; fires are pruned a batch at a time, outside of careful steps."""
        old = self._db.all(
            "select job_id from {schema}.events where at < %s group by job_id having count(*) > 1",
            micros(before),
        )
        for (job_id,) in old:
            rows = self._db.all(
                "select number, event from {schema}.events where job_id = %s order by number", job_id
            )
            events = {row[0]: event for row in rows if (event := self.read_event(job_id, *row)) is not None}
            needed = {id(event) for event in needed_events(list(events.values()), before)}
            gone = [n for n, event in events.items() if id(event) not in needed]
            if gone:
                self._db.do("delete from {schema}.events where number = any(%s)", Bigints(gone))
        return 0

    def _fetched(self, table: str, condition: str, *values: Any) -> list[FireRecord]:
        which = PLANNED_COLUMNS if table == "planned" else FIRE_COLUMNS
        rows = self._db.all(f"select {which} from {{schema}}.{table} {condition}", *values)
        fires = [self._fire_in(row) for row in rows]
        for row in rows:
            self._places.setdefault(key_of(row), (table, *row[:3]))
        return [fire for fire in fires if fire is not None]

    # --- replicas and the lease -----------------------------------------------------------------------------

    def fetch_replicas(self) -> Iterable[ReplicaRecord]:
        rows = self._db.all(f"select {REPLICA_COLUMNS}, targets_no from {{schema}}.replicas")
        return replicas_of(self._db, rows, self._known_targets, self._replica_in)

    def _replica_in(self, row: Any, targets: tuple[str, ...]) -> ReplicaRecord | None:
        fields = partial(replica_fields, row, targets)
        return self.read_replica(row[0], fields, replica_of, row, targets)

    def roster_of(self, at: Moment, lease: Any, rows: Sequence[Any]) -> Roster:
        """From what one statement has read."""
        self._replicas_here = {
            replica.id: replica
            for replica in replicas_of(self._db, rows, self._known_targets, self._replica_in)
        }
        self._lease = self.read_lease(partial(lease_fields, lease), lease_of, lease)
        return self.roster(at)

    def write_replica(self, id: str, replica: ReplicaRecord | None, before: ReplicaRecord | None) -> None:
        targets = replica.targets if replica else ()
        if targets != (before.targets if before else ()) or replica is None:
            self._db.do("delete from {schema}.replica_targets where replica = %s", id)
            if targets:
                insert = "insert into {schema}.replica_targets select %s, unnest(%s::text[])"
                self._db.do(insert, id, Texts(targets))
        if replica is None:
            self._db.do("delete from {schema}.replicas where id = %s", id)
            self._db.do("delete from {schema}.beacons where replica = %s", id)
        else:
            # The number of its targets is that of the beat which brought them.
            values = replica_row(replica)
            which = replica.beat_no if before is None or before.targets != targets else None
            marks = ", ".join(["%s"] * len(values))
            self._db.do(
                f"insert into {{schema}}.replicas as r ({REPLICA_COLUMNS}, targets_no)"
                f" values ({marks}, coalesce(%s, 0)) on conflict (id) do update set"
                f" ({REPLICA_COLUMNS}, targets_no) = ({marks}, coalesce(%s, r.targets_no))",
                *values,
                which,
                *values,
                which,
            )

    def fetch_lease(self) -> Lease:
        row = self._db.one(f"select {LEASE_COLUMNS} from {{schema}}.lease")
        return self.read_lease(partial(lease_fields, row), lease_of, row)

    def write_lease(self, lease: Lease) -> None:
        values = lease_row(lease)
        marks = ", ".join(["%s"] * len(values))
        self._db.do(f"update {{schema}}.lease set ({LEASE_COLUMNS}) = ({marks})", *values)

    def _begin_anew(self, at: Moment, seen: Seen) -> None:
        """What is live is few; which job it belongs to is asked of every job."""
        self._here(self._fetched("live", ""))
        for id in self.fetch_job_ids(None):
            self._live_fetched.setdefault(id, None)
        super()._begin_anew(at, seen)

    # --- statements -------------------------------------------------------------------------------------------

    def _upsert(self, table: str, names: str, kinds: str, rows: Sequence[tuple[Any, ...]], key: str) -> None:
        """Insert rows, or replace those with the same key. `kinds`: as for `columns`, and B for a truth value."""
        each = names.split(", ")
        values = ", ".join(
            f"{name} = 1" if kind == "B" else name for name, kind in zip(each, kinds, strict=True)
        )
        marks = ", ".join(["%s"] * len(each))
        self._db.do(
            f"insert into {{schema}}.{table} ({names}) select {values} from unnest({marks}) as u ({names})"
            f" on conflict ({key}) do update set ({names}) = ({', '.join(f'excluded.{name}' for name in each)})",
            *columns(rows, kinds.replace("B", "b")),
        )


_FINAL = frozenset(state.value for state in State if state.final)

_TARGETS = """
select replica, array_agg(target order by target) from {schema}.replica_targets where replica = any(%s) group by replica
"""

UNKNOWN = "not exists (select 1 from {schema}.replica_targets k where k.target = t.name)"
"""Of a target: no replica knows it."""


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


def _due_of(key: str | None) -> int | None:
    place = place_of(key) if key else None
    return place.due_at if place else None


def _table_of(fire: FireRecord) -> str:
    if fire.state.final:
        return "final"
    return "planned" if fire.state is State.PENDING and fire.scheduled else "live"


def _known(leads: bool) -> str:
    """Jobs whose task a replica knows. Registered once: a list sent with each claim would cost more than it. Not as
    `exists`, which may be turned into a join with all it knows."""
    known = "(select true from {schema}.replica_targets k where k.replica = %s and k.target = j.target)"
    return known if leads else f"not j.leader_only and {known}"
