"""What a caller may see. A token may be restricted to patterns of job ids; but jobs share limits and follow each other,
so what is on record of a job that it may see names jobs that it may not.

Everything that such a caller reads passes through its `Sight`, as *records*, before anything is made of them: what is
made of a record without hidden names, be it JSON, a sentence or a picture, cannot contain one. Code that answers a
caller is given a `VisibleStore` in place of the store. Its `whole` is for readings that all callers share; what comes
of those passes through the sight afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fencepost.insight.board import BoardEntry, Reading, entry_of, pages
from fencepost.insight.cluster import Cluster
from fencepost.insight.pages import Cursor, page_of_fires
from fencepost.model import FireRecord, JobEvent, JobRecord, changed, job_of
from fencepost.model.jobs import tasks_of
from fencepost.model.notices import Notice
from fencepost.model.triggers import Trigger
from fencepost.model.triggers.following import After
from fencepost.store.base import Claim, Evidence, FireQuery, JobPage, Readable, Roster, Store
from fencepost.store.unreadable import UnreadableRows

Sees = Callable[[str], bool]

UNSEEN = "a job this token may not see"
"""In place of the id of a job, or the key of a fire. No id can be spelled like this."""
_KEY = re.compile(r"[A-Za-z0-9_.:-]+(?:@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z|![A-Za-z0-9_.:-]+)")
NAMING = ("reason", "refers_to", "by", "cancelled_by")
"""Fields of a fire in which Fencepost names fires of other jobs. All others are about the fire itself, or are values of
the job's own code."""


class Sight:
    """Which jobs a caller sees. Its methods return what they are given if nothing of it is hidden."""

    def __init__(self, sees: Sees | None = None) -> None:
        """`sees` None: every job."""
        self.sees_only = sees

    @property
    def is_whole(self) -> bool:
        return self.sees_only is None

    def sees(self, job_id: str) -> bool:
        return self.sees_only is None or self.sees_only(job_id)

    def name(self, job_id: str) -> str:
        return job_id if self.sees(job_id) else UNSEEN

    def key(self, key: str) -> str:
        return key if self.sees(job_of(key)) else UNSEEN

    def text(self, text: str) -> str:
        """Without the keys of hidden fires."""
        return _KEY.sub(lambda found: self.key(found[0]), text)

    def fire(self, fire: FireRecord) -> FireRecord:
        """Of a hidden one only its state is left."""
        if self.is_whole:
            return fire
        if not self.sees(fire.job_id):
            return FireRecord(UNSEEN, UNSEEN, fire.due_at, scheduled=fire.scheduled, state=fire.state)
        values = {name: value for name in NAMING if (value := getattr(fire, name))}
        shown = {name: self.text(value) for name, value in values.items()}
        if fire.refers_to is not None:
            shown["refers_to"] = self.key(fire.refers_to)
        return fire if shown == values else changed(fire, **shown)

    def trigger(self, trigger: Trigger | None) -> Trigger | None:
        if not isinstance(trigger, After) or all(map(self.sees, trigger.parents)):
            return trigger
        return _AfterUnseen(tuple(dict.fromkeys(map(self.name, trigger.parents))), trigger.when)

    def job(self, record: JobRecord) -> JobRecord:
        """Of a job that is seen."""
        if self.is_whole:
            return record
        trigger, children = self.trigger(record.job.trigger), tuple(filter(self.sees, record.children))
        segments = tuple(changed(each, trigger=self.trigger(each.trigger)) for each in record.segments)
        if (trigger, children, segments) == (record.job.trigger, record.children, record.segments):
            return record
        return changed(record, job=changed(record.job, trigger=trigger), children=children, segments=segments)

    def claim(self, claim: Claim) -> Claim:
        """For the worker that runs it, which reads it back: a trigger with hidden names is left out."""
        fire, trigger = self.fire(claim.fire), self.trigger(claim.job.trigger)
        return Claim(fire, claim.job if trigger is claim.job.trigger else changed(claim.job, trigger=None))

    def definition(self, value: Any) -> Any:
        """Of a job, or a part of one, as JSON."""
        if isinstance(value, dict):
            if value.get("type") == "after" and isinstance(parents := value.get("parents"), list):
                return {**value, "parents": list(dict.fromkeys(self.name(str(each)) for each in parents))}
            return {name: self.definition(each) for name, each in value.items()}
        return [self.definition(each) for each in value] if isinstance(value, list) else value

    def event(self, event: JobEvent) -> JobEvent:
        """Of a job that is seen."""
        if self.is_whole:
            return event
        values = {name: value for name in ("trigger", "before", "after") if (value := getattr(event, name))}
        shown = {name: self.definition(dict(value)) for name, value in values.items()}
        return event if shown == values else replace(event, **shown)

    def notice(self, notice: Notice) -> Notice:
        """Of a job that is seen."""
        reason = notice.reason and self.text(notice.reason)
        return notice if reason == notice.reason else replace(notice, reason=reason)

    def entry(self, entry: BoardEntry, cluster: Cluster) -> BoardEntry:
        """Of a job that is seen."""
        if self.is_whole or entry.record is None:
            return entry
        record, active = self.job(entry.record), [self.fire(fire) for fire in entry.active]
        tail = self.fire(entry.tail) if entry.tail is not None else None
        if record is entry.record and tail is entry.tail and active == list(entry.active):
            return entry
        return entry_of(record, cluster, active, tail, entry.orphaned, entry.pause, entry.rivals, entry.mark)


