"""The operations over Redis rows: the careful path.

A step reads what it needs in a few round trips, decides with the shared operations, and sends what it changes in
one script. That writes only if nothing the step has read was changed by anybody meanwhile; otherwise the step
begins anew, at a later moment. A job and all its fires count as one thing, with one *edition*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.clock import Moment
from fencepost.errors import StoreCorrupt
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State, changed, checked_id
from fencepost.store.base import Claim, Claimed, ClaimRequest, FireQuery, JobPage, Seen, Update, Updated
from fencepost.store.codec import micros, moment
from fencepost.store.lazy import BrokenFire, JobChange, LazyRows
from fencepost.store.operations import Closed
from fencepost.store.redis import pages, scripts
from fencepost.store.redis.batch import Batch, Conflict
from fencepost.store.redis.commands import drop_row, lives, write_fire, write_looks
from fencepost.store.redis.keys import Keys, due_of, join, split, split_place
from fencepost.store.redis.pages import Call
from fencepost.store.redis.scripts import Script
from fencepost.store.redis.values import (
    NEVER,
    REPLICA,
    Hot,
    cold_of,
    cold_record,
    counted,
    digest,
    fire_of,
    has_row,
    holder_of,
    hot_values,
    job_of,
    lease_fields,
    lease_of,
    lease_values,
    plain_from,
    planned_fire,
    replica_fields,
    replica_of,
    replica_values,
    same_cold,
    stamp,
    targets_digest,
    when,
)
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.rules import ORPHANED_AFTER
from fencepost.store.state import ACTIVE, OPEN, keys_of, newest
from fencepost.store.texts import target_record, text
from fencepost.store.unreadable import Registry

CHUNK = 500
"""Jobs, fires or targets read at once."""
SETS_KEPT = 100
"""Of targets."""


@dataclass(slots=True)
class Loaded:
    """A job as it was read, with what lives of it."""

    id: str
    hot: Hot
    record: JobRecord | None
    """None: it cannot be read."""
    fires: list[FireRecord]
    upto: datetime
    """Its fires are here as far as this."""
    following: datetime | None
    """When the next one is due."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a job's fires."""

    claims: list[Claim]
    closed: Closed


