"""Limits across jobs: who holds a place, who waits for one, and who is next.

A limit has a row among the jobs, marked as removed, so that it is locked, loaded and saved as jobs are, by every store
(decision 0062). The row names the fires that were claimed under the limit; only those count that still run by their own
rows, so nothing can leak. A job that finds a limit full is *held*: its fires stay queued, and it is decided again when
a place is free: the highest priority first, then the longest due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.clock import Moment
from fencepost.model import FireRecord, Job, JobRecord, State, changed
from fencepost.model.limits import LARGEST, ROW, Full, HeldBack, Limit, LimitState, Member, Waiter
from fencepost.store.base import JobPage
from fencepost.store.rows import Rows

CHECK_AGAIN = timedelta(seconds=30)
"""When a job that is held is decided, should no freed place have let it go before."""
PAGE = 100
"""Limits that are read at once."""
SPARE = 5
"""Jobs decided for a free place besides the first: the replicas that know the first ones may have no slot free."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many more fires of a job its limits allow now."""

    places: int
    limit: str
    """The one that allows so few."""
    full: Full
    holder: str | None = None
    """One of the runs that have its places."""
    overdue: bool = False
    """One of these may be dead."""
    free_at: datetime | None = None
    """Of a rate: when the next place is free."""


def room_for(rows: Rows, at: Moment, record: JobRecord) -> Room | None:
    """The tightest of a job's limits; None: it has none."""
    rooms = [_room(rows, at, record, each) for each in record.job.limits]
    return min(rooms, key=lambda room: room.places, default=None)


def _room(rows: Rows, at: Moment, record: JobRecord, limit: Limit) -> Room:
    state = _state(rows, limit.row_id)
    if state is None:
        return Room(0, limit.name, "queue")
    if limit.per_seconds is None:
        held = holders(rows, state)
        size = limit.size if state.size is None else state.size
        overdue = any(_overdue(rows, at, key) for key in held)
        return Room(size - len(held), limit.name, limit.full, held[0] if held else None, overdue)
    count, period = state.rate or (limit.size, timedelta(seconds=limit.per_seconds))
    starts = starts_within(state, at.wall, period)
    before = sum(
        1 for each in state.waiting if each.job_id != record.id and _is_first(each, state, record.id)
    )
    # Of those that wait each is decided when its own place becomes free.
    free_at = starts[min(before, len(starts) - 1)] + period if len(starts) >= count else None
    return Room(count - len(starts), limit.name, limit.full, free_at=free_at)


def _is_first(other: Waiter, state: LimitState, job_id: str) -> bool:
    mine = next((each for each in state.waiting if each.job_id == job_id), None)
    return mine is None or other.turn < mine.turn


def holders(rows: Rows, state: LimitState) -> list[str]:
    """Those that run. A row that cannot be read may be of a run."""
    found = [(key, rows.fires.get(key)) for key in state.holders]
    return [
        key
        for key, fire in found
        if (fire is not None and fire.state is State.RUNNING) or (fire is None and rows.fires.is_broken(key))
    ]


def starts_within(state: LimitState, now: datetime, period: timedelta) -> list[datetime]:
    """A start that seems to lie ahead, because the store's clock was set back, counts as one of now."""
    return sorted(min(start, now) for start in state.starts if start > now - period)


def _overdue(rows: Rows, at: Moment, key: str) -> bool:
    fire = rows.fires.get(key)
    if fire is not None and fire.remote is not None:  # no replica holds what an engine runs
        return False
    presence = rows.replicas.get(fire.replica) if fire is not None and fire.replica else None
    return presence is None or presence.expires <= at.steady


# --- what changes it ------------------------------------------------------------------------------------------


def take(
    rows: Rows, at: Moment, record: JobRecord, claimed: Sequence[FireRecord], held: Sequence[FireRecord]
) -> JobRecord:
    """These fires were claimed, those have to wait: the job, as it is to be kept."""
    room = room_for(rows, at, record) if held else None
    for limit in record.job.limits:
        state = _state(rows, limit.row_id)
        if state is None:
            continue
        waits = room is not None and room.limit == limit.name
        waiting = tuple(each for each in state.waiting if each.job_id != record.id)
        if waits:
            due_at = min(fire.due_at for fire in held)
            waiting = (*waiting, Waiter(due_at, record.id, record.job.priority))
        if all(
            each.job_id != record.id for each in state.members
        ):  # declared while the row could not be read
            state = changed(state, members=(*state.members, Member(record.id, limit.size, limit.per_seconds)))
        state = changed(_with_holders(rows, at, state, claimed, limit), waiting=waiting)
        _put(rows, at, limit.row_id, record.job, state)
    if room is None:
        return changed(record, held_back=None)
    room = room_for(rows, at, record)  # with this job in its place among those that wait
    assert room is not None
    until = room.free_at or at.wall + CHECK_AGAIN
    return changed(record, held_back=HeldBack(room.limit, min(until, at.wall + CHECK_AGAIN)))


