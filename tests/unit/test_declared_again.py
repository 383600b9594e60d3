"""What could not be stored is declared again: a job that follows one whose row cannot be read, or too many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fencepost import Scheduler
from fencepost.errors import StoreUnavailable
from fencepost.model import Job
from fencepost.model.triggers import every
from fencepost.model.triggers.following import After
from fencepost.store.base import JobPut, PutJob
from fencepost.store.memory import MemoryStore
from fencepost.store.unreadable import Unreadable
from tests.unit.apps.cluster import HEARTBEAT, Cluster


def test_it_is_stored_when_its_parent_can_be_read() -> None:
    cluster = Cluster()
    parent, child = Job("parent", "body", every(minutes=1)), Job("child", "body", After(("parent",)))
    cluster.add(parent)
    cluster.run(1.0)
    state = cluster.memory.state
    row = state.jobs.rows["parent"]
    state.set_aside(Unreadable("job", "parent", "a test", "parent", holds=True), row)
    member = cluster.add(child)
    cluster.run(3 * HEARTBEAT)
    assert "child" not in state.jobs.rows
    told = [event.detail for _, event in member.events if event.kind == "job.refused"]
    assert told == [
        "child: unreadable: it follows parent, and that job cannot be read; see `fencepost doctor`"
    ]
    state.broken.mended("job", "parent")
    state.jobs.rows["parent"] = row
    cluster.run(3 * HEARTBEAT)
    assert state.jobs.rows["parent"].children == ("child",)
    assert "child" in state.jobs.rows


class TakesFew(MemoryStore):
    """A store that cannot write many jobs at once: its server, or this process, is short of processor time."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.refused: list[int] = []

    async def put_jobs(self, puts: Sequence[PutJob]) -> tuple[JobPut, ...]:
        if len(puts) > self.most:
            self.refused.append(len(puts))
            raise StoreUnavailable("a step took longer than a second")
        return await super().put_jobs(puts)


async def declared(store: MemoryStore, number: int) -> None:
    scheduler = Scheduler(store)
    for each in range(number):
        scheduler.job(every(days=300), id=f"job{each}")(print)
    async with asyncio.timeout(60), scheduler:
        while len(await store.jobs()) < number:
            await asyncio.sleep(0.05)


async def test_jobs_that_are_too_many_for_one_step_are_declared_in_several() -> None:
    await declared(TakesFew(40), 600)


async def test_what_failed_is_not_tried_again_and_again() -> None:
    """Steps grew until one failed, which may take seconds, and the next ones grew to the same size."""
    store = TakesFew(300)
    await declared(store, 2400)
    assert len(store.refused) <= 2, store.refused
