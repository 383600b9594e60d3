"""Where the week is full: fires to come by weekday and hour, and what failed in the past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from fencepost.insight.pages import INSTANT
from fencepost.insight.pictures.tallies import HOUR, counted
from fencepost.insight.pictures.window import floor
from fencepost.insight.views.shapes import calendar
from fencepost.insight.visible import Sees
from fencepost.model import JobRecord, State
from fencepost.model.triggers import Every, Trigger
from fencepost.store.base import Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

WEEK = timedelta(days=7)
FAILURE_DAYS = timedelta(days=90)
FAILED = (State.FAILED, State.LOST, State.MISSED)
BUDGET = 0.05
"""Seconds for which calendars are worked out for one answer; what is left is done for the next ones."""


@dataclass(frozen=True, slots=True)
class Cell:
    weekday: int
    """0 is Monday."""
    hour: int
    count: int


@dataclass(frozen=True, slots=True)
class LoadMap:
    now: datetime
    planned: tuple[Cell, ...]
    """168, of the next 7 days: Monday 0 h first."""
    planned_jobs: int
    """Jobs whose calendar is counted,"""
    jobs: int
    """of so many that have one."""
    busiest: tuple[tuple[datetime, int], ...]
    """The hours with the most fires, up to 5, and how many."""
    failures: tuple[Cell, ...]
    """168, of the last 90 days: failed, lost and missed."""
    failures_since: datetime
    """From when on they are counted."""


async def load_map(reader: Reader, store: Store, tz: tzinfo, sees: Sees | None = None) -> LoadMap:
    """By the clock of this zone."""
    reading = await reader.recent()
    now = reading.now
    records = [e.record for e in reading.entries if e.record is not None and (sees is None or sees(e.id))]
    hours, done, whole = _planned(records, floor(now, HOUR), reader)
    failures, since = await _failures(reader, store, now, tz, sees)
    planned: Counter[tuple[int, int]] = Counter()
    for at, number in hours.items():
        planned[_cell(at, tz)] += number
    return LoadMap(
        now=now,
        planned=_cells(planned),
        planned_jobs=done,
        jobs=whole,
        busiest=tuple(hours.most_common(5)),
        failures=_cells(failures),
        failures_since=since,
    )


def _planned(
    records: Sequence[JobRecord], begin: datetime, reader: Reader
) -> tuple[Counter[datetime], int, int]:
    begun, hours, done, whole = reader.steady(), Counter[datetime](), 0, 0
    triggers = Counter[Trigger]()
    for record in records:
        trigger = calendar(record)
        if trigger is not None and trigger.foreign is None:
            triggers[trigger] += 1
            whole += 1
    # Intervals are counted at once; what takes longer comes last.
    for trigger, number in sorted(triggers.items(), key=lambda each: not isinstance(each[0], Every)):
        if reader.steady() - begun > BUDGET and not _is_kept(trigger, begin):
            continue
        for at, fires in _week(trigger, begin):
            hours[at] += fires * number
        done += number
    return hours, done, whole


_KEPT: dict[tuple[Trigger, datetime], tuple[tuple[datetime, int], ...]] = {}


def _is_kept(trigger: Trigger, begin: datetime) -> bool:
    return (trigger, begin) in _KEPT


def _week(trigger: Trigger, begin: datetime) -> tuple[tuple[datetime, int], ...]:
    """By hour: how many fires. Hours without any are left out."""
    if (trigger, begin) not in _KEPT:
        if len(_KEPT) > 20_000:
            _KEPT.clear()
        _KEPT[trigger, begin] = tuple(_by_hour(trigger, begin))
    return _KEPT[trigger, begin]


def _by_hour(trigger: Trigger, begin: datetime) -> Iterable[tuple[datetime, int]]:
    end, at = begin + WEEK, begin
    while (due := trigger.next_after(at - INSTANT)) is not None and due < end:
        at = floor(due, HOUR)
        yield at, trigger.count_after(at - INSTANT, at + HOUR - INSTANT)
        at += HOUR


async def _failures(
    reader: Reader, store: Store, now: datetime, tz: tzinfo, sees: Sees | None
) -> tuple[Counter[tuple[int, int]], datetime]:
    since = now - FAILURE_DAYS
    counts = await counted(reader, store, since, now + INSTANT, HOUR, sees=sees)
    found: Counter[tuple[int, int]] = Counter()
    for at, states in counts.by_bucket.items():
        found[_cell(at, tz)] += sum(states[state.value] for state in FAILED)
    return found, max(since, counts.since)


def _cell(at: datetime, tz: tzinfo) -> tuple[int, int]:
    local = at.astimezone(tz)
    return local.weekday(), local.hour


def _cells(counts: Counter[tuple[int, int]]) -> tuple[Cell, ...]:
    return tuple(Cell(weekday, hour, counts[weekday, hour]) for weekday in range(7) for hour in range(24))