EVERYTHING = Sight()


@dataclass(frozen=True, slots=True)
class _AfterUnseen(After):
    """With parents that have no names."""

    def __post_init__(self) -> None: ...


class VisibleStore(Readable):
    """A store as far as a caller sees it: a hidden job, and its fires, are not there. It only reads."""

    def __init__(self, whole: Store, sight: Sight = EVERYTHING) -> None:
        self.whole = whole
        self.sight = sight

    @property
    def unreadable(self) -> UnreadableRows:
        """Of the whole store: to be asked about jobs that are seen."""
        return self.whole.unreadable

    async def roster(self) -> Roster:
        return await self.whole.roster()

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return await self.whole.evidence(replicas)

    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        if page is None or self.sight.is_whole:
            return self._jobs(await self.whole.jobs(ids, page))
        found: list[JobRecord] = []
        async for records in pages(self.whole, page):  # a page is full, whatever is passed over
            found += self._jobs(records)
            if len(found) >= page.limit:
                break
        return tuple(found[: page.limit])

    def _jobs(self, records: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
        return tuple(self.sight.job(record) for record in records if self.sight.sees(record.id))

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        if self.sight.is_whole:
            return await self.whole.find_fires(query)
        return tuple((await self.page_of_fires(query))[0])

    async def page_of_fires(
        self, query: FireQuery, skip: int = 0, wanted: Callable[[FireRecord], bool] | None = None
    ) -> tuple[Sequence[FireRecord], Cursor | None]:
        """As `insight.pages.page_of_fires` has it."""
        sees = self.sight.sees
        if self.sight.is_whole:
            return await page_of_fires(self.whole, query, skip, wanted)
        if query.job_id is not None and not sees(query.job_id):
            return (), None

        def shown(fire: FireRecord) -> bool:
            return sees(fire.job_id) and (wanted is None or wanted(fire))

        if query.key is not None or query.keys:
            return [self.sight.fire(fire) for fire in await self.whole.find_fires(query) if shown(fire)], None
        rows, next = await page_of_fires(self.whole, query, skip, shown)
        return [self.sight.fire(fire) for fire in rows], next

    async def history(self, job_id: str) -> tuple[JobEvent, ...]:
        return self._events(await self.whole.history(job_id))

    async def history_since(self, since: datetime) -> tuple[JobEvent, ...]:
        return self._events(await self.whole.history_since(since))

    def _events(self, events: Sequence[JobEvent]) -> tuple[JobEvent, ...]:
        return tuple(self.sight.event(event) for event in events if self.sight.sees(event.job_id))

    async def tasks(self) -> frozenset[str]:
        """Those of live replicas that the caller may name: as a job it sees has it, or as one could be called."""
        lanes = [lane for replica in (await self.roster()).replicas for lane in replica.targets]
        if self.sight.is_whole:
            return frozenset(tasks_of(lanes))
        known: set[str] = set()
        async for records in pages(self.whole):
            known |= {record.job.target for record in records if self.sight.sees(record.id)}
        return frozenset(name for name in tasks_of(lanes) if name in known or self.sight.sees(name))


def visible(reading: Reading, sees: Sees | None) -> Reading:
    """The jobs, and what the replicas say of them. `sees` None: everything."""
    if sees is None:
        return reading
    sight, cluster = Sight(sees), reading.cluster
    entries = [sight.entry(entry, cluster) for entry in reading.entries if sees(entry.id)]
    tasks = {entry.record.job.lane for entry in entries if entry.record}
    rows = [
        row
        for row in reading.unreadable
        if (row.job_id and sees(row.job_id)) or (row.kind == "target" and row.key in tasks)
    ]
    return Reading(_cluster(cluster, sight, tasks), entries, reading.more, rows)


def _cluster(cluster: Cluster, sight: Sight, tasks: Set[str]) -> Cluster:
    def of(keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(key for key in keys if sight.sees(job_of(key)))

    replicas = tuple(
        changed(
            replica,
            targets=tuple(task for task in replica.targets if task in tasks),
            lingering=of(replica.lingering),
        )
        for replica in cluster.roster.replicas
    )
    running = {replica: of(keys) for replica, keys in cluster.running.items()}
    active = {id: [*map(sight.fire, fires)] for id, fires in cluster.active.items() if sight.sees(id)}
    roster = replace(cluster.roster, replicas=replicas)
    return replace(cluster, roster=roster, running=running, active=active)
