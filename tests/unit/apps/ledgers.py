"""A SQLite store with many fires in it that all went well, written in bulk. For looking through, not for running."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from fencepost import Trigger
from fencepost.model import Attempt, FireRecord, Job, State, fire_key
from fencepost.store.base import Plan, Planned, PutJob
from fencepost.store.reader import RowReader
from fencepost.store.sql.save import SqlSave
from fencepost.store.sqlite import SqliteStore
from fencepost.store.sqlite.schema import SqliteNames
from fencepost.store.sqlite.statements import SqliteStatements
from fencepost.store.unreadable import UnreadableRows

START = datetime(2026, 11, 1, tzinfo=UTC)
TOOK = timedelta(milliseconds=10)
CHUNK = 10_000


@dataclass
class Hand:
    """A clock moved by hand."""

    now: datetime = START

    def wall(self) -> datetime:
        return self.now

    def steady(self) -> float:
        return (self.now - START).total_seconds() + 1000


def fill(path: Path, triggers: Mapping[str, Trigger], fires_each: int) -> Hand:
    """Define these jobs, and write the first fires of each as if they had run; a clock just after the last."""
    clock = Hand()
    asyncio.run(_define(path, clock, triggers, fires_each))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for id, trigger in triggers.items():
            rows = _ran(id, trigger, fires_each)
            while chunk := {fire.key: fire for fire in islice(rows, CHUNK)}:
                db.execute("begin immediate")
                SqlSave(SqliteStatements(db, SqliteNames("default")), RowReader(UnreadableRows())).save_fires(
                    chunk
                )
                db.execute("commit")
                clock.now = max(clock.now, *(fire.due_at + TOOK for fire in chunk.values()))
    return clock


async def _define(path: Path, clock: Hand, triggers: Mapping[str, Trigger], fires_each: int) -> None:
    """And say that they are planned up to the last fire."""
    store = SqliteStore(path, clock=clock)
    await store.open()
    await store.put_jobs([PutJob(Job(id, "body", trigger)) for id, trigger in triggers.items()])
    for record in await store.jobs():
        [segment] = record.segments
        last, following = islice(segment.trigger.after(START), fires_each - 1, fires_each + 1)
        row = Planned(last, last)
        plan = Plan(record.id, segment.version, segment.cursor, segment.until, (row,), following)
        assert await store.plan_fires([plan]) == (True,)
    await store.close()


def _ran(id: str, trigger: Trigger, fires: int) -> Iterator[FireRecord]:
    calendar = trigger.resolved(START)
    for token, due in enumerate(islice(calendar.after(START), fires), start=1):
        attempt = Attempt(token, "r1", due, due + TOOK, "succeeded")
        yield FireRecord(
            fire_key(id, due),
            id,
            due,
            state=State.SUCCEEDED,
            token=token,
            replica="r1",
            attempt=1,
            settled=token,
            started_at=due,
            finished_at=due + TOOK,
            attempts=(attempt,),
        )
