"""The fires of one job in a window: all of them where they are few, else some of each bucket.

A fire each second costs no more than one an hour: where there are many, the reading jumps from bucket to bucket. What
has been read stays known while the job's record does not change, and settled fires never change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fencepost.insight.board import Entry
from fencepost.insight.pages import INSTANT
from fencepost.insight.pictures.window import Window, floor
from fencepost.model import FireRecord, JobRecord, changed, error_line
from fencepost.store.base import FireQuery, Store

FEW = 250
"""Rows read in the first step."""
MANY = 1_000
"""Rows that are read as a whole, if there seem to be no more than that."""
MOST_KEPT = 50_000
"""Fires of all samples that are kept."""
KEPT_FOR = timedelta(minutes=5)
"""After that a sample is read anew: fires may have been added to the past, or forgotten."""


@dataclass(frozen=True, slots=True)
class Sample:
    fires: tuple[FireRecord, ...]
    """Newest first, without what is wide."""
    dense_before: datetime | None
    """Buckets before this may have more fires. None: these are all."""
    since: datetime
    until: datetime
    made_at: datetime
    """The store's time."""
    record: JobRecord | None
    """As it was then."""

    @property
    def exact(self) -> bool:
        return self.dense_before is None

    @property
    def settled_until(self) -> datetime:
        """What was due before can only be forgotten. The newest row may still grow."""
        if not self.fires:
            return self.since
        open_ = [fire.due_at for fire in self.fires if not fire.state.final]
        return min([self.fires[0].due_at, *open_])


class Samples:
    """Belongs to the reading thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, timedelta], Sample] = {}

    async def of(self, store: Store, entry: Entry, window: Window) -> Sample:
        known = self._kept.get((entry.id, window.width))
        if known is None or not _is_of_use(known, window):
            found = await _read(store, entry, window, window.since)
        elif _is_unchanged(known, entry, window):
            return known
        else:
            found = _joined(known, await _read(store, entry, window, known.settled_until), window)
        if window.until > window.now:  # who looks at the past looks once
            self._keep(entry.id, window.width, found)
        return found

    def _keep(self, id: str, width: timedelta, sample: Sample) -> None:
        self._kept[id, width] = sample
        if sum(len(each.fires) for each in self._kept.values()) > MOST_KEPT:
            self._kept.clear()


def _is_of_use(known: Sample, window: Window) -> bool:
    return (
        known.since <= window.since < known.settled_until
        and window.past_until >= known.until
        and timedelta() <= window.now - known.made_at < KEPT_FOR
    )


def _is_unchanged(known: Sample, entry: Entry, window: Window) -> bool:
    """A job's record changes with each claim, each end of a run and each decision."""
    return (
        known.record is not None
        and known.record is entry.record
        and not entry.active
        and all(fire.state.final for fire in known.fires)
    )


def _joined(known: Sample, new: Sample, window: Window) -> Sample:
    edge = new.since
    old = [fire for fire in known.fires if fire.due_at < edge and fire.last_due >= window.since]
    dense = max((each for each in (known.dense_before, new.dense_before) if each), default=None)
    if dense is not None and dense <= window.since:
        dense = None
    return replace(
        new,
        fires=(*(fire for fire in new.fires if fire.due_at >= edge), *old),
        dense_before=dense,
        since=window.since,
    )


async def _read(store: Store, entry: Entry, window: Window, since: datetime) -> Sample:
    id, until = entry.id, window.past_until
    blank = Sample((), None, since, until, window.now, entry.record)
    if since >= until:
        return blank
    rows = await store.find_fires(FireQuery(job_id=id, since=since, until=until, limit=FEW))
    if len(rows) == FEW and _seems_few(rows, since, until):
        rows = await store.find_fires(FireQuery(job_id=id, since=since, until=until, limit=MANY))
        if len(rows) < MANY:
            return replace(blank, fires=_slim(rows))
    elif len(rows) < FEW:
        return replace(blank, fires=_slim(rows))
    dense_before = floor(rows[-1].due_at, window.width) + window.width
    found = list(rows)
    edge = dense_before - window.width
    while edge > since:
        newest = await store.find_fires(FireQuery(job_id=id, since=since, until=edge, limit=1))
        if not newest:
            break
        found += newest
        edge = floor(newest[0].due_at, window.width)
    return replace(blank, fires=_slim(found), dense_before=dense_before)


def _seems_few(rows: tuple[FireRecord, ...], since: datetime, until: datetime) -> bool:
    covered = max(until - rows[-1].due_at, INSTANT)
    return len(rows) * ((until - since) / covered) < MANY


def _slim(rows: list[FireRecord] | tuple[FireRecord, ...]) -> tuple[FireRecord, ...]:
    return tuple(
        changed(
            fire,
            error=error_line(fire.error),
            output=None,
            result=None,
            checkpoint=None,
            progress=None,
            args=None,
        )
        for fire in rows
    )
