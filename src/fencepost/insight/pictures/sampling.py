"""The final fires of one job in a window: all of them where they are few, else some of each bucket.

A fire each second costs no more than one an hour: where there are many, the reading jumps from bucket to bucket. What
has been read stays known while the job's record does not change, and settled fires never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fencepost.insight.board import BoardEntry
from fencepost.insight.pictures.window import Window, floor
from fencepost.model import FireRecord, JobRecord, State, changed, error_line
from fencepost.store.base import FireQuery, Store
from fencepost.store.counting import SlimQuery

FEW = 250
"""Rows read in the first step."""
MOST_BUCKETS = 1_000
MOST_KEPT = 50_000
"""Fires of all samples that are kept."""
KEPT_FOR = timedelta(minutes=5)
"""A sample older than this is read again: past fires may have been added, or forgotten."""


@dataclass(frozen=True, slots=True)
class Sample:
    fires: tuple[FireRecord, ...]
    """Newest first; without the wide columns."""
    dense_before: datetime | None
    """Buckets before this may have more fires. None: these are all."""
    since: datetime
    until: datetime
    made_at: datetime
    """The store's time."""
    record: JobRecord | None
    """As it was then."""
    joined_to: int = 0
    """Which sample this one goes on from, by its identity,"""
    joined_at: datetime | None = None
    """and from when on it differs."""

    @property
    def exact(self) -> bool:
        return self.dense_before is None

    @property
    def settled_until(self) -> datetime:
        """Fires due before this can only be forgotten. The newest row may still grow."""
        if not self.fires:
            return self.since
        return self.fires[0].due_at


class Samples:
    """Belongs to the reading thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, timedelta], Sample] = {}

    async def of(self, store: Store, entry: BoardEntry, window: Window) -> Sample:
        known = self._kept.get((entry.id, window.width))
        if known is not None and not _covers(known, window):
            known = None
        if known is not None and _is_unchanged(known, entry):
            return known
        if known is not None and known.settled_until > window.since:
            found = _joined(known, await _read(store, entry, window, known.settled_until), window)
        else:
            found = await _read(store, entry, window, window.since)
        if window.until > window.now:  # a window of the past is rarely asked for again
            self._keep(entry.id, window.width, found)
        return found

    def _keep(self, id: str, width: timedelta, sample: Sample) -> None:
        self._kept[id, width] = sample
        if sum(len(each.fires) for each in self._kept.values()) > MOST_KEPT:
            self._kept.clear()


def _covers(known: Sample, window: Window) -> bool:
    return (
        known.since <= window.since
        and window.past_until >= known.until
        and timedelta() <= window.now - known.made_at < KEPT_FOR
    )


def _is_unchanged(known: Sample, entry: BoardEntry) -> bool:
    """A job's record changes with each claim, each end of a run and each decision."""
    return known.record is not None and known.record is entry.record


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
        joined_to=id(known),
        joined_at=edge,
    )


async def _read(store: Store, entry: BoardEntry, window: Window, since: datetime) -> Sample:
    id, until = entry.id, window.past_until
    blank = Sample((), None, since, until, window.now, entry.record)
    if since >= until:
        return blank
    if store.counting is not None:
        final = await store.counting.slim_fires(SlimQuery(since, until, FEW, id))
        reaching = [fire for fire in final if fire.due_at >= since or reaches(fire, since)]
        rows = list(await _whole(store, reaching))
        is_all = len(final) < FEW
    else:
        found = await store.find_fires(FireQuery(job_id=id, since=since, until=until, limit=FEW))
        rows = [fire for fire in found if fire.state.final]
        is_all = len(found) < FEW
    if is_all:
        return replace(blank, fires=_slim(rows))
    dense_before = floor(rows[-1].due_at, window.width) + window.width
    older = await _some(store, id, since, dense_before - window.width, window.width)
    return replace(blank, fires=_slim([*rows, *older]), dense_before=dense_before)


def reaches(fire: FireRecord, since: datetime) -> bool:
    """Whether something of it lies behind `since`: a run that lasts does."""
    return fire.last_due >= since or fire.finished_at is None or fire.finished_at >= since


async def _whole(store: Store, fires: Sequence[FireRecord]) -> Sequence[FireRecord]:
    """Fires that did not simply succeed are read whole: a mark shows when the first attempt began, and the error."""
    keys = [fire.key for fire in fires if fire.attempt > 1 or fire.state in (State.FAILED, State.LOST)]
    if not keys:
        return fires
    found = await store.find_fires(FireQuery(keys=tuple(keys), limit=len(keys)))
    whole = {fire.key: fire for fire in found}
    return [whole.get(fire.key, fire) for fire in fires]


async def _some(
    store: Store, id: str, since: datetime, until: datetime, width: timedelta
) -> Sequence[FireRecord]:
    """The newest of each bucket, and the newest that did not succeed where the store finds it quickly."""
    if until <= since:
        return ()
    if store.counting is not None:
        asked = SlimQuery(since, until, MOST_BUCKETS, id, width)
        some = await store.counting.slim_fires(asked)
        bad = await store.counting.slim_fires(replace(asked, unsuccessful=True))
        return list({fire.key: fire for fire in (*some, *bad)}.values())
    found: list[FireRecord] = []
    while until > since:
        newest = await store.find_fires(FireQuery(job_id=id, since=since, until=until, limit=1))
        if not newest:
            break
        found += [fire for fire in newest if fire.state.final]
        until = floor(newest[0].due_at, width)
    return found


def _slim(rows: Iterable[FireRecord]) -> tuple[FireRecord, ...]:
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
        if fire.output or fire.error or fire.args or fire.result or fire.checkpoint or fire.progress
        else fire
        for fire in rows
    )
