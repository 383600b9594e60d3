"""Backfills and skipped fires, as people ask for them: checked, and with the remedy in the message."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from fencepost.errors import ConfigurationError, Conflict, NotFound, UsageError
from fencepost.model import Backfill, JobRecord, checked_id
from fencepost.model.backfills import MOST_AT_ONCE, MOST_FIRES, MOST_KEPT, MOST_SKIPS
from fencepost.model.triggers import Trigger, iso
from fencepost.scheduler.manual import aware
from fencepost.settings import did_you_mean
from fencepost.store.base import ChangeJob, Store
from fencepost.store.rereading import readable_job

LONGEST_NAME = 80


@dataclass(frozen=True)
class Range:
    """What is to be backfilled: fires with since <= due < until."""

    since: datetime
    until: datetime
    limit: int = 1
    reverse: bool = False
    only_missing: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        aware(self.since, "since")
        aware(self.until, "until")


async def start_backfill(
    store: Store, record: JobRecord, asked: Range, retention: timedelta, by: str = ""
) -> Backfill:
    now, trigger = (await store.roster()).now, _calendar(record)
    _check(record, asked, now, retention)
    until = min(asked.until, now)
    total = await asyncio.to_thread(_count, trigger, asked.since, until)
    if total == 0:
        raise UsageError(
            f"the calendar of {record.id} has no fire between {iso(asked.since)} and {iso(until)}"
        )
    if total > MOST_FIRES:
        raise UsageError(f"that is more than {MOST_FIRES:,} fires; backfill a shorter range at a time")
    name = secrets.token_hex(3) if asked.name is None else asked.name
    backfill = Backfill(
        name, trigger, asked.since, until, until, asked.limit, asked.reverse, asked.only_missing, total
    )
    existing = record.backfill(name)
    changed = await store.change_job(ChangeJob(record.id, "backfill", by=by, backfill=backfill))
    found = changed.backfill(name) if changed is not None else None
    if found is None:
        raise Conflict(f"{MOST_KEPT} backfills of {record.id} have not ended; wait, or cancel one of them")
    if existing is not None and (existing.since, existing.reverse) != (asked.since, asked.reverse):
        raise Conflict(f"{record.id} has had a backfill {name!r} of another range; give it another name")
    return found


async def change_backfill(store: Store, job_id: str, name: str, what: str, by: str = "") -> Backfill:
    """`what`: pause, resume or cancel."""
    kind = f"{what} backfill"
    record = await store.change_job(ChangeJob(job_id, kind, by=by, name=name))  # type: ignore[arg-type]
    found = record.backfill(name) if record is not None else None
    if found is None:
        before = backfill_of(await stored_job(store, job_id), name)
        raise Conflict(f"backfill {name} of {job_id} has ended: {before.state}")
    return found


async def change_skip(
    store: Store, job_id: str, due_at: datetime, undo: bool = False, reason: str = "", by: str = ""
) -> JobRecord:
    """Skip the coming fire of that moment, or let it run after all."""
    kind = "unskip" if undo else "skip"
    record = await store.change_job(ChangeJob(job_id, kind, reason, by, due_at=due_at))  # type: ignore[arg-type]
    if record is None:
        raise UsageError(await _why_not(store, await stored_job(store, job_id), due_at, undo))
    return record


def backfill_of(record: JobRecord, name: str) -> Backfill:
    found = record.backfill(name)
    if found is None:
        known = ", ".join(each.name for each in record.backfills) or "none"
        raise NotFound(f"{record.id} has no backfill {name!r}; known: {known}")
    return found


async def _why_not(store: Store, record: JobRecord, due_at: datetime, undo: bool) -> str:
    now = (await store.roster()).now
    if due_at <= now:
        return f"{iso(due_at)} has passed; only a fire to come can be skipped, or not"
    if undo:
        return f"no skip of {record.id} at {iso(due_at)} is known"
    if len(record.skips) >= MOST_SKIPS:
        return f"{MOST_SKIPS} fires of {record.id} are to be skipped already; pause it instead"
    trigger = _calendar(record)
    ahead = trigger.next_after(due_at)
    coming = f"; the next one after it is {iso(ahead)}" if ahead is not None else ""
    return f"{record.id} has no fire at {iso(due_at)}{coming}"


async def stored_job(store: Store, job_id: str, known: Iterable[str] = ()) -> JobRecord:
    """`known`: ids of jobs, for a hint."""
    record = await readable_job(store, job_id)
    if record is None:
        raise NotFound(f"there is no job {job_id!r} in the store", did_you_mean(job_id, known))
    return record


def _calendar(record: JobRecord) -> Trigger:
    trigger = record.segments[-1].trigger if record.segments else record.job.trigger
    if trigger is None:
        raise UsageError(f"{record.id} has no schedule: it runs when triggered")
    if trigger.foreign is not None:
        raise UsageError(f"the calendar of {record.id} is not known here: {trigger.foreign}")
    return trigger.resolved(record.created_at)


def _check(record: JobRecord, asked: Range, now: datetime, retention: timedelta) -> None:
    if asked.since >= min(asked.until, now):
        raise UsageError(
            f"from {iso(asked.since)} to {iso(asked.until)} is no past range; give an earlier --from"
        )
    if not 1 <= asked.limit <= MOST_AT_ONCE:
        raise UsageError(f"limit {asked.limit} does not work; between 1 and {MOST_AT_ONCE} may run at once")
    if asked.name is not None:
        try:
            checked_id(asked.name, "name")
        except ConfigurationError as error:
            raise UsageError(str(error)) from None
        if len(asked.name) > LONGEST_NAME:
            raise UsageError(f"a name has at most {LONGEST_NAME} characters")
    kept_since = now - retention
    if asked.only_missing and asked.since < kept_since and record.created_at < kept_since:
        raise UsageError(
            f"the ledger keeps {retention.days} days, so what is missing before {iso(kept_since)} is not known; "
            "begin later, or leave only-missing out"
        )


def _count(trigger: Trigger, since: datetime, until: datetime) -> int:
    due = takewhile(lambda fire: fire < until, trigger.after(since - datetime.resolution))
    return sum(1 for _ in islice(due, MOST_FIRES + 1))