def _with_holders(
    rows: Rows, at: Moment, state: LimitState, claimed: Sequence[FireRecord], limit: Limit
) -> LimitState:
    if not claimed:
        return state
    if limit.per_seconds is None:
        return changed(state, holders=(*holders(rows, state), *(fire.key for fire in claimed)))
    count = state.rate[0] if state.rate else limit.size
    # Also those that seem long ago: if the clock is set back, they are not. More than a full stretch are not needed.
    starts = [min(start, at.wall) for start in state.starts]
    return changed(state, starts=(*starts, *(at.wall for _ in claimed))[-count:])


def release(rows: Rows, at: Moment, record: JobRecord, fire: FireRecord) -> list[str]:
    """This run is over, or waits to be run again: its places are free. The jobs to decide now."""
    return [id for limit in record.job.limits for id in _release(rows, at, limit.row_id, record.job, fire)]


def release_all(rows: Rows, at: Moment, fire: FireRecord) -> list[str]:
    """The same for a run whose job cannot be read: every limit is looked at, because it may have been under any."""
    rows.widen()
    first: list[str] = []
    after = ROW
    while ids := [id for id in rows.jobs.ids(JobPage(PAGE, after)) if id.startswith(ROW)]:
        rows.preload(at.wall, records=ids)
        for id in ids:
            record = rows.jobs.get(id)
            if record is not None:
                first += _release(rows, at, id, record.job, fire)
        after = ids[-1]
    return first


def _release(rows: Rows, at: Moment, row_id: str, job: Job, fire: FireRecord) -> list[str]:
    state = _state(rows, row_id)
    if state is None or fire.key not in state.holders:
        return []
    state = changed(state, holders=tuple(key for key in state.holders if key != fire.key))
    _put(rows, at, row_id, job, state)
    return next_in_line(rows, state)


def declare(rows: Rows, at: Moment, before: Job | None, after: Job | None) -> list[str]:
    """A job carries other limits than before, or is new, or removed. Its runs count from now on; those
    of a job that was removed go on, and keep their places. The jobs to decide."""
    first: list[str] = []
    old = {each.row_id: each for each in (before.limits if before else ())}
    new = {each.row_id: each for each in (after.limits if after else ())}
    for row_id in (*old, *(id for id in new if id not in old)):
        job = after or before
        assert job is not None
        mine = new.get(row_id)
        state = _state(rows, row_id)
        if state is None:
            continue
        runs = [fire.key for fire in rows.fires.active(job.id) if fire.state is State.RUNNING and after]
        others = [key for key in state.holders if key not in runs]
        members = tuple(each for each in state.members if each.job_id != job.id)
        if mine is not None:
            members = (*members, Member(job.id, mine.size, mine.per_seconds))
            others += runs if mine.per_seconds is None else []
        waiting = tuple(each for each in state.waiting if each.job_id != job.id)
        state = changed(state, members=members, holders=tuple(others), waiting=waiting)
        _put(rows, at, row_id, job, state)
        first += next_in_line(rows, state)
    return first


def next_in_line(rows: Rows, state: LimitState) -> list[str]:
    """The jobs to decide for the places that are free: the highest priority first, then the longest due."""
    free = LARGEST if state.size is None else state.size - len(holders(rows, state))
    if free <= 0:
        return []
    first = sorted(state.waiting, key=lambda each: each.turn)[: free + SPARE]
    return [each.job_id for each in first]


# --- its row --------------------------------------------------------------------------------------------------


def _state(rows: Rows, row_id: str) -> LimitState | None:
    """None: its row cannot be read, so nothing starts under it."""
    rows.widen()
    record = rows.jobs.get(row_id)
    if record is None and rows.jobs.aside(row_id):
        return None
    return record.limit if record is not None and record.limit is not None else LimitState()


def _put(rows: Rows, at: Moment, row_id: str, job: Job, state: LimitState) -> None:
    """`job`: one that carries it, whose target the row borrows: every job has one."""
    record = rows.jobs.get(row_id)
    if record is None:
        blank = Job(row_id, job.target)
        record = JobRecord(blank, blank.fingerprint, at.wall, at.wall, removed_at=at.wall)
    if record.limit != state:
        rows.jobs.put(changed(record, limit=state), None, None)
