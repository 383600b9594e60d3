"""How many fires ended in which state, kept from one reading to the next: the past is counted once.

A unit (a minute, an hour) whose fires are all final hardly changes: it may be forgotten, or, seldom, filled in later.
Its count is reused for a tenth of its age. Counting for one answer has a budget; what does not fit into it is counted
for the next one, and the answer says from when on it is whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fencepost.errors import FencepostError
from fencepost.insight.pictures.counting import Counted, read_and_counted, spread
from fencepost.insight.pictures.window import floor
from fencepost.insight.visible import Sees
from fencepost.model import State
from fencepost.store.base import Store
from fencepost.store.counting import CountQuery, CountsFires

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

BUDGET = 0.05
"""Seconds of counting for one answer, beside the newest units, which are always counted."""
SETTLED_AFTER = timedelta(minutes=2)
BELIEVED = 0.1
"""Of its age."""
MOST_UNITS = 2_400
"""90 days of hours."""
MOST_JOBS = 200
RESTS = 3.0
"""What is counted in the background rests so many times as long as it works."""
QUICK, SLOW = 0.01, 0.03
"""Seconds: a step that takes less is followed by a larger one, one that takes more by a smaller one."""
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LONG = timedelta(hours=6)
"""Windows that are longer are counted by the hour."""
OPEN = frozenset(state.value for state in State if not state.final)


@dataclass(frozen=True, slots=True)
class Unit:
    states: Counter[str]
    counted_at: datetime

    def is_believed(self, at: datetime, now: datetime) -> bool:
        return now - self.counted_at < (self.counted_at - at) * BELIEVED


class Tally:
    """Of all jobs, or of one, by one unit. Belongs to the reading thread."""

    def __init__(self, unit: timedelta, job_id: str | None = None) -> None:
        self.unit = unit
        self._job_id = job_id
        self._known: dict[datetime, Unit] = {}
        self._counting: asyncio.Task[None] | None = None
        self._step = 1
        """Units counted in one step of the store."""

    async def counted(
        self, reader: Reader, counting: CountsFires, since: datetime, until: datetime, now: datetime
    ) -> Counted:
        """From the unit that has `since` on."""
        begun, first = reader.steady(), floor(since, self.unit)
        found: dict[datetime, Counter[str]] = {}
        whole_since = first
        for start, end in self._unknown(first, until, now):
            edge = end
            while edge > start:
                if reader.steady() - begun > BUDGET and edge < now - SETTLED_AFTER:
                    break
                begin = max(start, edge - self._step * self.unit)
                await self._count(reader, counting, begin, edge, now, found)
                edge = begin
            if edge > start:  # the budget is spent: what was counted earlier is better than nothing
                whole_since = self._known_back_to(edge, first)
                self._go_on(reader, counting, first, edge)
                break
        for at, unit in self._known.items():
            if whole_since <= at < until:
                found.setdefault(at, unit.states)
        query = CountQuery(whole_since, until, self.unit, self._job_id)
        for stretch in await counting.stretches(query):
            for at, number in spread(stretch, whole_since, until, self.unit):
                found[at] = found.get(at, Counter()) + Counter({stretch.state: number})
        return Counted(found, whole_since)

    def _go_on(self, reader: Reader, counting: CountsFires, first: datetime, until: datetime) -> None:
        """Count the rest in the background."""
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count_back(reader, counting, first, until))

    async def _count_back(
        self, reader: Reader, counting: CountsFires, first: datetime, until: datetime
    ) -> None:
        with suppress(FencepostError):  # the next request meets the same error and reports it
            for start, end in list(self._unknown(first, until, (await reader.cluster()).now)):
                edge = end
                while edge > start:
                    begin, begun = max(start, edge - self._step * self.unit), reader.steady()
                    await self._count(reader, counting, begin, edge, (await reader.cluster()).now, {})
                    edge = begin
                    await asyncio.sleep(RESTS * (reader.steady() - begun))

    def _unknown(
        self, first: datetime, until: datetime, now: datetime
    ) -> Iterator[tuple[datetime, datetime]]:
        """Neighbouring units that are to be counted, the newest first."""
        end: datetime | None = None
        at = floor(until - datetime.resolution, self.unit)
        while at >= first:
            unit = self._known.get(at)
            if unit is not None and unit.is_believed(at, now):
                if end is not None:
                    yield at + self.unit, end
                    end = None
            elif end is None:
                end = at + self.unit
            at -= self.unit
        if end is not None:
            yield first, end

    async def _count(
        self,
        reader: Reader,
        counting: CountsFires,
        begin: datetime,
        end: datetime,
        now: datetime,
        found: dict[datetime, Counter[str]],
    ) -> None:
        begun = reader.steady()
        units: dict[datetime, Counter[str]] = {}
        limit = min(end, now + datetime.resolution)
        for at, state, number in await counting.count_fires(
            CountQuery(begin, limit, self.unit, self._job_id)
        ):
            units.setdefault(at, Counter())[state] += number
        took = reader.steady() - begun
        self._step = (
            min(self._step * 2, 256)
            if took < QUICK
            else max(self._step // 2, 1)
            if took > SLOW
            else self._step
        )
        at = begin
        while at < end:
            states = units.get(at, Counter())
            found[at] = states
            if at + self.unit <= now - SETTLED_AFTER and not OPEN & states.keys():
                self._known[at] = Unit(states, now)
            at += self.unit
        if len(self._known) > MOST_UNITS:
            for each in sorted(self._known)[: len(self._known) - MOST_UNITS]:
                del self._known[each]

    def _known_back_to(self, edge: datetime, first: datetime) -> datetime:
        while edge > first and edge - self.unit in self._known:
            edge -= self.unit
        return edge


class Tallies:
    """Belongs to the reading thread."""

    def __init__(self) -> None:
        self._of_all = {unit: Tally(unit) for unit in (MINUTE, HOUR)}
        self._of_jobs: dict[tuple[str, timedelta], Tally] = {}

    def of(self, job_id: str | None, unit: timedelta) -> Tally:
        if job_id is None:
            return self._of_all[unit]
        if (job_id, unit) not in self._of_jobs and len(self._of_jobs) >= MOST_JOBS:
            self._of_jobs.clear()
        return self._of_jobs.setdefault((job_id, unit), Tally(unit, job_id))


async def counted(
    reader: Reader,
    store: Store,
    since: datetime,
    until: datetime,
    unit: timedelta | None = None,
    job_id: str | None = None,
    sees: Sees | None = None,
) -> Counted:
    """By minutes or hours. `unit` None: by minutes, unless the window is long."""
    now = (await reader.cluster()).now
    if unit is None:
        unit = MINUTE if until - since <= LONG else HOUR
    if store.counting is not None and (sees is None or (job_id is not None and sees(job_id))):
        return await _counted(reader, store.counting, floor(since, unit), until, unit, job_id, now)
    return await read_and_counted(store, floor(since, unit), until, unit, job_id, sees)


async def _counted(
    reader: Reader,
    counting: CountsFires,
    since: datetime,
    until: datetime,
    unit: timedelta,
    job_id: str | None,
    now: datetime,
) -> Counted:
    """The newest hours by the minute: of an hour that is not over, only the last minutes need be counted again."""
    tallies, split = reader.kept.tallies, floor(now, HOUR) - HOUR
    if unit == MINUTE or until <= split:
        return await tallies.of(job_id, unit).counted(reader, counting, since, until, now)
    newest = await tallies.of(job_id, MINUTE).counted(reader, counting, max(since, split), until, now)
    found: dict[datetime, Counter[str]] = {}
    for at, states in newest.by_bucket.items():
        found.setdefault(floor(at, HOUR), Counter()).update(states)
    if since >= split or newest.since > split:
        return Counted(found, newest.since)
    older = await tallies.of(job_id, HOUR).counted(reader, counting, since, split, now)
    return Counted({**older.by_bucket, **found}, older.since)
