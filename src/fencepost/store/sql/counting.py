"""Counting fires in the database, by the indexes that finding them uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from fencepost.model import FireRecord
from fencepost.store.codec import micros, moment
from fencepost.store.counting import MICROSECOND, MOST_STRETCHES, CountQuery, SlimQuery, Stretch
from fencepost.store.sql.statements import Statements
from fencepost.store.threads import WorkerThread

T = TypeVar("T")


class SqlCounting(ABC):
    OF_ALL: Sequence[str]
    """How a database is told to use an index, and a condition: together they give every fire once."""
    OF_JOB: Sequence[str]
    """The same for the fires of one job."""
    STRETCHES: str
    """The same for those that stand for several."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        bucket = f"due_at - due_at % {query.width // MICROSECOND}"
        values: list[Any] = [micros(query.since), micros(query.until)]
        which, places = "due_at >= ? and due_at < ? and last_due_at is null", self.OF_ALL
        if query.job_id is not None:
            which, places, values = f"{which} and job_id = ?", self.OF_JOB, [*values, query.job_id]
        counted = f"select {bucket}, state, count(*) from {{fires}}"
        parts = [f"{counted} {place} and {which} group by 1, 2" for place in places]
        rows = self._sql.all(" union all ".join(parts), *values * len(parts))
        return [(moment(int(at)), state, number) for at, state, number in rows]

    def stretches(self, query: CountQuery) -> list[Stretch]:
        which, values = "last_due_at >= ? and due_at < ?", [micros(query.since), micros(query.until)]
        if query.job_id is not None:
            which, values = f"{which} and job_id = ?", [*values, query.job_id]  # type: ignore[list-item]
        columns = "select due_at, last_due_at, count, state from {fires}"
        rows = self._sql.all(f"{columns} {self.STRETCHES} and {which} limit ?", *values, MOST_STRETCHES)
        return [Stretch(moment(first), moment(last), number, state) for first, last, number, state in rows]

    @abstractmethod
    def slim_fires(self, query: SlimQuery) -> list[FireRecord]: ...


class SqlCounts:
    """The same from elsewhere than the thread of a store."""

    def __init__(self, thread: WorkerThread, counted: Callable[[Callable[[SqlCounting], Any]], Any]) -> None:
        """`counted`: how the thread counts on a connection."""
        self._thread = thread
        self._counted = counted

    async def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        return await self._ask(lambda counting: counting.count_fires(query))

    async def stretches(self, query: CountQuery) -> list[Stretch]:
        return await self._ask(lambda counting: counting.stretches(query))

    async def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        return await self._ask(lambda counting: counting.slim_fires(query))

    async def _ask(self, count: Callable[[SqlCounting], T]) -> T:
        counted: T = await self._thread.run(self._counted, count)
        return counted
