"""A chain as one trace: the jobs that follow each other, and their fires of one due time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fencepost.insight.sentences import fate
from fencepost.insight.visible import UNSEEN
from fencepost.model import FireRecord, JobRecord
from fencepost.model.triggers.following import After, parents_of
from fencepost.store.base import FireQuery, Readable

MOST_JOBS = 50
"""Of a chain, that are shown."""


@dataclass(frozen=True)
class ChainLink:
    """A job of a chain, and its fire."""

    job_id: str
    step: int
    """From 1 on: it comes after jobs of the steps before."""
    parents: tuple[str, ...]
    fire: FireRecord | None = None
    """None: there is none of this due time, or not yet."""
    waits_for: tuple[str, ...] = ()
    """Parents whose fires have not ended, if it has none yet."""

    @property
    def words(self) -> str:
        """How it stands: `succeeded`, `waits for extract`."""
        if self.fire is not None:
            return self.fire.state.value
        return f"waits for {' and '.join(self.waits_for)}" if self.waits_for else "no fire"


async def chain_of(store: Readable, record: JobRecord) -> list[ChainLink]:
    """The jobs before this one, and all that follow those, in their order. Empty: it is in no chain."""
    found = {record.id: record}
    newest: Sequence[JobRecord] = [record]
    while newest and len(found) < MOST_JOBS:
        newest = await _others(store, found, (id for job in newest for id in parents_of(job.job.trigger)))
        found |= {job.id: job for job in newest}
    newest = list(found.values())
    while newest and len(found) < MOST_JOBS:
        children = await _others(store, found, (id for job in newest for id in job.children))
        # One that has followed it, and does no more, is still among a job's children.
        newest = [job for job in children if not found.keys().isdisjoint(parents_of(job.job.trigger))]
        found |= {job.id: job for job in newest}
    return _links(found) if len(found) > 1 else []


async def _others(store: Readable, found: Mapping[str, JobRecord], ids: Iterable[str]) -> Sequence[JobRecord]:
    wanted = sorted(set(ids) - found.keys() - {UNSEEN})[: MOST_JOBS - len(found)]
    return await store.jobs(wanted) if wanted else ()


def _links(jobs: Mapping[str, JobRecord]) -> list[ChainLink]:
    parents = {
        id: tuple(each for each in parents_of(job.job.trigger) if each in jobs) for id, job in jobs.items()
    }
    steps: dict[str, int] = {}
    while len(steps) < len(jobs):  # the store refuses circles
        for id in jobs.keys() - steps.keys():
            if steps.keys() >= set(parents[id]):
                steps[id] = 1 + max((steps[parent] for parent in parents[id]), default=0)
    links = [ChainLink(id, steps[id], parents[id]) for id in jobs]
    return sorted(links, key=lambda link: (link.step, link.job_id))


async def trace_of(store: Readable, record: JobRecord, fire: FireRecord) -> list[ChainLink]:
    """The chain with the fires that belong together: their keys end alike. Empty: this one stands alone."""
    links = await chain_of(store, record)
    if not links:
        return []
    ending = fire.key[len(fire.job_id) :]
    rows = await store.find_fires(FireQuery(keys=tuple(link.job_id + ending for link in links)))
    fires = {row.job_id: row for row in rows} | {fire.job_id: fire}
    for link in links:
        if (
            link.job_id not in fires
            and fire.scheduled
            and (row := await _covering(store, link.job_id, fire.due_at))
        ):
            fires[link.job_id] = row
    trace = [_with_fire(link, fires) for link in links]
    # One by hand, in the middle of a chain, follows no other.
    others = [link for link in trace if link.job_id != fire.job_id and (link.fire or link.waits_for)]
    return trace if others or fire.scheduled else []


async def _covering(store: Readable, job_id: str, due: datetime) -> FireRecord | None:
    """The row of many fires that has this one."""
    rows = await store.find_fires(
        FireQuery(job_id=job_id, since=due, until=due + datetime.resolution, limit=10)
    )
    return next((row for row in rows if row.scheduled), None)


def _with_fire(link: ChainLink, fires: Mapping[str, FireRecord]) -> ChainLink:
    open_parents = [id for id in link.parents if id in fires and not fires[id].state.final]
    return replace(link, fire=fires.get(link.job_id), waits_for=tuple(open_parents))


def in_words(links: Iterable[ChainLink]) -> str:
    """`extract succeeded → load failed → report was skipped`; what belongs to one step stands side by side."""
    steps: dict[int, list[str]] = {}
    for link in links:
        steps.setdefault(link.step, []).append(
            f"{link.job_id} {fate(link.fire) if link.fire else link.words}"
        )
    return " → ".join(", ".join(each) for each in steps.values())


async def parents_then(
    store: Readable, trigger: After, start: datetime, width: timedelta
) -> tuple[str, bool]:
    """What the parents of a job that has no fire then were doing, in words; and whether one is still to end."""
    said, waits = [], False
    for parent in trigger.parents:
        if parent == UNSEEN:
            said.append(UNSEEN)
            continue
        query = FireQuery(job_id=parent, since=start, until=start + width, limit=10)
        fire = next((row for row in await store.find_fires(query) if row.scheduled), None)
        waits = waits or (fire is not None and not fire.state.final)
        said.append(f"{fire.key}, which {fate(fire)}" if fire else f"{parent}, which had no fire then")
    return " and ".join(said), waits