class RedisRows(LazyRows):
    _begins_anew = False

    def __init__(
        self,
        call: Call,
        keys: Keys,
        now: tuple[str, str],
        targets: dict[str, tuple[str, ...]],
        registry: Registry,
    ) -> None:
        """`now`: the moment, if a test owns the time. `targets`: what replicas know, by digest, kept from step to
        step."""
        super().__init__(registry)
        self._call = call
        self._keys = keys
        self._targets_by_digest = targets
        wall, steady, self._lease_read, replicas = self._script(scripts.BEGIN, *now)
        self.at = Moment(moment(int(wall)), float(steady))
        self.of_history: str = self._lease_read[-1] or ""
        self.batch = Batch()
        self._replicas_read = {values[0]: dict(zip(REPLICA, values, strict=True)) for values in replicas}
        self._loaded: dict[str, Loaded | None] = {}
        self._withdrawn: dict[str, datetime] = {}
        """By job: planned fires due later than this were dropped."""
        self._stored: dict[str, FireRecord] = {}
        """Fires as they were read."""
        self._broken_rows: dict[str, tuple[str, str]] = {}
        """Of live fires that have a row which cannot be read: the job and the moment."""
        self._final_rows: dict[str, str] = {}
        """The texts of final ones: they are found by them."""
        self._unheard_of: set[str] = set()
        """Targets without a row: no job refers to them yet."""
        self._jobs_noted: dict[str, JobChange] = {}
        self._looks_noted: dict[str, datetime] = {}
        """Of jobs that cannot be read."""
        self._replicas_noted: dict[str, ReplicaRecord | None] = {}
        self._groups: dict[str, None] = {}
        """Of the jobs that were changed."""
        self._rows_gained: Counter[str] = Counter()
        self._reached: dict[str, int] = {}

    def _script(self, script: Script, *args: Any) -> Any:
        return self._call("EVALSHA", script, self._keys.prefix, *args)

    # --- jobs, and what lives of them -------------------------------------------------------------------

    def fetch_jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        return [loaded.record for loaded in self._load(ids) if loaded.record is not None]

    def fetch_hot(self, id: str) -> Mapping[str, Callable[[], Any]]:
        token, decided, group = self._call("HMGET", self._keys.hot(id), "token", "decided", "group")
        return {
            "target": lambda: checked_id(group.partition(":")[2], "target"),
            "token": lambda: int(token),
            "decided_through": lambda: when(decided),
        }

    def fetch_job_ids(self, target: str | None) -> Sequence[str]:
        if self._begins_anew:
            return list({row[0] for row in self._script(scripts.ACTIVE)})
        ids: list[str] = self._call("HKEYS", self._keys.jobs)
        if target is None:
            return ids
        return [record.id for record in self.fetch_jobs(ids) if record.job.target == target]

    def job_ids(self, page: JobPage) -> list[str]:
        return sorted(id for id in self._call("HKEYS", self._keys.jobs) if page.has(id))[: page.limit]

    def fetch_active(self, job_ids: Sequence[str]) -> Iterable[FireRecord]:
        return [fire for each in self._load(job_ids) for fire in each.fires if fire.state in ACTIVE]

    def fetch_due(self, job_ids: Sequence[str], now: datetime) -> Iterable[FireRecord]:
        fires = (fire for each in self._load(job_ids, now) for fire in each.fires)
        return [fire for fire in fires if fire.state in OPEN and fire.due_at <= now]

    def fetch_next(self, job_ids: Sequence[str], now: datetime) -> Mapping[str, datetime]:
        found = {each.id: self._next_of(each, now) for each in self._load(job_ids, now)}
        return {id: due_at for id, due_at in found.items() if due_at is not None}

    def _next_of(self, loaded: Loaded, now: datetime) -> datetime | None:
        """The first one after now that is not here. As a rule none of those read is that late."""
        ahead = [
            fire.due_at
            for fire in loaded.fires
            if fire.due_at > now and fire.state in OPEN and not self._is_here(fire.key)
        ]
        withdrawn = self._withdrawn.get(loaded.id)
        if loaded.following is not None and (withdrawn is None or loaded.following <= withdrawn):
            ahead.append(loaded.following)
        return min(ahead, default=None)

    def _is_here(self, key: str) -> bool:
        return key in self.fires or key in self._fire_changes

    def _load(self, ids: Iterable[str], upto: datetime | None = None) -> list[Loaded]:
        wanted = list(dict.fromkeys(ids))
        until = max(upto or self.at.wall, self.at.wall)
        missing = [id for id in wanted if not self._is_loaded(id, until)]
        for chunk in _chunks(missing):
            for id, values in zip(chunk, self._script(scripts.JOBS, micros(until), *chunk), strict=True):
                self._loaded[id] = self._take(id, until, *values) if values else None
                if not values:
                    self.batch.check(self._keys.hot(id), "edition", "")
        return [loaded for id in wanted if (loaded := self._loaded[id]) is not None]

    def _is_loaded(self, id: str, until: datetime) -> bool:
        if id not in self._loaded:
            return False
        loaded = self._loaded[id]
        return loaded is None or loaded.upto >= until

    def _take(
        self,
        id: str,
        until: datetime,
        values: Sequence[Any],
        cold: str,
        live: Sequence[str],
        rows: Sequence[str | None],
        following: str | None,
        target: str | None,
    ) -> Loaded:
        record = self.read_job(id, lambda: job_of(values, cold_record(cold)))
        hot = Hot.of(values)
        self.batch.check(self._keys.hot(id), "edition", values[0])
        if record is not None:
            self._learn_target(record.job.target, target)
        fires = self._read_live(id, live, rows)
        next_due = moment(int(following)) if following else None
        return Loaded(id, hot, record, fires, max(until, moment(hot.reach)), next_due)

    def _read_live(self, id: str, live: Sequence[str], rows: Sequence[str | None]) -> list[FireRecord]:
        found = []
        for n in range(0, len(live), 2):
            due = int(live[n + 1])
            running, waiting = rows[n : n + 2] if rows else (None, None)
            row, state = (waiting, State.PENDING) if running is None else (running, State.RUNNING)
            if row is None:
                fire: FireRecord | None = planned_fire(id, live[n], due)
            else:
                fire = self._read_live_fire(id, live[n], due, row, state)
            if fire is not None:
                found.append(self._stored.setdefault(fire.key, fire))
        return found

    def _read_live_fire(self, id: str, member: str, due: int, row: str, state: State) -> FireRecord | None:
        key = join(id, member)
        broken = BrokenFire(id, True, holder_of(row) if state is State.RUNNING else None)
        fire = self.read_fire(key, broken, fire_of, id, due, row, state)
        if fire is None:
            self._broken_rows[key] = id, member
        return fire

    def put_job_row(self, record: JobRecord, look_at: datetime | None, plan_at: datetime | None) -> None:
        super().put_job_row(record, look_at, plan_at)
        target = self.target(record.job.target)
        if target.name in self._unheard_of:
            self._unheard_of.discard(target.name)
            self.batch.do("TARGET", target.name, text(target))

    # --- when to look at which job ------------------------------------------------------------------------

    def due_looks(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        found = self._first_looks(replica, leads, limit, upto=now)
        return [id for _, id in found[:limit]]

    def soonest_look(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        if replica is None:
            (soonest,) = self._script(scripts.DUE, "", "", "", "")
            return moment(int(soonest)) if soonest else None
        found = self._first_looks(replica, leads, 1)
        return moment(found[0][0]) if found else None

    def _first_looks(
        self, replica: ReplicaRecord, leads: bool, limit: int, upto: datetime | None = None
    ) -> list[tuple[int, str]]:
        """The first ones that are stored, with what this step has changed put in their place."""
        self.flush()
        noted, end = self._jobs_noted, "+inf" if upto is None else micros(upto)
        passed = {*noted, *self.registry.aside}
        stored = self._script(scripts.DUE, replica.id, int(leads), end, limit + len(passed))
        found = [(int(stored[n + 1]), stored[n]) for n in range(0, len(stored), 2) if stored[n] not in passed]
        for id, change in noted.items():
            job, look_at = change.record.job, change.look_at
            known = job.target in replica.targets and (leads or job.execute_on == "any")
            if known and look_at is not None and (upto is None or look_at <= upto):
                found.append((micros(look_at), id))
        return sorted(found)

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        aside = set(self.registry.aside)
        ids: list[str] = self._call(
            "ZRANGEBYSCORE", self._keys.plan, "-inf", micros(until), "LIMIT", 0, limit + len(aside)
        )
        return [id for id in ids if id not in aside][:limit]

    def soonest_plan(self) -> datetime | None:
        aside = set(self.registry.aside)
        first = self._call("ZRANGE", self._keys.plan, 0, len(aside), "WITHSCORES")
        moments = [int(first[n + 1]) for n in range(0, len(first), 2) if first[n] not in aside]
        return moment(moments[0]) if moments else None

    # --- events and targets -------------------------------------------------------------------------------

    def note(self, event: JobEvent) -> None:
        super().note(event)
        self.batch.do("NOTE", event.job_id, text(event))
        self.batch.do("ZADD", self._keys.noted, "GT", micros(event.at), event.job_id)

    def events_of(self, job_id: str) -> Sequence[JobEvent]:
        rows = self._call("LRANGE", self._keys.events(job_id), 0, -1)
        found = [self.read_event(job_id, number, row) for number, row in enumerate(rows)]
        return [*(event for event in found if event is not None), *super().events_of(job_id)]

    def events_since(self, since: datetime) -> Iterable[JobEvent]:
        args = ("+inf", micros(since), "LIMIT", 0, MOST_EVENTS)
        ids = self._call("ZREVRANGEBYSCORE", self._keys.noted, *args)
        return [event for id in ids for event in self.events_of(id)]

    def fetch_targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        for chunk in _chunks([name for name in names if name not in self.targets]):
            for name, row in zip(chunk, self._call("HMGET", self._keys.targets, *chunk), strict=True):
                self._learn_target(name, row)
        return [self.targets[name] for name in names]

    def _learn_target(self, name: str, row: str | None) -> None:
        if name not in self.targets:
            self.batch.check(self._keys.targets, name, row or "")
            self.targets[name] = self.read_target(name, target_record, row) if row else TargetRecord(name)
            if row is None:
                self._unheard_of.add(name)

    def put_target(self, target: TargetRecord) -> None:
        self.targets[target.name] = target
        self.batch.do("HSET", self._keys.targets, target.name, text(target))
        since = target.unknown_since
        act_at = 0 if since is None else "+inf" if target.orphaned else micros(since + ORPHANED_AFTER)
        self.batch.do("ZADD", self._keys.unknown, "XX", act_at, target.name)

    def unknown_targets(self) -> Sequence[TargetRecord]:
        self.flush()
        names: set[str] = set(self._call("ZRANGE", self._keys.unknown, 0, -1))
        gone = [id for id, replica in self._replicas_noted.items() if replica is None]
        lost = Counter(name for id in gone for name in self._targets_read(id))
        for chunk in _chunks(list(lost)):
            known_by = self._call("HMGET", self._keys.knowers, *chunk)
            names |= {
                name for name, count in zip(chunk, known_by, strict=True) if int(count or 0) <= lost[name]
            }
        return [each for each in self.fetch_targets(sorted(names)) if each.name not in self._unheard_of]

    # --- what only this store must tell ------------------------------------------------------------------

    def server_restarted(self, at: Moment, before: str, run: str, keeps_writes: bool) -> None:
        """The server's process is another one. Unless it keeps what it has acknowledged, that is doubtful now."""
        self.batch.check(self._keys.meta, "run", before)
        self.batch.do("HSET", self._keys.meta, "run", run)
        if not keeps_writes:
            self.restarted(at, run)

    def store_emptied(self, at: Moment, history: str, seen: Seen) -> None:
        """The store was emptied: `history`, which somebody remembers, is not the one it has."""
        self.batch.check(self._keys.meta, f"gone:{history}", "")
        self.batch.do("HSET", self._keys.meta, f"gone:{history}", stamp(at.wall))
        self._begin_anew(at, seen)

    def _begin_anew(self, at: Moment, seen: Seen) -> None:
        """Only jobs of which something runs or waits change by it. To read all would take so long that somebody
        else would always change one of them."""
        self._begins_anew = True
        super()._begin_anew(at, seen)

    # --- what the plain path has left ---------------------------------------------------------------------

    def claim_left(
        self, at: Moment, request: ClaimRequest, jobs: Mapping[int, str], room: int
    ) -> tuple[dict[int, Decided], Claimed]:
        """Go on with a claim under its number, with these jobs. What became of each, by its place in the order of
        what was due; and what else there is to say."""
        self.batch.add("ZREM", self._keys.deciding, *jobs.values())
        replica = self.replica(request.replica)
        if replica is None or replica.claim_no != request.number:
            return {}, Claimed(wake_in=0.0)
        self._check_replica(replica.id)
        found: dict[int, Decided] = {}
        self.preload(at.wall, jobs=list(jobs.values()))
        for place, id in jobs.items():
            left = room - sum(len(each.claims) for each in found.values())
            if request.room and left <= 0:
                break
            if self.aside(id):
                continue
            found[place] = Decided([], Closed())
            self._decide_job(at, replica, self._job(id), left, found[place].claims, found[place].closed)
        wake_in = self._wake_in(at, replica, self._leads(request.replica, request.term))
        return found, Claimed(wake_in=wake_in, steps=replica.steps)

    def update_left(self, at: Moment, replica: str, updates: Sequence[Update], counted: bool) -> Updated:
        """Go on with updates; `counted`: as one step, with those settled before."""
        self.may_lose_writes = not counted
        return self.update_claims(at, replica, updates)

    # --- fires --------------------------------------------------------------------------------------------

    def fetch_fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        places = {key: split(key) for key in keys}
        self._load(job_id for job_id, _ in places.values())
        elsewhere = [
            key for key, (job_id, _) in places.items() if key not in self._stored and self._loaded[job_id]
        ]
        for chunk in _chunks(elsewhere):
            words: list[Any] = []
            for key in chunk:
                job_id, member = places[key]
                words += job_id, member, stamp(due_of(member))
            for key, found in zip(chunk, self._script(scripts.DONE, *words), strict=True):
                if found:
                    self._take_elsewhere(key, *places[key], *found)
        return [self._stored[key] for key in places if key in self._stored]

    def _take_elsewhere(
        self, key: str, job_id: str, member: str, due: str, rows: Sequence[str], planned: str | None
    ) -> None:
        if planned is not None:
            self._stored[key] = planned_fire(job_id, member, int(due))
        for row in rows:
            # One that cannot be read, and ended at the moment of the fire asked for, may be that.
            fire = self.read_fire(key, BrokenFire(job_id, False, None), fire_of, job_id, int(due), row)
            if fire is not None and fire.key == key:
                self._stored[key], self._final_rows[key] = fire, row
        if key in self._stored:
            self._broken_fires.pop(key, None)

    def fetch_running(self, replica: str) -> Iterable[FireRecord]:
        found = []
        for place, row, due, edition in self._script(scripts.HELD, replica):
            job_id, member = split_place(place)
            self.batch.check(self._keys.hot(job_id), "edition", edition or "")
            fire = self._read_live_fire(job_id, member, int(due or 0), row or "", State.RUNNING)
            if fire is not None:
                found.append(self._stored.setdefault(fire.key, fire))
        return found

    def delete_planned(self, job_id: str, now: datetime) -> None:
        loaded = next(iter(self._load([job_id], now)), None)
        if loaded is None:
            return
        ahead = self._read_live(job_id, *self._script(scripts.AHEAD, job_id, micros(now)))
        known = {fire.key for fire in loaded.fires}
        loaded.fires += [fire for fire in ahead if fire.key not in known]
        for fire in ahead:
            if fire.scheduled and fire.state is State.PENDING and not self._is_here(fire.key):
                self._fire_changes[fire.key] = None
        self._withdrawn[job_id] = now

    def select_fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        if keys is not None:
            return newest(self.fetch_fires(keys), query)
        return pages.find(self._call, self._keys, query, self.registry)

    def prune_before(self, before: datetime) -> int:
        return pages.prune(self._call, self._keys, before, self.registry)

    # --- replicas and the lease -----------------------------------------------------------------------------

    def fetch_replicas(self) -> Iterable[ReplicaRecord]:
        found = [self._replica_read(id) for id in self._replicas_read]
        return [replica for replica in found if replica is not None]

    def _replica_read(self, id: str) -> ReplicaRecord | None:
        values = self._replicas_read[id]

        def fields() -> Mapping[str, Callable[[], Any]]:
            return {**replica_fields(values), "targets": lambda: self._targets_stored(id)}

        return self.read_replica(
            id, fields, lambda: replica_of(list(values.values()), self._targets_read(id))
        )

    def _targets_stored(self, id: str) -> tuple[str, ...]:
        return tuple(sorted(self._call("SMEMBERS", self._keys.knows(id))))

    def _targets_read(self, id: str) -> tuple[str, ...]:
        """What it knows. There may be thousands, and they rarely change."""
        wanted = self._replicas_read[id]["targets"]
        if not wanted:
            return ()
        known = self._targets_by_digest
        if wanted not in known:
            targets = self._targets_stored(id)
            if targets_digest(targets) != wanted:
                if self._call("HGET", self._keys.replica(id), "targets") == wanted:
                    raise StoreCorrupt("it does not know what it says it knows")
                raise Conflict  # they were changed just now
            if len(known) >= SETS_KEPT:
                known.clear()
            known[wanted] = targets
        return known[wanted]

    def put_replica(self, replica: ReplicaRecord) -> None:
        before = self.replica(replica.id)
        if before is None or before.targets != replica.targets:
            self.fetch_targets(replica.targets)  # they are about to be asked for, one by one
        super().put_replica(replica)

    def fetch_lease(self) -> Lease:
        self.batch.check(self._keys.leader, "edition", self._lease_read[0] or "")
        return self.read_lease(lambda: lease_fields(self._lease_read), lease_of, self._lease_read)

    # --- writing --------------------------------------------------------------------------------------------
    #
    # A step may flush several times, because queries over all rows must see what it has changed. Here they put it
    # in its place themselves: everything is noted until the end.

    def write_jobs(self, changes: Sequence[JobChange]) -> None:
        self._jobs_noted.update({change.record.id: change for change in changes})

    def look_soon(self, job_id: str, when: datetime) -> None:
        self._looks_noted[job_id] = when

    def write_replica(self, id: str, replica: ReplicaRecord | None, before: ReplicaRecord | None) -> None:
        self._replicas_noted[id] = replica

    def write_lease(self, lease: Lease) -> None:
        edition = counted(self._lease_read[0]) + 1
        self.batch.do("HSET", self._keys.leader, *lease_values(lease, edition))

    def write_fires(self, changes: Mapping[str, FireRecord | None]) -> None:
        for key, fire in changes.items():
            before = self._stored.get(key)
            if before is None and fire is None:
                continue
            if key in self._broken_rows:
                job_id, member = self._broken_rows[key]
                drop_row(self.batch, self._keys, job_id, member, list(self._replicas_read))
                self._rows_gained[job_id] -= 1
            job_id, gained = write_fire(self.batch, self._keys, before, fire, self._final_rows.get(key))
            self._rows_gained[job_id] += gained
            if fire is not None and lives(fire) and has_row(fire):
                self._reached[job_id] = max(self._reached.get(job_id, 0), micros(fire.due_at))

    def write(self) -> None:
        super().write()
        for id, replica in self._replicas_noted.items():
            self._write_replica(id, replica)
        for id in dict.fromkeys((*self._jobs_noted, *self._looks_noted, *self._rows_gained)):
            self._write_job(id)
        for chunk in _chunks(list(self._groups)):
            self.batch.do("LOOK", *chunk)
        if self.hinted:
            self.batch.do("PUBLISH", self._keys.hint, "")

    def _write_job(self, id: str) -> None:
        loaded, change = self._loaded.get(id), self._jobs_noted.get(id)
        before = loaded.hot if loaded else Hot(0)
        edition, rows = before.edition + 1, before.rows + self._rows_gained[id]
        reach = max(before.reach, self._reached.get(id, 0))
        if change is None:
            self.batch.do("HSET", self._keys.hot(id), "edition", edition, "rows", rows, "reach", reach)
            if id in self._looks_noted and before.group:
                self.batch.do("HSET", self._keys.hot(id), "plain", NEVER)
                self.batch.add("ZADD", self._keys.look(before.group), micros(self._looks_noted[id]), id)
                self._groups[before.group] = None
            return
        job, target = change.record.job, self.target(change.record.job.target)
        short = before.text
        if loaded is None or loaded.record is None or not same_cold(loaded.record, change.record):
            cold = cold_of(change.record)
            short = digest(cold)
            self.batch.add("HSET", self._keys.jobs, id, cold)
        hot = Hot(edition, rows, reach, f"{job.execute_on}:{job.target}", short)
        simple = change.look_at == self._earliest_open(id)
        plain = plain_from(change.record, target, simple)
        self.batch.do("HSET", self._keys.hot(id), *hot_values(change.record, hot, plain))
        write_looks(self.batch, self._keys, before.group, hot.group, change)
        self._groups.update(dict.fromkeys(group for group in (before.group, hot.group) if group))

    def _earliest_open(self, id: str) -> datetime | None:
        here = [fire.due_at for fire in self._open.get(id, {}).values()]
        elsewhere = self.fetch_next([id], self.at.wall).get(id)
        return min((due_at for due_at in (*here, elsewhere) if due_at is not None), default=None)

    def _check_replica(self, id: str) -> None:
        read = self._replicas_read.get(id)
        self.batch.check(self._keys.replica(id), "edition", read["edition"] if read else "")

    def _write_replica(self, id: str, replica: ReplicaRecord | None) -> None:
        read, key, batch = self._replicas_read.get(id), self._keys.replica(id), self.batch
        before = self._replica_read(id) if read else None
        steps_before = before.steps if before else 0
        if before is not None and replica is not None and changed(before, steps=replica.steps) == replica:
            # Its steps are counted at the same time by what else the replica does: that is no conflict.
            batch.do("HINCRBY", key, "steps", replica.steps - steps_before)
            return
        self._check_replica(id)
        known = set(before.targets if before else self._targets_stored(id) if read else ())
        knows = set(replica.targets if replica else ())
        for chunk in _chunks(sorted(known - knows)):
            batch.do("FORGET", id, *chunk)
        for chunk in _chunks(sorted(knows - known)):
            batch.do("KNOW", id, *chunk)
        if before is None:
            batch.do("DEL", key)  # a row that cannot be read goes as a whole
        if replica is None:
            batch.do("SREM", self._keys.replicas, id)
            batch.do("DEL", key)
            return
        short = targets_digest(replica.targets)
        self._targets_by_digest[short] = replica.targets
        edition = counted(read["edition"]) + 1 if read else 1
        batch.do("SADD", self._keys.replicas, id)
        batch.do("HSET", key, *replica_values(replica, edition, short))
        batch.do("HINCRBY", key, "steps", replica.steps - steps_before)


def _chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))
