"""Calendars of a job: where one begins, where it ends, and what it still owes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost.clock import Moment
from fencepost.model import (
    Gap,
    JobEvent,
    JobRecord,
    Reason,
    Segment,
    State,
    changed,
    fire_key,
    planned_fire,
)
from fencepost.model.periods import JobCalendar
from fencepost.model.triggers import EARLIEST
from fencepost.store.rows import Rows
from fencepost.store.rules.ledger import later

MAX_GAPS_KEPT = 100


def start_calendar(rows: Rows, at: Moment, record: JobRecord, details: Mapping[str, Any]) -> JobRecord:
    """A new trigger; `details`: who changed what, for the history.

    Planned rows that are not due were a cache of the old one: withdraw them. Rows that
    are due are facts and stay, and so does what the old calendar still owes before this moment: it is
    planned to its end first. The new one starts after the last fire decided, so that a moment on which
    both calendars agree is one fire, also where the store's clock has stepped back."""
    since = takes_effect(rows, at, record)
    rows.fires.withdraw_planned(record.id, since)
    version = record.version + 1
    trigger = record.job.trigger.resolved(at.wall) if record.job.trigger else None
    listed = trigger.listed_until(since) if trigger is not None else ()
    since = _reaches_back(rows, record, listed, since)
    record = _with_past(rows, at, record, listed, since)
    segments = ended(rows, record.segments, since)
    if trigger is not None:
        segments = (*segments, Segment(version, trigger, cursor=since, next_at=since))
    event = JobEvent(record.id, at.wall, "defined", version, since, token=record.token)
    rows.jobs.note(changed(event, trigger=trigger.to_json() if trigger else None, **details))
    return changed(record, version=version, segments=segments, removed_at=None)


def takes_effect(rows: Rows, at: Moment, record: JobRecord) -> datetime:
    """From when on a change of the calendar holds. Usually from now on; where the store's clock has stepped back,
    not before anything that was decided, nor before the calendar that it replaces."""
    since = later(record, at.wall)
    if not record.version:
        return since
    changes = [event.since for event in rows.jobs.events(record.id) if event.kind in ("defined", "removed")]
    stretches = [fire.last_due for fire in rows.fires.due(record.id, since)]
    return max([since, *changes, *stretches])


def _reaches_back(rows: Rows, record: JobRecord, listed: Sequence[datetime], since: datetime) -> datetime:
    """From when on a calendar holds that lists fires before `since`: before as many of them as come after
    everything that the job's earlier calendars have decided, have due, or still owe, and are not on record."""
    if not listed:
        return since
    due = [fire.last_due for fire in rows.fires.due(record.id, since)]
    decided = max([*due, record.decided_through or EARLIEST])
    owing = ended(rows, record.segments, since)
    start = since
    for moment in reversed(listed):
        if moment <= decided or any(_has_fire(segment, moment, since) for segment in owing):
            break
        if _is_on_record(rows, fire_key(record.id, moment)):
            break
        start = moment - datetime.resolution
    return start


def _with_past(
    rows: Rows, at: Moment, record: JobRecord, listed: Sequence[datetime], since: datetime
) -> JobRecord:
    """Account for the fires of a new calendar that it lists although they have passed. After `since` they are
    fires like others, and those later than `misfire_after` will be missed. Up to `since` they are missed here and
    now: later fires of the job have been decided."""
    if record.version and listed and listed[0] <= since:
        known = JobCalendar(rows.jobs.events(record.id))
        for moment in listed:
            if known.known_after < moment <= since and not known.has(moment):
                _miss(rows, at, record, moment)
    begin, decided = since + datetime.resolution, record.decided_through or EARLIEST
    past = [changed(each, until=min(begin, each.until or begin)) for each in record.past]
    past = [each for each in past if each.until is not None and max(decided, each.since) < each.until]
    gap = Gap(begin, at.wall - record.job.misfire_after)
    if any(gap.covers(moment) for moment in listed):
        past.append(gap)
    return changed(record, past=tuple(past[-MAX_GAPS_KEPT:]))


def _miss(rows: Rows, at: Moment, record: JobRecord, moment: datetime) -> None:
    key = fire_key(record.id, moment)
    if not _is_on_record(rows, key):
        fire = planned_fire(key, record.id, moment, 1, None)
        rows.fires.put(changed(fire, state=State.MISSED, reason=Reason.PAST, finished_at=at.wall))


def _is_on_record(rows: Rows, key: str) -> bool:
    return rows.fires.get(key) is not None or rows.fires.is_broken(key)


def ended(rows: Rows, segments: tuple[Segment, ...], until: datetime) -> tuple[Segment, ...]:
    """The calendars as they stand when their job changes: open only as far as they are behind."""
    ended = []
    for segment in segments:
        end = min(until, segment.until or until)
        if segment.next_at is not None and segment.next_at <= end and segment.cursor < end:
            ended.append(changed(segment, until=end))
    return tuple(ended)


def _has_fire(segment: Segment, first: datetime, last: datetime) -> bool:
    """Whether an unfinished calendar has a fire from `first` to `last`."""
    found = segment.trigger.next_after(max(segment.cursor, first - datetime.resolution))
    return found is not None and found <= min(last, segment.until or last)
