"""How Redis finds rows. What the step has noted, and not yet written, is put in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from fencepost.model import FireRecord, JobEvent, ReplicaRecord
from fencepost.store.backend import Find
from fencepost.store.base import FireQuery, JobPage, Upcoming
from fencepost.store.codec import micros, moment
from fencepost.store.reader import RowReader
from fencepost.store.redis import pages, scripts
from fencepost.store.redis.load import RedisLoad
from fencepost.store.redis.save import RedisSave
from fencepost.store.redis.step import Step, chunks
from fencepost.store.rows import MOST_EVENTS, TargetRecord
from fencepost.store.tables import after_all, keys_of, newest


class RedisFind(Find):
    def __init__(self, step: Step, reader: RowReader, load: RedisLoad, save: RedisSave) -> None:
        self._step = step
        self._reader = reader
        self._load = load
        self._noted = save

    def job_ids(self, page: JobPage) -> list[str]:
        return sorted(id for id in self._step.call("HKEYS", self._step.keys.jobs) if page.has(id))[
            : page.limit
        ]

    def jobs_of(self, target: str | None) -> Sequence[str]:
        ids: list[str] = self._step.call("HKEYS", self._step.keys.jobs)
        if target is None:
            return ids
        return [record.id for record in self._load.jobs(ids) if record.job.lane == target]

    def busy_jobs(self) -> Sequence[str]:
        """To read all would take so long that another replica would always change one of them."""
        return list({row[0] for row in self._step.script(scripts.ACTIVE)})

    # --- when to decide or plan which job ------------------------------------------------------------------

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        found = sorted(self._first_decisions(replica, leads, limit, upto=now))
        return [id for _, _, id, _ in found[:limit]]

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        if replica is None:
            (soonest,) = self._step.script(scripts.DUE, "", "", "", "")
            return moment(int(soonest)) if soonest else None
        moments = (decide_at for _, decide_at, *_ in self._first_decisions(replica, leads, 1))
        return moment(first) if (first := min(moments, default=None)) is not None else None

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        found = sorted((at, id, only) for _, at, id, only in self._first_decisions(replica, leads, limit))
        return [Upcoming(moment(at), only) for at, _, only in found[:limit]]

    def _first_decisions(
        self, replica: ReplicaRecord, leads: bool, limit: int, upto: datetime | None = None
    ) -> list[tuple[int, int, str, bool]]:
        """The first of each priority that are stored, with what this step has changed put in their place. Each with
        its priority, the higher the less, the moment, and whether it is for the leader only."""
        noted, end = self._noted.jobs, "+inf" if upto is None else micros(upto)
        passed = {*noted, *self._reader.registry.aside}
        stored = self._stored_decisions(replica.id, leads, limit + len(passed), end)
        read = zip(stored[2::4], stored[1::4], stored[::4], stored[3::4], strict=True)
        found = [
            (-int(priority), int(decide_at), id, int(only) == 1)
            for priority, decide_at, id, only in read
            if id not in passed
        ]
        found = [each for each in found if upto is None or each[1] <= micros(upto)]
        for id, change in noted.items():
            job, decide_at = change.record.job, change.decide_at
            known = job.lane in replica.targets and (leads or not job.leader_only)
            if known and decide_at is not None and (upto is None or decide_at <= upto):
                found.append((-job.priority, micros(decide_at), id, job.leader_only))
        return found

    def _stored_decisions(self, replica: str, leads: bool, limit: int, end: int | str) -> Sequence[str]:
        """As they were read when the step began, if those are enough."""
        read = self._step.first_decisions
        if (read.replica, read.leads) == (replica, leads) and limit <= read.most:
            return read.found
        found: Sequence[str] = self._step.script(scripts.DUE, replica, int(leads), end, limit)
        return found

    def due_plans(self, until: datetime, limit: int) -> list[str]:
        aside = set(self._reader.registry.aside)
        ids: list[str] = self._step.call(
            "ZRANGEBYSCORE", self._step.keys.plan, "-inf", micros(until), "LIMIT", 0, limit + len(aside)
        )
        return [id for id in ids if id not in aside][:limit]

    def soonest_plan(self) -> datetime | None:
        aside = set(self._reader.registry.aside)
        first = self._step.call("ZRANGE", self._step.keys.plan, 0, len(aside), "WITHSCORES")
        moments = [int(first[n + 1]) for n in range(0, len(first), 2) if first[n] not in aside]
        return moment(moments[0]) if moments else None

    # --- events, targets, fires -----------------------------------------------------------------------------

    def events(self, since: datetime) -> Iterable[JobEvent]:
        args = ("+inf", micros(since), "LIMIT", 0, MOST_EVENTS)
        ids = self._step.call("ZREVRANGEBYSCORE", self._step.keys.noted, *args)
        return [event for events in self._load.events(ids).values() for event in events]

    def unknown_targets(self) -> Sequence[TargetRecord]:
        names: set[str] = set(self._step.call("ZRANGE", self._step.keys.unknown, 0, -1))
        gone = [id for id, replica in self._noted.replicas.items() if replica is None]
        lost = Counter(name for id in gone for name in self._load.targets_of(id))
        for chunk in chunks(list(lost)):
            counts = self._step.call("HMGET", self._step.keys.knowers, *chunk)
            self._load.known_by.update(zip(chunk, counts, strict=True))
            names |= {
                name for name, count in zip(chunk, counts, strict=True) if int(count or 0) <= lost[name]
            }
        return [each for each in self._load.targets(sorted(names)) if each.name not in self._load.unheard_of]

    def knowing(self, target: str) -> frozenset[str]:
        replicas: dict[str, ReplicaRecord | None] = {each.id: each for each in self._load.replicas()}
        replicas.update(self._noted.replicas)
        return frozenset(id for id, each in replicas.items() if each is not None and target in each.targets)

    def fires(self, query: FireQuery) -> list[FireRecord]:
        keys = keys_of(query)
        if keys is not None:
            return newest(self._load.fires(keys), query)
        return pages.find(self._step.call, self._step.keys, query, self._reader.registry)

    # --- entries --------------------------------------------------------------------------------------------

    def entries(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        keys, end = self._step.keys, f"({after_all(prefix)}"
        begin = f"({after}" if after >= prefix else f"[{prefix}"
        found = self._step.call("ZRANGEBYLEX", keys.entry_keys, begin, end, "LIMIT", 0, limit)
        texts = self._step.call("HMGET", keys.entries, *found) if found else []
        return [(key, text) for key, text in zip(found, texts, strict=True) if text is not None]

    def count_entries(self, prefix: str) -> int:
        keys, end = self._step.keys, f"({after_all(prefix)}"
        return int(self._step.call("ZLEXCOUNT", keys.entry_keys, f"[{prefix}", end))
