"""A store in a dbm file, complete: see docs/new-store.md. Replicas on one machine share the file."""

from __future__ import annotations

import asyncio
import dbm
import fcntl
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fencepost.clock import Clock, SystemClock, moment_of
from fencepost.errors import ConfigurationError
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord, State
from fencepost.store.backend import Backend, Changes, Find, Live, Load, Save
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.codec import from_json, moment, ticks, to_json, when
from fencepost.store.local import Hint
from fencepost.store.mirror import Mirror, P, Step, T
from fencepost.store.reader import BrokenFire, RowReader
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.rules.history import needed_events
from fencepost.store.tables import keys_of, newest
from fencepost.store.unit_of_work import UnitOfWork


class Rows:
    """JSON values by kind and key. What a step changes is written as a whole: first to one entry of its own, which is
    carried out by the next who opens the file, should this process die in between."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._new: dict[str, Any] = {}
        if b"pending" in db:
            self._apply(json.loads(db[b"pending"]))

    def get(self, kind: str, key: str) -> Any:
        name = f"{kind}/{key}"
        if name in self._new:
            return self._new[name]
        return json.loads(self._db[name.encode()]) if name.encode() in self._db else None

    def put(self, kind: str, key: str, value: Any) -> None:
        """None: to be deleted."""
        self._new[f"{kind}/{key}"] = value

    def some(self, kind: str, keys: Iterable[str]) -> list[tuple[str, Any]]:
        """Those of these that exist."""
        return [(key, value) for key in keys if (value := self.get(kind, key)) is not None]

    def every(self, kind: str) -> Iterator[tuple[str, Any]]:
        names = {name.decode() for name in self._db.keys()} | self._new.keys()  # noqa: SIM118
        for name in sorted(name for name in names if name.startswith(f"{kind}/")):
            yield from self.some(kind, [name.removeprefix(f"{kind}/")])

    def commit(self) -> None:
        if self._new:
            self._db[b"pending"] = json.dumps(self._new).encode()
            self._apply(self._new)

    def _apply(self, changes: dict[str, Any]) -> None:
        for name, value in changes.items():
            if value is not None:
                self._db[name.encode()] = json.dumps(value).encode()
            elif name.encode() in self._db:
                del self._db[name.encode()]
        del self._db[b"pending"]


class DbmLoad(Load):
    def __init__(self, rows: Rows, reader: RowReader) -> None:
        self._rows, self._reader = rows, reader

    def jobs(self, ids: Sequence[str]) -> Iterable[JobRecord]:
        decode = partial(from_json, JobRecord)
        found = [self._reader.job(id, decode, row["record"]) for id, row in self._rows.some("job", ids)]
        return [record for record in found if record is not None]

    def salvage(self, job_id: str) -> Mapping[str, Callable[[], Any]]:
        row = self._rows.get("job", job_id)
        return {
            "target": lambda: row["target"],
            "token": lambda: from_json(int, row["record"].get("token", 0)),
            "decided_through": lambda: when(row["record"].get("decided_through")),
        }

    def live(self, job_ids: Sequence[str], now: datetime) -> Live:
        """With those that are planned ahead: then there is no next one that was not loaded."""
        jobs = set(job_ids)
        return Live([fire for fire in self.every_fire() if fire.job_id in jobs and not fire.state.final], {})

    def fires(self, keys: Sequence[str]) -> Iterable[FireRecord]:
        return self._fires(self._rows.some("fire", keys))

    def every_fire(self) -> Iterable[FireRecord]:
        return self._fires(self._rows.every("fire"))

    def _fires(self, rows: Iterable[tuple[str, Any]]) -> Iterable[FireRecord]:
        return [fire for key, row in rows if (fire := self._fire(key, row)) is not None]

    def _fire(self, key: str, row: Any) -> FireRecord | None:
        broken = BrokenFire(row.get("job_id", ""), row.get("finished_at") is None, row.get("replica"))
        return self._reader.fire(key, broken, partial(from_json, FireRecord), row)

    def running(self, replica: str) -> Iterable[FireRecord]:
        return [f for f in self.every_fire() if f.replica == replica and f.state is State.RUNNING]

    def targets(self, names: Sequence[str]) -> Iterable[TargetRecord]:
        decode = partial(from_json, TargetRecord)
        return [self._reader.target(name, decode, row) for name, row in self._rows.some("target", names)]

    def events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[JobEvent]]:
        return {id: from_json(tuple[JobEvent, ...], self._rows.get("events", id) or []) for id in job_ids}

    def entries(self, keys: Sequence[str]) -> Mapping[str, str]:
        return dict(self._rows.some("entry", keys))

    def replicas(self) -> Iterable[ReplicaRecord]:
        decode = partial(from_json, ReplicaRecord)
        found = [self._reader.replica(id, dict, decode, row) for id, row in self._rows.every("replica")]
        return [replica for replica in found if replica is not None]

    def lease(self) -> Lease:
        row = self._rows.get("lease", "leader")
        return Lease() if row is None else self._reader.lease(dict, partial(from_json, Lease), row)


class DbmFind(Find):
    """By reading everything. A real store has indexes: what is due must cost what is due, not what is stored."""

    def __init__(self, rows: Rows, reader: RowReader, load: DbmLoad) -> None:
        self._rows, self._reader, self._load = rows, reader, load

    def job_ids(self, page: JobPage) -> list[str]:
        return [id for id, _ in self._rows.every("job") if page.has(id)][: page.limit]

    def jobs_of(self, target: str | None) -> Sequence[str]:
        return [id for id, row in self._rows.every("job") if target is None or row["target"] == target]

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        due = [id for at, id in self._by("decide_at", replica, leads) if moment(at) <= now]
        priorities = {id: row["priority"] for id, row in self._rows.every("job")}
        return sorted(due, key=lambda id: -priorities[id])[:limit]

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        return next((moment(at) for at, _ in self._by("decide_at", replica, leads)), None)

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        only = {id: row["leader_only"] for id, row in self._rows.every("job")}
        return [Upcoming(moment(at), only[id]) for at, id in self._by("decide_at", replica, leads)[:limit]]

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        return [id for at, id in self._by("plan_at") if moment(at) <= until][:limit]

    def soonest_plan(self) -> datetime | None:
        return next((moment(at) for at, _ in self._by("plan_at")), None)

    def _by(
        self, column: str, replica: ReplicaRecord | None = None, leads: bool = True
    ) -> list[tuple[int, str]]:
        """Moments and ids, the first ones first; of a replica: for tasks that it knows."""
        aside = self._reader.registry.aside
        return sorted(
            (row[column], id)
            for id, row in self._rows.every("job")
            if row[column] is not None and id not in aside
            if replica is None or (row["target"] in replica.targets and (leads or not row["leader_only"]))
        )

    def unknown_targets(self) -> Sequence[TargetRecord]:
        known = {name for replica in self._load.replicas() for name in replica.targets}
        return list(self._load.targets([name for name, _ in self._rows.every("target") if name not in known]))

    def knowing(self, target: str) -> frozenset[str]:
        return frozenset(replica.id for replica in self._load.replicas() if target in replica.targets)

    def fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        return newest(self._load.every_fire() if keys is None else self._load.fires(keys), query)

    def events(self, since: datetime) -> Iterable[JobEvent]:
        ids = [id for id, _ in self._rows.every("events")]
        events = [event for some in self._load.events(ids).values() for event in some if event.at >= since]
        return sorted(events, key=lambda event: event.at)[-MOST_EVENTS:]

    def entries(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        found = [each for each in self._rows.every("entry") if each[0].startswith(prefix)]
        return [each for each in found if each[0] > after][:limit]

    def count_entries(self, prefix: str) -> int:
        return sum(1 for key, _ in self._rows.every("entry") if key.startswith(prefix))


class DbmSave(Save):
    def __init__(self, rows: Rows, load: DbmLoad) -> None:
        self._rows, self._load = rows, load

    def save(self, changes: Changes) -> None:
        for change in changes.jobs:
            job = change.record.job
            columns = {"target": job.lane, "leader_only": job.leader_only, "priority": job.priority}
            moments = {"decide_at": ticks(change.decide_at), "plan_at": ticks(change.plan_at)}
            self._rows.put("job", change.record.id, columns | moments | {"record": to_json(change.record)})
            self._rows.put("target", job.lane, to_json(change.target))
        for id, at in changes.decide_soon.items():
            self._rows.put("job", id, {**self._rows.get("job", id), "decide_at": ticks(at)})
        for event in changes.events:
            earlier = self._rows.get("events", event.job_id) or []
            self._rows.put("events", event.job_id, [*earlier, to_json(event)])
        for target in changes.targets:
            self._rows.put("target", target.name, to_json(target))
        for key, fire in changes.fires.items():
            self._rows.put("fire", key, None if fire is None else to_json(fire))
        for key, entry in changes.entries.items():
            self._rows.put("entry", key, entry)
        for each in changes.replicas:
            self._rows.put("replica", each.id, None if each.replica is None else to_json(each.replica))
        if changes.lease is not None:
            self._rows.put("lease", "leader", to_json(changes.lease))

    def withdraw_planned(self, job_id: str, now: datetime) -> Iterable[str]:
        fires = [f for f in self._load.every_fire() if f.job_id == job_id and f.state is State.PENDING]
        return [fire.key for fire in fires if fire.scheduled and fire.due_at > now]

    def prune_before(self, before: datetime) -> int:
        old = [f for f in self._load.every_fire() if f.finished_at is not None and f.finished_at < before]
        for fire in old:
            self._rows.put("fire", fire.key, None)
        for id, events in self._load.events([id for id, _ in self._rows.every("events")]).items():
            self._rows.put("events", id, to_json(needed_events(events, before)))
        return len(old)


def store_from(url: str, namespace: str) -> DbmStore:
    """The entry point of `dbm://` URLs: `dbm:///jobs` is a file from here, `dbm:////var/lib/jobs` one from the root."""
    path = unquote(urlsplit(url).path.removeprefix("/"))
    if not path:
        raise ConfigurationError(
            "the store URL (dbm://…) names no file; use three slashes, as in dbm:///jobs"
        )
    return DbmStore(Path(f"{path}-{namespace}"))


class DbmStore(Mirror):
    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._hint = Hint(path.with_suffix(".hint"))

    async def open(self) -> None:
        """It is opened for each step."""

    async def close(self) -> None:
        """Nothing is held between steps."""

    async def wait(self, seconds: float) -> bool:
        return await self._hint.wait(seconds)

    async def _write(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(lambda: self._take(step, *args, **kwargs))

    def _take(self, step: Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One step, alone: the lock is taken before the time is read, so that steps follow each other in its order."""
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with dbm.open(str(self._path), "c", 0o600) as db:
                rows, reader = Rows(db), RowReader(self.unreadable)
                load = DbmLoad(rows, reader)
                work = UnitOfWork(Backend(reader, load, DbmFind(rows, reader, load), DbmSave(rows, load)))
                work.at = moment_of(self._clock)
                reply = step(work, work.at, *args, **kwargs)
                work.save()
                rows.commit()
        if work.notify:
            self._hint.give()
        return reply
