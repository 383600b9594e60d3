"""Backfills, as the decision about a job's fires sees them: which of their fires may start, and who wants rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fencepost.clock import Moment
from fencepost.model import Backfill, FireRecord, JobRecord, changed
from fencepost.store.rows import Rows


def running_of(active: Iterable[FireRecord]) -> Counter[str]:
    """By backfill: how many of its fires run, or wait to be run again."""
    return Counter(fire.backfill for fire in active if fire.backfill is not None)


def is_held(record: JobRecord, fire: FireRecord, running: Counter[str]) -> bool:
    """Whether a fire of a backfill may not start: that is paused, or as many of its fires run as its limit says."""
    backfill = record.backfill(fire.backfill)
    return backfill is not None and (backfill.paused or running[backfill.name] >= backfill.limit)


def waiting_rows(rows: Rows, at: Moment, record: JobRecord) -> list[FireRecord]:
    """What is due of the job, and all rows of its backfills that wait for their turn."""
    fed = [each.fed_at for each in record.backfills if each.is_open and each.fed_at is not None]
    return rows.fires.due(record.id, max([at.wall, *fed]))


def with_backfills(rows: Rows, at: Moment, record: JobRecord) -> JobRecord:
    """With those on record as finished of which nothing is left, and those as fed that want no rows for now: half a
    page waits for its turn."""
    if not any(each.is_open for each in record.backfills):
        return record
    waiting = Counter(fire.backfill for fire in waiting_rows(rows, at, record))
    live = waiting + Counter(fire.backfill for fire in rows.fires.active(record.id))
    return changed(record, backfills=tuple(_brought_up(at, each, waiting, live) for each in record.backfills))


def _brought_up(
    at: Moment, backfill: Backfill, waiting: Counter[str | None], live: Counter[str | None]
) -> Backfill:
    if not backfill.is_open:
        return backfill
    is_over = (backfill.exhausted or backfill.cancelled) and not live[backfill.name]
    is_fed = is_over or waiting[backfill.name] > backfill.page // 2
    return changed(backfill, is_fed=is_fed, finished_at=at.wall if is_over else None)
